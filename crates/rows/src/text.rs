//! Text for answers, pages and logs: cut to a bound, and escaped.

use crate::Timestamp;

/// The beginning of a text, at most `max` bytes of it, which ends between two characters.
#[must_use]
pub fn beginning(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Bytes as text: characters that are not plain, and bytes that are no text, become `\x{..}`.
#[must_use]
pub fn escaped(bytes: &[u8], is_plain: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_plain(c) { out.push(c) } else { out.push_str(&format!("\\x{{{:X}}}", u32::from(c))) }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{{{byte:X}}}")));
    }
    out
}

/// The digits at the begin of a text, and the unit after them.
#[must_use]
pub fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// The bytes of a text such as `1048576`, `64KiB` or `1 GiB`: more than 0, and within `i64`. `KB`, `MB` and `GB` count by 1024 too,
/// as in riak.conf.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(factor)?;
    Some(bytes).filter(|&bytes| bytes > 0 && i64::try_from(bytes).is_ok())
}

/// A time as `2026-11-25T04:00:00.000001Z`.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let form = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    formatted(at, form)
}

/// The same to the millisecond, which is cut and not rounded.
#[must_use]
pub fn rfc3339_millis(at: Timestamp) -> String {
    let form = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    formatted(at, form)
}

fn formatted(at: Timestamp, form: &[time::format_description::BorrowedFormatItem<'_>]) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1000).ok();
    at.and_then(|at| at.format(form).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_characters() {
        for (max, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (4, "aäb"), (9, "aäb")] {
            assert_eq!(beginning("aäb", max), expected, "{max}");
        }
    }
}
