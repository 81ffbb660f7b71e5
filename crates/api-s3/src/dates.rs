//! Times in responses. [`crate::auth::date`] parses those of requests.

use larder_model::Timestamp;
use std::time::{Duration, UNIX_EPOCH};

use hyper::header::HeaderValue;
use time::OffsetDateTime;

/// `2010-11-10T20:48:34.000Z`: ISO 8601 with milliseconds, as in documents.
#[must_use]
pub fn iso(at: Timestamp) -> String {
    let at = moment(at);
    let (date, clock) = (at.date(), at.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond()
    )
}

/// `20101110T204834Z`: ISO 8601 basic format, as in signatures and Riak CS usage reports.
#[must_use]
pub fn basic(at: Timestamp) -> String {
    let at = moment(at);
    let (date, clock) = (at.date(), at.time());
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    )
}

/// `Wed, 10 Nov 2010 20:48:34 GMT`: as in headers. The fraction is truncated, as in documents.
#[must_use]
pub fn http(at: Timestamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.min(LATEST).as_secs()))
}

/// [`http`] as a header value.
#[must_use]
pub fn http_header(at: Timestamp) -> HeaderValue {
    HeaderValue::try_from(http(at)).unwrap_or(HeaderValue::from_static(""))
}

/// The end of the year 9999, the last that these formats can write.
const LATEST: Timestamp = Timestamp(253_402_300_799_999_999);

fn moment(at: Timestamp) -> OffsetDateTime {
    let nanos = i128::from(at.min(LATEST).0) * 1000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_formats_of_the_protocol() {
        let at = 1_289_422_114_123_999;
        assert_eq!(iso(Timestamp(at)), "2010-11-10T20:48:34.123Z");
        assert_eq!(basic(Timestamp(at)), "20101110T204834Z");
        assert_eq!(http(Timestamp(at)), "Wed, 10 Nov 2010 20:48:34 GMT");
        assert_eq!(iso(Timestamp::ZERO), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(Timestamp::MAX), "9999-12-31T23:59:59.999Z");
        assert!(http(Timestamp::MAX).ends_with("9999 23:59:59 GMT"));
    }
}
