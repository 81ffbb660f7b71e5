//! `GET /key` and `HEAD /key`: an object, a range of it, or its headers.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue, RANGE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use larder_s3::get::{FoundObject, GetObject, ReadWindow};
use larder_s3::{Caller, Objects};
use larder_s3_rules::access::AccessContext;
use larder_s3_rules::part::PART_NUMBER_MAX;

use super::{conditions, encryption, listing_document, object_headers};
use crate::call::{EXPECTED_OWNER, S3Call};
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Body, S3Response};
use crate::target::{ResourcePath, S3Query};

/// Headers of most answers, those of every answer included: the map grows once.
const HEADERS: usize = 12;

/// The answer to a GET or HEAD of an object that the gateway reads at once. `None` says nothing: the caller then runs the
/// operation, which also finds every reason for a refusal. `context` is collected only where a policy looks at it.
pub(crate) fn at_once(
    objects: &Objects,
    parts: &Parts,
    target: &ResourcePath,
    query: &S3Query,
    caller: Caller,
    context: impl FnOnce() -> AccessContext,
) -> Option<S3Response> {
    let headers = &parts.headers;
    // The expected owner is compared before the object is looked at, and a key of a customer before all else.
    if headers.contains_key(EXPECTED_OWNER) || encryption::is_named(headers) {
        return None;
    }
    let request = decode(target.bucket.clone(), target.key.clone(), query, headers).ok()?;
    let overrides = object_headers::overrides(query, caller.user.is_some()).ok()?;
    let (found_object, body) = if parts.method == Method::HEAD {
        (objects.try_head(caller, context, &request)?, S3Body::empty())
    } else {
        let (found_object, bytes) = objects.try_get(caller, context, &request)?;
        (found_object, S3Body::full(bytes))
    };
    let mut response = respond(&found_object, headers).ok()?;
    replace(&mut response, overrides);
    *response.body_mut() = body;
    Some(response)
}

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let request = decode_call(call).await?;
    let overrides = object_headers::overrides(&call.query, call.caller.user.is_some())?;
    let (found_object, reader) = call.objects.get(&call.caller, &request).await?;
    let bytes = found_object.window.end.saturating_sub(found_object.window.start);
    let mut response = respond(&found_object, &call.headers)?;
    replace(&mut response, overrides);
    *response.body_mut() = S3Body::object(reader, bytes);
    Ok(response)
}

pub(super) async fn head(call: &S3Call) -> Result<S3Response, S3Error> {
    let request = decode_call(call).await?;
    let overrides = object_headers::overrides(&call.query, call.caller.user.is_some())?;
    let found_object = call.objects.head(&call.caller, &request).await?;
    let mut response = respond(&found_object, &call.headers)?;
    replace(&mut response, overrides);
    Ok(response)
}

/// Replaces stored headers with the overrides of the request.
fn replace(response: &mut S3Response, overrides: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
    for (name, value) in overrides {
        response.headers_mut().insert(name, value);
    }
}

/// Parses a part number.
///
/// # Errors
/// 400 `InvalidArgument` outside 1 to 10,000.
pub(super) fn part_number(text: &str) -> Result<u16, S3Error> {
    listing_document::digits(text).filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or_else(|| {
        S3Error::argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })
}

async fn decode_call(call: &S3Call) -> Result<GetObject, S3Error> {
    let request = decode(call.bucket.clone(), call.key.clone(), &call.query, &call.headers)?;
    Ok(GetObject { customer_key: encryption::read_key(call, &request).await?, ..request })
}

fn decode(bucket: String, key: Bytes, query: &S3Query, headers: &HeaderMap) -> Result<GetObject, S3Error> {
    Ok(GetObject {
        bucket,
        key,
        version: listing_document::version(query),
        window: window(query, headers)?,
        conditions: conditions::read_conditions(headers),
        customer_key: None,
    })
}

/// The bytes that a request asks for.
///
/// # Errors
/// 400 for a part number that is none, or beside a range.
pub(crate) fn window(query: &S3Query, headers: &HeaderMap) -> Result<ReadWindow, S3Error> {
    let range = listing_document::header(headers, RANGE).and_then(range);
    match (query.get("partNumber"), range) {
        (Some(_), _) if headers.contains_key(RANGE) => {
            Err(S3Error::invalid("Cannot specify both Range header and partNumber query parameter"))
        }
        (Some(number), _) => part_number(number).map(ReadWindow::Part),
        (None, Some(window)) => Ok(window),
        (None, None) => Ok(ReadWindow::Whole),
    }
}

/// Parses a single range. Several ranges and invalid ones are ignored.
fn range(text: &str) -> Option<ReadWindow> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |digits: &str| {
        let digits = digits.trim();
        // A number above 64 bits means the end of the object.
        listing_document::is_digits(digits).then(|| digits.parse().unwrap_or(u64::MAX))
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first.trim().is_empty(), last.trim().is_empty()) {
        (true, _) => number(last).map(ReadWindow::Last),
        (false, true) => number(first).map(|first| ReadWindow::Range(first, None)),
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(ReadWindow::Range(first, Some(last)))
        }
    }
}

/// The headers of an object that was found, with its status.
///
/// # Errors
/// 400 where the request names an encryption.
pub(crate) fn respond(found_object: &FoundObject, headers: &HeaderMap) -> Result<S3Response, S3Error> {
    encryption::check_read(headers)?;
    let object = found_object.version.object.as_ref().ok_or(Code::NoSuchKey)?;
    let mut response = response::empty(StatusCode::OK);
    response.headers_mut().reserve(HEADERS);
    object_headers::write_found(&mut response, found_object, object, headers);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requested(query: &str, given: Option<&str>) -> Result<ReadWindow, S3Error> {
        let given = given.map(|range| (HeaderName::from_static("range"), HeaderValue::from_str(range).unwrap()));
        window(&S3Query::parse(Some(query)), &given.into_iter().collect())
    }

    #[test]
    fn only_a_single_valid_range_counts() {
        for (text, expected) in [
            ("bytes=0-0", ReadWindow::Range(0, Some(0))),
            ("Bytes = 5 - 7 ", ReadWindow::Range(5, Some(7))),
            ("bytes=5-", ReadWindow::Range(5, None)),
            ("bytes=-5", ReadWindow::Last(5)),
            ("bytes=-0", ReadWindow::Last(0)),
            ("bytes=0-99999999999999999999", ReadWindow::Range(0, Some(u64::MAX))),
            ("bytes=0-1,3-4", ReadWindow::Whole),
            ("bytes=7-5", ReadWindow::Whole),
            ("bytes=-", ReadWindow::Whole),
            ("bytes=a-b", ReadWindow::Whole),
            ("bytes=+1-2", ReadWindow::Whole),
            ("bytes", ReadWindow::Whole),
            ("items=0-1", ReadWindow::Whole),
            ("", ReadWindow::Whole),
        ] {
            assert_eq!(requested("", Some(text)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn part_numbers_are_1_to_10000() {
        assert_eq!(requested("partNumber=10000", None).unwrap(), ReadWindow::Part(10_000));
        for bad in ["", "0", "10001", "-1", "+1", "x", "1.0", "99999999999"] {
            let error = requested(&format!("partNumber={bad}"), None).unwrap_err();
            assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", "partNumber"), "{bad}");
        }
        assert_eq!(requested("partNumber=1", Some("bytes=0-1")).unwrap_err().code.name(), "InvalidRequest");
    }

    proptest! {
        #[test]
        fn any_range_is_read_or_left_out(text: String) {
            let _ = (range(&text), part_number(&text));
        }
    }
}
