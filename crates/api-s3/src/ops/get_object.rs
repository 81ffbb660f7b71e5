//! `GET /key` and `HEAD /key`: an object, some of its bytes, or what is known of it.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use larder_gateway::objects::get::{Found, GetObject, Window};
use larder_model::objects::part::PART_NUMBER_MAX;

use super::{conditions, describe, params};
use crate::body::Body;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::query::Query;
use crate::reply::{self, Reply};

pub(super) async fn get(call: &Call) -> Result<Reply, Fault> {
    let request = decode(call)?;
    let overrides = describe::overrides(&call.query, call.caller.user.is_some())?;
    let (found, reader) = call.objects.get(&call.caller, &request).await?;
    let bytes = found.window.end.saturating_sub(found.window.start);
    let mut reply = answer(&found, call)?;
    replace(&mut reply, overrides);
    *reply.body_mut() = Body::object(reader, bytes);
    Ok(reply)
}

pub(super) async fn head(call: &Call) -> Result<Reply, Fault> {
    let request = decode(call)?;
    let overrides = describe::overrides(&call.query, call.caller.user.is_some())?;
    let found = call.objects.head(&call.caller, &request).await?;
    let mut reply = answer(&found, call)?;
    replace(&mut reply, overrides);
    Ok(reply)
}

/// Puts what the request wants in the place of what is stored.
fn replace(reply: &mut Reply, overrides: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
    for (name, value) in overrides {
        reply.headers_mut().insert(name, value);
    }
}

/// The number of a part.
///
/// # Errors
/// 400 `InvalidArgument` for what is not from 1 to 10,000.
pub(super) fn part_number(text: &str) -> Result<u16, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.then(|| text.parse::<u16>().ok()).flatten();
    number.filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or_else(|| {
        Fault::argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })
}

fn decode(call: &Call) -> Result<GetObject, Fault> {
    Ok(GetObject {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        version: params::version(&call.query),
        window: window(&call.query, &call.headers)?,
        conditions: conditions::of_read(&call.headers),
    })
}

fn window(query: &Query, headers: &HeaderMap) -> Result<Window, Fault> {
    let range = params::header(headers, "range").and_then(range);
    match (query.get("partNumber"), range) {
        (Some(_), _) if headers.contains_key("range") => {
            Err(Fault::invalid("Cannot specify both Range header and partNumber query parameter"))
        }
        (Some(number), _) => part_number(number).map(Window::Part),
        (None, Some(window)) => Ok(window),
        (None, None) => Ok(Window::Whole),
    }
}

/// Reads one range; several, and what is no range, are as if they were not there.
fn range(text: &str) -> Option<Window> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |digits: &str| {
        let digits = digits.trim();
        let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        // A number that is too large is as large as can be.
        plain.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first.trim().is_empty(), last.trim().is_empty()) {
        (true, _) => number(last).map(Window::Last),
        (false, true) => number(first).map(|first| Window::Range(first, None)),
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Window::Range(first, Some(last)))
        }
    }
}

fn answer(found: &Found, call: &Call) -> Result<Reply, Fault> {
    let object = found.version.object.as_ref().ok_or(Code::NoSuchKey)?;
    let mut reply = reply::empty(StatusCode::OK);
    describe::found(&mut reply, found, object, &call.headers);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(query: &str, given: Option<&str>) -> Result<Window, Fault> {
        let given = given.map(|range| (HeaderName::from_static("range"), HeaderValue::from_str(range).unwrap()));
        window(&Query::of(Some(query)), &given.into_iter().collect())
    }

    #[test]
    fn ranges() {
        for (text, expected) in [
            ("bytes=0-0", Window::Range(0, Some(0))),
            ("Bytes = 5 - 7 ", Window::Range(5, Some(7))),
            ("bytes=5-", Window::Range(5, None)),
            ("bytes=-5", Window::Last(5)),
            ("bytes=-0", Window::Last(0)),
            ("bytes=0-99999999999999999999", Window::Range(0, Some(u64::MAX))),
            ("bytes=0-1,3-4", Window::Whole),
            ("bytes=7-5", Window::Whole),
            ("bytes=-", Window::Whole),
            ("bytes=a-b", Window::Whole),
            ("bytes=+1-2", Window::Whole),
            ("bytes", Window::Whole),
            ("items=0-1", Window::Whole),
            ("", Window::Whole),
        ] {
            assert_eq!(asked("", Some(text)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn parts() {
        assert_eq!(asked("partNumber=10000", None).unwrap(), Window::Part(10_000));
        for bad in ["", "0", "10001", "-1", "+1", "x", "1.0", "99999999999"] {
            let fault = asked(&format!("partNumber={bad}"), None).unwrap_err();
            assert_eq!((fault.code.name(), fault.extras[0].1.as_str()), ("InvalidArgument", "partNumber"), "{bad}");
        }
        assert_eq!(asked("partNumber=1", Some("bytes=0-1")).unwrap_err().code.name(), "InvalidRequest");
    }

    proptest! {
        #[test]
        fn any_range_is_read_or_left_out(text: String) {
            let _ = (range(&text), part_number(&text));
        }
    }
}
