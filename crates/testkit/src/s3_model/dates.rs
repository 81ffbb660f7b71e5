//! Dates as S3 writes them, from the calendar alone.

/// Microseconds of a second.
pub(super) const SECOND: u64 = 1_000_000;
/// Microseconds of a minute.
pub(super) const MINUTE: u64 = 60 * SECOND;
/// Microseconds of a day.
pub(super) const DAY: u64 = 86_400 * SECOND;

/// `2027-01-15T08:00:00Z`, cut to the second.
pub(super) fn iso(micros: u64) -> String {
    let seconds = micros / SECOND;
    let (year, month, day) = date_of_day(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The time of such a text, in microseconds; a fraction is cut.
pub(super) fn parsed(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let days = day_of_date(number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    Some((days * 86_400 + seconds) * SECOND)
}

/// The first midnight more than `days` days after a time.
pub(super) fn midnight_after(micros: u64, days: u64) -> u64 {
    (micros / DAY + days + 1) * DAY
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn date_of_day(mut days: u64) -> (u64, u64, u64) {
    let (mut year, mut month) = (1970, 1);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

fn day_of_date(year: u64, month: u64, day: u64) -> u64 {
    let years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let months: u64 = (1..month).map(|month| days_of_month(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        for (text, seconds) in [("2027-01-15T08:00:00Z", 1_800_000_000), ("2024-02-29T23:59:59Z", 1_709_251_199)] {
            assert_eq!(iso(seconds * SECOND), text);
            assert_eq!(parsed(text), Some(seconds * SECOND));
        }
        assert_eq!(iso(midnight_after(1_800_000_000 * SECOND, 1)), "2027-01-17T00:00:00Z");
    }
}
