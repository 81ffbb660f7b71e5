//! Names and values as text for people. The templates escape HTML; this makes the characters visible that would hide or reorder
//! others.

use larder_rows::text::{beginning, escaped};

/// Bytes of a name that a page shows.
const NAME_BYTES_SHOWN: usize = 512;

/// A name on one line: text of any script stays, other bytes and invisible characters become `\x{..}`. A long name is cut.
pub(crate) fn shown(name: &[u8]) -> String {
    let is_plain = |c: char| !c.is_control() && !reorders(c);
    let whole = escaped(&name[..name.len().min(NAME_BYTES_SHOWN)], is_plain);
    if name.len() > NAME_BYTES_SHOWN { format!("{whole}… ({} bytes)", name.len()) } else { whole }
}

/// A value of several lines, as [`shown`]; line ends and tabs stay.
pub(crate) fn shown_lines(value: &[u8]) -> String {
    escaped(value, |c| matches!(c, '\n' | '\t') || !c.is_control() && !reorders(c))
}

/// A label cut to `max` bytes.
pub(crate) fn label(text: &str, max: usize) -> String {
    if text.len() <= max { text.to_owned() } else { format!("{}…", beginning(text, max)) }
}

/// Characters that change the order or the visibility of others: a name could show as another one.
fn reorders(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_their_invisible_characters() {
        for (name, text) in [
            (&b"plain name"[..], "plain name"),
            ("пример 🍵".as_bytes(), "пример 🍵"),
            (b"a\nb\0", "a\\x{A}b\\x{0}"),
            (b"\xff\xc3", "\\x{FF}\\x{C3}"),
            ("gpj\u{202e}exe".as_bytes(), "gpj\\x{202E}exe"),
            ("a\u{200b}b".as_bytes(), "a\\x{200B}b"),
        ] {
            assert_eq!(shown(name), text);
        }
        assert_eq!(shown_lines(b"a\n\tb\r"), "a\n\tb\\x{D}");
        assert!(shown(&[b'x'; 600]).ends_with("x… (600 bytes)"));
    }
}
