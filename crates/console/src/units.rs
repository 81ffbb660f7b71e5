//! Figures as text for people: bytes, times, dates, counts.

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
    }
}
