//! Parses times in requests. Formats differ: botocore writes `GMT`, rclone `UTC`, s3cmd `+0000`, the Riak CS manual a
//! one-digit day, and version 4 signatures use ISO 8601.

use larder_model::Timestamp;
use time::{Date, Month, PrimitiveDateTime, Time};

/// Parses a time in any known format: RFC 1123 and 822 (one or two digits of day, optional weekday, zone by name or
/// offset), RFC 850, asctime, ISO 8601 basic and extended. `None` for other text and for times before 1970.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    iso_basic(text).or_else(|| iso_extended(text)).or_else(|| with_month_name(text))
}

/// Parses `20060102T150405Z`, the only format of version 4 signatures.
#[must_use]
pub fn iso_basic(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    if date.len() != 8 || clock.len() != 6 || !text.is_ascii() {
        return None;
    }
    let date = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let clock = (number(&clock[..2])?, number(&clock[2..4])?, number(&clock[4..])?);
    micros(date, clock, 0)
}

/// Parses `2006-01-02T15:04:05Z`, with optional fraction and offset.
fn iso_extended(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.splitn(3, '-');
    let date = (number(date.next()?)?, number(date.next()?)?, number(date.next()?)?);
    let end = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    number(fraction)?;
    micros(date, self::clock(clock)?, offset(zone)?)
}

/// Parses the formats that name the month.
fn with_month_name(text: &str) -> Option<Timestamp> {
    let mut words = [""; 7];
    let mut count = 0;
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        *words.get_mut(count)? = word;
        count += 1;
    }
    let mut words = &words[..count];
    if words.first()?.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        is_weekday(words[0]).then_some(())?;
        words = &words[1..];
    }
    match *words {
        // RFC 850: 06-Nov-94 08:49:37 GMT
        [date, time, zone] => {
            let mut date = date.splitn(3, '-');
            let (day, month, year) = (number(date.next()?)?, month(date.next()?)?, date.next()?);
            micros((self::year(year)?, month, day), clock(time)?, offset(zone)?)
        }
        // asctime: Nov 6 08:49:37 1994
        [month_name, day, time, year] if month(month_name).is_some() => {
            micros((number(year)?, month(month_name)?, number(day)?), clock(time)?, 0)
        }
        // 6 Nov 1994 08:49:37, without a zone, from some old programs
        [day, month_name, year, time] => micros((self::year(year)?, month(month_name)?, number(day)?), clock(time)?, 0),
        // RFC 1123: 06 Nov 1994 08:49:37 GMT
        [day, month_name, year, time, zone] => {
            micros((self::year(year)?, month(month_name)?, number(day)?), clock(time)?, offset(zone)?)
        }
        _ => None,
    }
}

fn micros(date: (u32, u32, u32), clock: (u32, u32, u32), offset_seconds: i64) -> Option<Timestamp> {
    let small = |number: u32| u8::try_from(number).ok();
    let month = Month::try_from(small(date.1)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(date.0).ok()?, month, small(date.2)?).ok()?;
    // A leap second counts as the second before.
    let time = Time::from_hms(small(clock.0)?, small(clock.1)?, small(clock.2.min(59))?).ok()?;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp() - offset_seconds;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000).map(Timestamp)
}

fn clock(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second = parts.next().map_or(Some(0), number)?;
    (second <= 60).then_some((hour, minute, second))
}

/// The offset in seconds of `GMT`, `UTC`, `UT`, `Z`, `+hhmm` or `+hh:mm`.
fn offset(zone: &str) -> Option<i64> {
    if ["GMT", "UTC", "UT", "Z"].iter().any(|name| zone.eq_ignore_ascii_case(name)) {
        return Some(0);
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None => digits.split_at_checked(2)?,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 14 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

/// A year; two digits mean 1970 to 2069.
fn year(text: &str) -> Option<u32> {
    let year = number(text)?;
    Some(if text.len() > 2 {
        year
    } else if year < 70 {
        2000 + year
    } else {
        1900 + year
    })
}

fn month(name: &str) -> Option<u32> {
    const NAMES: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let at = NAMES.iter().position(|month| name.eq_ignore_ascii_case(month))?;
    u32::try_from(at).ok().map(|at| at + 1)
}

fn is_weekday(name: &str) -> bool {
    const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    name.get(..3).is_some_and(|short| NAMES.iter().any(|day| short.eq_ignore_ascii_case(day)))
}

/// A number of digits alone, without sign or white space.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_format_that_clients_send_is_parsed() {
        let same = 1_136_214_245_000_000; // Monday, 2 January 2006, 15:04:05
        for text in [
            "Mon, 02 Jan 2006 15:04:05 GMT",
            "Mon, 02 Jan 2006 15:04:05 UTC",
            "Mon, 02 Jan 2006 15:04:05 +0000",
            "Mon, 02 Jan 2006 15:04:05 Z",
            "Mon, 2 Jan 2006 15:04:05 GMT",
            "2 Jan 2006 15:04:05 GMT",
            "02 jan 06 15:04:05 UT",
            "Mon, 02 Jan 2006 16:34:05 +0130",
            "Mon, 02 Jan 2006 10:04:05 -05:00",
            "Monday, 02-Jan-06 15:04:05 GMT",
            "Mon Jan  2 15:04:05 2006",
            "20060102T150405Z",
            "2006-01-02T15:04:05Z",
            "2006-01-02T15:04:05.678Z",
            "2006-01-02T17:04:05+02:00",
            "  Mon, 02 Jan 2006 15:04:05 GMT ",
            "Mon, 02 Jan 2006 15:04:05",
        ] {
            assert_eq!(parse(text), Some(Timestamp(same)), "{text}");
        }
        assert_eq!(parse("Mon, 1 Nov 2010 20:34:56 GMT"), Some(Timestamp(1_288_643_696_000_000)));
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "Mon",
            "1136214245",
            "Mon, 32 Jan 2006 15:04:05 GMT",
            "Mon, 02 Foo 2006 15:04:05 GMT",
            "Mon, 02 Jan 2006 25:04:05 GMT",
            "Mon, 02 Jan 2006 15:04:05 CEST",
            "Mon, 02 Jan 2006 15:04:05 +99:00",
            "20060102T150405",
            "20061302T150405Z",
            "2006-01-02T15:04:05",
            "Xyz, 02 Jan 2006 15:04:05 GMT",
            "Mon, 02 Jan 1901 15:04:05 GMT",
            "Mon, 02 Jan 2006 15:04:61 GMT",
            "é",
            "20060102Té50405Z",
            "+1-2-3T4:5:6Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}", digits in "[0-9A-Za-z:,+ \\-TZ.]{0,40}") {
            let _ = (parse(&text), parse(&digits), iso_basic(&text), iso_basic(&digits));
        }

        #[test]
        fn times_in_responses_can_be_parsed(seconds in 0u64..253_402_300_799) {
            let at = seconds * 1_000_000;
            prop_assert_eq!(parse(&crate::dates::http(Timestamp(at))), Some(Timestamp(at)));
            prop_assert_eq!(parse(&crate::dates::basic(Timestamp(at))), Some(Timestamp(at)));
            prop_assert_eq!(parse(&crate::dates::iso(Timestamp(at))), Some(Timestamp(at)));
        }
    }
}
