//! The counters of Riak 1.4: `/buckets/B/counters/K`, in buckets that keep siblings (Riak KV HTTP reference §10).

use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use larder_core::Error;
use larder_kv::Quorums;
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{DatatypeUpdate, DatatypeValue};
use larder_net::ArrivingBody;
use larder_rows::address::Address;

use super::{check_headers, check_read, request_id};
use crate::http::accept;
use crate::http::body::{check_md5, collect};
use crate::http::call::RiakCall;
use crate::http::errors::RiakFault;
use crate::http::params::{ObjectParams, integer};
use crate::http::reply::{RiakResponse, TEXT, empty, text};

/// Longest amount: the digits of 64 bits with a sign, and zeros before them.
const AMOUNT_BYTES_MAX: u64 = 1024;
/// Memory for the value of a counter.
const COUNTER_BYTES: usize = 1024;

/// GET: the number as text.
///
/// # Errors
/// An invalid parameter, or an error of the gateway.
pub(in crate::http) async fn get_counter(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let params = ObjectParams::from_query(&call.query)?;
    accept::require(call.headers, &["text/plain"])?;
    check_read(call.headers)?;
    match read(call, call.address()?, params).await {
        Ok(Some(total)) => Ok(text(StatusCode::OK, total.to_string())),
        Ok(None) => Ok(text(StatusCode::NOT_FOUND, "not found\n")),
        Err(error) => Err(error.into()),
    }
}

/// POST of an amount.
///
/// # Errors
/// An invalid parameter or amount, a bucket without siblings, or an error of the gateway.
pub(in crate::http) async fn post_counter(
    call: &RiakCall<'_>,
    body: ArrivingBody<'_>,
) -> Result<RiakResponse, RiakFault> {
    let params = ObjectParams::from_query(&call.query)?;
    check_headers(call.headers)?;
    let address = call.address()?;
    let body = collect(body, AMOUNT_BYTES_MAX).await?;
    check_md5(call.headers, &body)?;
    let change = DatatypeChange {
        address: address.clone(),
        update: DatatypeUpdate::Counter(amount(&body).ok_or_else(|| RiakFault::page(StatusCode::BAD_REQUEST))?),
        context: None,
        request_id: request_id(call.headers),
        quorums: params.quorums,
        timeout: params.timeout,
    };
    match call.gateway.kv.update_datatype(change).await {
        Ok(()) => {}
        Err(Error::DatatypeNeedsSiblings) => {
            let refused = "Counters require bucket property 'allow_mult=true'";
            return Err(RiakFault::status_text(StatusCode::CONFLICT, refused));
        }
        Err(error) => return Err(error.into()),
    }
    if call.query.is("returnvalue", "true") {
        // The update is made: counts that its read could not meet must not refuse it now.
        let total = read(call, address, ObjectParams { quorums: Quorums::default(), ..params }).await?;
        // Deleted since the update, or before a repeat of it, it is at zero.
        return Ok(text(StatusCode::OK, total.unwrap_or(0).to_string()));
    }
    let mut reply = empty(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(CONTENT_TYPE, TEXT);
    Ok(reply)
}

/// A decimal number of 64 bits with an optional sign, and nothing around it.
fn amount(body: &[u8]) -> Option<i64> {
    integer(body)?;
    std::str::from_utf8(body).ok()?.parse().ok()
}

async fn read(call: &RiakCall<'_>, address: Address, params: ObjectParams) -> Result<Option<i128>, Error> {
    let ObjectParams { quorums, timeout, .. } = params;
    let fetch = DatatypeFetch { address, quorums, include_context: false, begin: DatatypeBegin::First, timeout };
    let Some(reader) = call.gateway.kv.fetch_datatype(fetch).await? else { return Ok(None) };
    Ok(match reader.whole(COUNTER_BYTES).await?.0 {
        DatatypeValue::Counter(total) => Some(total),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_number_of_64_bits_and_nothing_else() {
        for (body, number) in [("1", 1), ("-3", -3), ("+5", 5), ("007", 7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(amount(body.as_bytes()), Some(number), "{body}");
        }
        for body in ["", " 1", "1\n", "abc", "1.0", "-", "9223372036854775808", "0x1", "1 "] {
            assert_eq!(amount(body.as_bytes()), None, "{body:?}");
        }
        assert_eq!(amount(b"\xff"), None);
    }
}
