//! Text in the form of an Erlang shell, which Riak's console and its protocol-buffer errors use.

/// `s` as an atom: bare when Erlang allows that, else in single quotes (`'larder@127.0.0.1'`).
#[must_use]
pub fn atom(s: &str) -> String {
    let starts_low = s.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_low && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '@') {
        s.to_owned()
    } else {
        quoted(s, '\'')
    }
}

/// Bytes as a binary: `<<"text">>`, or their numbers when one of them is no printable character of Latin 1, as in Erlang.
/// Printable bytes that are no UTF-8 are numbers, too: the answer is text.
#[must_use]
pub fn binary(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    match std::str::from_utf8(bytes) {
        Ok("") => "<<>>".into(),
        Ok(text) if bytes.iter().copied().all(is_printable) => format!("<<{}>>", quoted(text, '"')),
        _ => format!("<<{}>>", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// Whether Erlang's shell shows this byte of a binary as a character.
fn is_printable(byte: u8) -> bool {
    matches!(byte, 8..=13 | 27 | 32..=126 | 160..)
}

/// `s` as a string: `"text"`.
#[must_use]
pub fn string(s: &str) -> String {
    quoted(s, '"')
}

fn quoted(s: &str, quote: char) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push(quote);
    for c in s.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push_str(&format!("\\x{{{:X}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atoms_are_quoted_only_when_erlang_requires_it() {
        for (given, printed) in [
            ("quorum", "quorum"),
            ("n_val", "n_val"),
            ("a@b", "a@b"),
            ("larder@127.0.0.1", "'larder@127.0.0.1'"),
            ("", "''"),
            ("Up", "'Up'"),
            ("it's", "'it\\'s'"),
            ("a\nb", "'a\\nb'"),
        ] {
            assert_eq!(atom(given), printed);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(binary("a\"b"), "<<\"a\\\"b\">>");
        assert_eq!((binary([255, 0]).as_str(), binary("").as_str()), ("<<255,0>>", "<<>>"));
        assert_eq!(string("a\\\u{1}"), "\"a\\\\\\x{1}\"");
    }

    #[test]
    fn a_binary_that_erlang_would_not_print_is_shown_as_numbers() {
        for (given, printed) in [
            ("a\n\r\t\u{8}\u{b}\u{c}\u{1b}", r#"<<"a\n\r\t\b\v\f\e">>"#),
            ("a\u{1}", "<<97,1>>"),
            ("\0", "<<0>>"),
            ("\u{7f}", "<<127>>"),
            ("é", "<<\"é\">>"),
            ("À", "<<195,128>>"),
            ("\u{85}", "<<194,133>>"),
        ] {
            assert_eq!(binary(given), printed, "{given:?}");
        }
    }
}
