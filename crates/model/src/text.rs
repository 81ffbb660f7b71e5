//! Text of any length for answers and logs, which are bounded.

/// The beginning of a text, at most `max` bytes of it, which ends between two characters.
#[must_use]
pub fn beginning(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
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
