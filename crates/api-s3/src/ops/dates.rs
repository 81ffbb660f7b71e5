//! Parses times in headers and documents of clients.

use larder_model::Timestamp;
use std::time::UNIX_EPOCH;

use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime};

/// Parses the date of a header; an unreadable date counts as absent.
pub(crate) fn http(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok().map(Timestamp)
}

/// Parses an ISO 8601 time: date, `T`, time and zone.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    // The parser accepts any character between date and time.
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| text.as_bytes().get(10) == Some(&b'T'))?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000).ok().map(Timestamp)
}

/// Parses the date of a document: date and time with a zone, or a date alone, which means midnight UTC.
pub(crate) fn iso(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let time = match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(time) => time,
        Err(_) => day(text)?.midnight().assume_utc(),
    };
    u64::try_from(time.unix_timestamp_nanos() / 1_000).ok().map(Timestamp)
}

fn day(text: &str) -> Option<Date> {
    let mut parts = text.split('-').map(|part| part.parse::<u16>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()?;
    parts.next().is_none().then_some(date)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dates;

    #[test]
    fn known_formats_are_parsed() {
        let at = 1_289_422_114_000_000;
        assert_eq!(http("Wed, 10 Nov 2010 20:48:34 GMT"), Some(Timestamp(at)));
        assert_eq!(http("yesterday"), None);
        for text in ["2010-11-10T20:48:34.000Z", "2010-11-10T21:48:34+01:00", " 2010-11-10T20:48:34Z\n"] {
            assert_eq!(iso(text), Some(Timestamp(at)), "{text}");
        }
        assert_eq!(moment("2010-11-10T21:48:34+01:00"), Some(Timestamp(at)));
        for text in ["2010-11-10 20:48:34Z", "2010-11-10", "2010-11-10T20:48:34", " 2010-11-10T20:48:34Z"] {
            assert_eq!(moment(text), None, "{text}");
        }
        assert_eq!(iso("1970-01-02"), Some(Timestamp(86_400_000_000)));
        for text in ["", "1969-12-31", "2010-13-01", "2010-02-30", "2010-01-01-01", "2010", "now"] {
            assert_eq!(iso(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(text: String) {
            let _ = (iso(&text), http(&text));
        }

        #[test]
        fn written_times_are_parsed_back(at in 0..253_402_300_800_000_000_u64) {
            prop_assert_eq!(iso(&dates::iso(Timestamp(at))), Some(Timestamp(at / 1_000 * 1_000)));
            prop_assert_eq!(http(&dates::http(Timestamp(at))), Some(Timestamp(at / 1_000_000 * 1_000_000)));
        }
    }
}
