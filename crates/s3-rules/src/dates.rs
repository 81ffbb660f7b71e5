//! Times on the wire: the formats that responses use, and the parsers of the times in requests.
//!
//! Clients send different formats: botocore writes `GMT`, rclone `UTC`, s3cmd `+0000`, the Riak CS manual a one-digit day, and
//! version 4 signatures use ISO 8601. Documents and most headers have one format each.

use std::time::{Duration, UNIX_EPOCH};

use larder_rows::Timestamp;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

/// ISO 8601 with milliseconds.
const ISO: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
/// ISO 8601 basic format.
const BASIC: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// `2010-11-10T20:48:34.000Z`: ISO 8601 with milliseconds, as in documents.
#[must_use]
pub fn iso(at: Timestamp) -> String {
    utc(at).format(ISO).unwrap_or_default()
}

/// `20101110T204834Z`: ISO 8601 basic format, as in signatures and Riak CS usage reports.
#[must_use]
pub fn basic(at: Timestamp) -> String {
    utc(at).format(BASIC).unwrap_or_default()
}

/// `Wed, 10 Nov 2010 20:48:34 GMT`: as in headers. The fraction is truncated, as in documents.
#[must_use]
pub fn http(at: Timestamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.min(LATEST).as_secs()))
}

/// Bytes of the format of [`http`].
const IMF_BYTES: usize = 29;

/// The end of the year 9999, the last that these formats can write.
const LATEST: Timestamp = Timestamp(253_402_300_799_999_999);

fn utc(at: Timestamp) -> OffsetDateTime {
    let nanos = i128::from(at.min(LATEST).0) * 1000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Parses the date of a header; an unreadable date counts as absent.
#[must_use]
pub fn parse_http(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok().map(Timestamp)
}

/// Parses an ISO 8601 time: date, `T`, time and zone.
#[must_use]
pub fn parse_iso(text: &str) -> Option<Timestamp> {
    // The parser accepts any character between date and time.
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| text.as_bytes().get(10) == Some(&b'T'))?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000).ok().map(Timestamp)
}

/// Parses the date of a document: date and time with a zone, or a date alone, which means midnight UTC.
#[must_use]
pub fn parse_document_date(text: &str) -> Option<Timestamp> {
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

/// Parses a time in any known format: RFC 1123 and 822 (one or two digits of day, optional weekday, zone by name or
/// offset), RFC 850, asctime, ISO 8601 basic and extended. `None` for other text and for times before 1970.
#[must_use]
pub fn parse_any(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    // Bound: no format is longer, and the parsers below slice by bytes.
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    let as_most_write_it = (text.len() == IMF_BYTES).then(|| parse_http(text)).flatten();
    as_most_write_it
        .or_else(|| parse_basic(text))
        .or_else(|| parse_extended(text))
        .or_else(|| parse_with_month_name(text))
}

/// Parses `20060102T150405Z`, the only format of version 4 signatures.
#[must_use]
pub fn parse_basic(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    if date.len() != 8 || clock.len() != 6 || !text.is_ascii() {
        return None;
    }
    let date = calendar_date(number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?)?;
    let clock = clock_time(number(&clock[..2])?, number(&clock[2..4])?, number(&clock[4..])?)?;
    micros(date, clock, 0)
}

/// Parses `2006-01-02T15:04:05Z`, with optional fraction and offset.
fn parse_extended(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.splitn(3, '-');
    let date = calendar_date(number(date.next()?)?, number(date.next()?)?, number(date.next()?)?)?;
    let end = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    number(fraction)?;
    micros(date, self::clock(clock)?, offset(zone)?)
}

/// Parses the formats that name the month.
fn parse_with_month_name(text: &str) -> Option<Timestamp> {
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
            micros(calendar_date(self::year(year)?, month, day)?, clock(time)?, offset(zone)?)
        }
        // asctime: Nov 6 08:49:37 1994
        [month_name, day, time, year] if month(month_name).is_some() => {
            micros(calendar_date(number(year)?, month(month_name)?, number(day)?)?, clock(time)?, 0)
        }
        // 6 Nov 1994 08:49:37, without a zone, from some old programs
        [day, month_name, year, time] => {
            micros(calendar_date(self::year(year)?, month(month_name)?, number(day)?)?, clock(time)?, 0)
        }
        // RFC 1123: 06 Nov 1994 08:49:37 GMT
        [day, month_name, year, time, zone] => {
            micros(calendar_date(self::year(year)?, month(month_name)?, number(day)?)?, clock(time)?, offset(zone)?)
        }
        _ => None,
    }
}

fn calendar_date(year: u32, month: u32, day: u32) -> Option<Date> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()
}

fn clock_time(hour: u32, minute: u32, second: u32) -> Option<Time> {
    let small = |number: u32| u8::try_from(number).ok();
    // A leap second counts as the second before.
    Time::from_hms(small(hour)?, small(minute)?, small(second.min(59))?).ok()
}

fn micros(date: Date, clock: Time, offset_seconds: i64) -> Option<Timestamp> {
    let seconds = PrimitiveDateTime::new(date, clock).assume_utc().unix_timestamp() - offset_seconds;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000).map(Timestamp)
}

fn clock(text: &str) -> Option<Time> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second = parts.next().map_or(Some(0), number)?;
    if second <= 60 { clock_time(hour, minute, second) } else { None }
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
    // Signs and blanks, which `parse` would accept, are no part of any format.
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests;
