//! Figures as text for people: bytes, times, dates, counts.

use larder_rows::Timestamp;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

const MOMENT: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// Bytes with a unit, such as `1.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // A tenth of a unit: whole numbers, so that nothing is lost in a float.
    let mut tenths = bytes.saturating_mul(10) / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    if tenths < 1000 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", tenths / 10, UNITS[unit])
    }
}

/// Bytes exactly, in the largest unit that divides them, such as `10 GiB` or `1000000`.
pub(crate) fn exact_bytes(bytes: u64) -> String {
    let unit = BINARY_UNITS.iter().rev().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(name, size)| format!("{} {name}", bytes / size))
}

/// The units of exact bytes.
const BINARY_UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A time of a request, such as `430 µs` or `12.5 ms`.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0 => "–".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        100_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

/// A number with spaces between its thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A duration in seconds, such as `3 h 12 min`.
pub(crate) fn seconds(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A moment in UTC, such as `2026-01-31 13:05:09`.
pub(crate) fn moment(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(MOMENT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1 << 20, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (time, text) in [(0, "–"), (430, "430 µs"), (12_540, "12.5 ms"), (430_000, "430 ms"), (61_000_000, "61 s")]
        {
            assert_eq!(micros(time), text);
        }
        assert_eq!((count(7).as_str(), count(1_234_567).as_str()), ("7", "1\u{202f}234\u{202f}567"));
        assert_eq!(
            (seconds(59), seconds(11_520), seconds(200_000)),
            ("59 s".into(), "3 h 12 min".into(), "2 d 7 h".into())
        );
    }

    #[test]
    fn exact_bytes_are_read_back() {
        for bytes in [1, 1023, 1024, 1_000_000, 10 << 30, (10 << 30) + 1, i64::MAX as u64] {
            assert_eq!(larder_rows::text::parse_size(&exact_bytes(bytes)), Some(bytes), "{bytes}");
        }
        assert_eq!((exact_bytes(10 << 30), exact_bytes(1_000_000)), ("10 GiB".into(), "1000000".into()));
    }

    #[test]
    fn moments_are_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_767_225_599, "2025-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(moment(Timestamp(seconds * 1_000_000)), text);
        }
    }
}
