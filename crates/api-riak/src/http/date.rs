//! Times as HTTP writes them, without a formatter: every answer with a value has one.

use larder_model::Timestamp;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
/// The months from March on: a leap day ends such a year.
const MONTHS: [&[u8; 3]; 12] =
    [b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec", b"Jan", b"Feb"];
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// Days from the first of March of the year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Days of four centuries.
const ERA_DAYS: u64 = 146_097;
/// The last second of the year 9999: later ones have no such form.
const LAST_SECOND: u64 = 253_402_300_799;

/// A time in HTTP's form, such as `Thu, 01 Jan 1970 00:00:00 GMT`.
#[must_use]
pub(super) fn http_date(at: Timestamp) -> [u8; 29] {
    let seconds = at.as_secs().min(LAST_SECOND);
    let (days, second) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = date_of(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(DAYS[(days % 7) as usize]);
    text[8..11].copy_from_slice(MONTHS[month as usize]);
    let numbers =
        [(5, day), (12, year / 100), (14, year % 100), (17, second / 3600), (20, second / 60 % 60), (23, second % 60)];
    for (place, number) in numbers {
        text[place..place + 2].copy_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]);
    }
    text
}

/// Year, month from March on, and day of the month, of a day since 1970.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    // Leap days end years of four, but not those of a hundred, but again that of four hundred.
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on always have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    (era * 400 + year + u64::from(month >= 10), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn check(seconds: u64) {
        let expected = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(std::str::from_utf8(&http_date(Timestamp(seconds * 1_000_000))).unwrap(), expected);
    }

    #[test]
    fn every_day_has_its_date() {
        (0..=LAST_SECOND / DAY_SECONDS).for_each(|day| check(day * DAY_SECONDS));
        check(LAST_SECOND);
        assert_eq!(http_date(Timestamp::MAX), http_date(Timestamp(LAST_SECOND * 1_000_000)));
    }

    proptest! {
        #[test]
        fn every_second_has_its_time(seconds in 0..=LAST_SECOND) {
            check(seconds);
        }
    }
}
