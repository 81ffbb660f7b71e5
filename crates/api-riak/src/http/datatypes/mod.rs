//! Data types: read, update, and create under a key that the server makes (Riak KV HTTP reference §9).
//!
//! ```text
//! GET   datatype_params ──> gateway: pages of pieces ──> value_reply ──> json_value ──> body, while it is read
//! POST  datatype_params, json_update ──> gateway: update ──> 204, or as GET with `returnbody`
//! ```

mod counters;
mod datatype_params;
mod json_update;
mod json_value;
mod value_reply;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LINK, LOCATION};
use larder_core::Error;
use larder_kv::Quorums;
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::causality::{EtagMatcher, FailedCondition};
use larder_kv::rules::datatypes::Datatype;
use larder_net::ArrivingBody;
use larder_rows::address::{Address, BucketAddress};

use super::accept;
use super::body::{check_md5, collect_parsed};
use super::call::RiakCall;
use super::errors::{RiakFault, unknown_type};
use super::headers::{IF_NOT_MODIFIED, INDEX, META, REQUEST_ID, conditions, insert};
use super::path::quote_segment;
use super::reply::{JSON, RiakResponse, VCLOCK, done, empty, json, not_found_page, text};
use super::routes::PathPart;
use super::write_headers::{check_write, refuse_conditions, takes_no};
use datatype_params::{DatatypeParams, ValuePart};
use json_update::JsonUpdate;
use json_value::JsonValueWriter;
use value_reply::{PageWindow, value_reply};

pub(super) use counters::{get_counter, post_counter};

/// Longest document of an update: a register of the largest size, with some of its bytes escaped.
const UPDATE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of memory that a byte of a document may take, as JSON and as an update.
const PARSED_PER_BYTE: u64 = 100;
/// Most memory of a document besides its bytes: that of the most parts it may have.
const PARSED_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// GET and HEAD of `/types/T/buckets/B/datatypes/K`.
///
/// # Errors
/// An invalid parameter, a bucket without a data type, or an error of the gateway.
pub(super) async fn get(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let params = DatatypeParams::from_query(&call.query)?;
    if let Some(moved) = moved_to_counters(call) {
        return Ok(moved);
    }
    if call.route.place(PathPart::Key).is_none() {
        return Ok(not_found_page());
    }
    let address = call.address()?;
    let datatype = bucket_datatype(call, &address.bucket, &params).await?;
    accept::require(call.headers, &["application/json"])?;
    check_read(call.headers)?;
    show(call, datatype, address, params, absent).await.map_err(RiakFault::after_checks)
}

/// Checks the parameters of a request.
///
/// # Errors
/// 400 with Riak's text.
pub(super) fn check_form(call: &RiakCall<'_>) -> Result<(), RiakFault> {
    DatatypeParams::from_query(&call.query).map(drop)
}

/// POST of `/types/T/buckets/B/datatypes` and `/types/T/buckets/B/datatypes/K`.
///
/// # Errors
/// An invalid parameter or document, a bucket without a data type, or an error of the gateway.
pub(super) async fn post(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let params = DatatypeParams::from_query(&call.query)?;
    if let Some(moved) = moved_to_counters(call) {
        return Ok(moved);
    }
    let bucket = call.bucket()?;
    let datatype = bucket_datatype(call, &bucket, &params).await?;
    check_content_type(call.headers)?;
    check_headers(call.headers)?;
    if params.part != ValuePart::Whole {
        return Err(RiakFault::bad("An update shows the whole value, or nothing\n"));
    }
    let request_id = request_id(call.headers);
    // Each try would make a key of its own, and count there.
    if request_id.is_some() && call.route.place(PathPart::Key).is_none() {
        return Err(RiakFault::bad(format!("{REQUEST_ID} needs a key in the path\n")));
    }
    let (address, location) = match call.route.place(PathPart::Key) {
        Some(_) => (call.address()?, None),
        None => {
            let key = call.gateway.context().new_unique_name();
            let location = location(&bucket, &key);
            (Address::new(bucket, key.into()).map_err(Error::from)?, Some(location))
        }
    };
    let memory = |length: u64| length + PARSED_BYTES_MAX.min(length.saturating_mul(PARSED_PER_BYTE));
    let document = collect_parsed(body, UPDATE_BYTES_MAX, memory).await?;
    check_md5(call.headers, &document)?;
    let replied = async {
        let JsonUpdate { update, context } = json_update::decode(datatype, &document).map_err(refusal)?;
        let change = DatatypeChange {
            address: address.clone(),
            update,
            context,
            request_id,
            quorums: params.quorums,
            timeout: params.timeout,
        };
        call.gateway.kv.update_datatype(change).await?;
        match params.return_body {
            // The update is made: counts that its read could not meet must not refuse it now.
            true => {
                let params = DatatypeParams { quorums: Quorums::default(), ..params };
                show(call, datatype, address, params, empty_value).await
            }
            false => Ok(done(JSON)),
        }
    };
    let mut reply = replied.await.map_err(RiakFault::after_checks)?;
    if let Some(location) = location {
        *reply.status_mut() = StatusCode::CREATED;
        insert(reply.headers_mut(), LOCATION, location);
    }
    Ok(reply)
}

/// The part of a value that the parameters ask for, or the answer for a key that does not exist.
async fn show(
    call: &RiakCall<'_>,
    datatype: Datatype,
    address: Address,
    params: DatatypeParams,
    absent: fn(Datatype) -> RiakResponse,
) -> Result<RiakResponse, RiakFault> {
    let kv = &call.gateway.kv;
    let (is_set, is_map) = (matches!(datatype, Datatype::Set | Datatype::Gset), datatype == Datatype::Map);
    let mut fetch = DatatypeFetch {
        address,
        quorums: params.quorums,
        include_context: params.include_context,
        begin: DatatypeBegin::First,
        timeout: params.timeout,
    };
    let window = match params.part {
        ValuePart::Whole => PageWindow::new(None),
        ValuePart::Element(_) if !is_set => {
            return Err(RiakFault::bad(format!("A {} has no elements to ask for\n", datatype.name())));
        }
        ValuePart::Size | ValuePart::Page { .. } if !is_set && !is_map => {
            return Err(RiakFault::bad(format!("A {} has no size and no pages\n", datatype.name())));
        }
        ValuePart::Element(element) => {
            let membership = kv.has_element(fetch, &element).await?;
            return Ok(membership.map_or_else(|| absent(datatype), |present| member(datatype, "present", present)));
        }
        ValuePart::Size => {
            let count = kv.datatype_size(fetch).await?;
            return Ok(count.map_or_else(|| absent(datatype), |size| member(datatype, "size", size)));
        }
        ValuePart::Page { begin, max_results } => {
            // A context covers the whole value: with a page's a removal would take what the page did not show.
            fetch.include_context = false;
            fetch.begin = begin.within(is_map)?;
            PageWindow::new(max_results)
        }
    };
    match kv.fetch_datatype(fetch).await? {
        Some(reader) => value_reply(reader, window).await,
        None => Ok(absent(datatype)),
    }
}

/// The data type of the bucket.
async fn bucket_datatype(
    call: &RiakCall<'_>,
    bucket: &BucketAddress,
    params: &DatatypeParams,
) -> Result<Datatype, RiakFault> {
    let unsupported = || RiakFault::status_text(S::FORBIDDEN, "Bucket datatype 'undefined' is not a supported type.\n");
    use StatusCode as S;
    if bucket.is_default_type() {
        return Err(unsupported());
    }
    match call.gateway.kv.bucket_datatype(bucket, params.timeout).await {
        Ok(datatype) => Ok(datatype),
        Err(Error::UnknownType(name)) => Err(RiakFault::status_text(S::NOT_FOUND, unknown_type(&name) + "\n")),
        Err(Error::NotDatatype) => Err(unsupported()),
        Err(error) => Err(error.into()),
    }
}

/// 301 for a key of type `default`, whose only data types are the counters of Riak 1.4.
fn moved_to_counters(call: &RiakCall<'_>) -> Option<RiakResponse> {
    call.route.place(PathPart::Key).filter(|_| call.bucket_type() == larder_rows::address::DEFAULT_TYPE)?;
    let place = format!("/buckets/{}/counters/{}", call.raw(PathPart::Bucket), call.raw(PathPart::Key));
    let body = "Counters in the default bucket-type should use the legacy URL\n";
    let mut reply = text(StatusCode::MOVED_PERMANENTLY, body);
    insert(reply.headers_mut(), LOCATION, place);
    Some(reply)
}

/// 406 for a document of another media type, 400 for none.
fn check_content_type(headers: &HeaderMap) -> Result<(), RiakFault> {
    if !headers.contains_key(CONTENT_TYPE) {
        return Err(RiakFault::bad("Missing Content-Type request header"));
    }
    match super::props::is_json(headers) {
        true => Ok(()),
        false => Err(empty(StatusCode::NOT_ACCEPTABLE).into()),
    }
}

/// Refuses headers that an object understands and a data type has no place for: an update that ignored them would do something
/// else than its client asked for.
fn check_headers(headers: &HeaderMap) -> Result<(), RiakFault> {
    check_write(headers)?;
    refuse_conditions(headers)?;
    // The context of an update is a member of its document, and its document comes as it is.
    let is_of_objects = |name: &HeaderName| {
        [LINK, VCLOCK, CONTENT_ENCODING, IF_NOT_MODIFIED].contains(name)
            || [META, INDEX].iter().any(|of| name.as_str().starts_with(of))
    };
    match headers.keys().find(|name| is_of_objects(name)) {
        Some(name) => Err(takes_no("A data type", name)),
        None => Ok(()),
    }
}

/// Refuses the conditions that no data type meets: it has no entity tag, and no time. For the others each value is a new one.
fn check_read(headers: &HeaderMap) -> Result<(), RiakFault> {
    let asked = conditions(headers);
    match matches!(asked.if_match, Some(EtagMatcher::Tags(_))) || asked.if_unmodified_since.is_some() {
        true => Err(Error::Condition(FailedCondition::Precondition).into()),
        false => Ok(()),
    }
}

/// The id of an update that is carried out once.
fn request_id(headers: &HeaderMap) -> Option<Bytes> {
    headers.get(REQUEST_ID).map(|id| Bytes::copy_from_slice(id.as_bytes()))
}

fn refusal(refused: json_update::JsonRefusal) -> RiakFault {
    RiakFault::bad(refused.to_string())
}

/// 404 as JSON.
fn absent(datatype: Datatype) -> RiakResponse {
    json(StatusCode::NOT_FOUND, format!(r#"{{"type":"{}","error":"notfound"}}"#, datatype.name()))
}

/// 200 with the empty value: that of an update whose value was deleted before it was read, or before a repeat of it.
fn empty_value(datatype: Datatype) -> RiakResponse {
    let (mut writer, mut document) = (JsonValueWriter::new(datatype), Vec::new());
    writer.begin(&mut document);
    writer.finish(None, None, &mut document);
    json(StatusCode::OK, document)
}

/// A fact about a value.
fn member(datatype: Datatype, name: &str, value: impl std::fmt::Display) -> RiakResponse {
    json(StatusCode::OK, format!(r#"{{"type":"{}","{name}":{value}}}"#, datatype.name()))
}

/// The path of the new key, as an object: that is where Riak says it is.
fn location(bucket: &BucketAddress, key: &str) -> Vec<u8> {
    let mut path = b"/types/".to_vec();
    quote_segment(&bucket.bucket_type, &mut path);
    path.extend_from_slice(b"/buckets/");
    quote_segment(&bucket.bucket, &mut path);
    path.extend_from_slice(b"/keys/");
    path.extend_from_slice(key.as_bytes());
    path
}
