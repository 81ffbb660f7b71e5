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

/// Bytes as a binary: `<<"text">>`, or their numbers when they are no text.
#[must_use]
pub fn binary(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    match std::str::from_utf8(bytes) {
        Ok("") => "<<>>".into(),
        Ok(text) => format!("<<{}>>", quoted(text, '"')),
        Err(_) => format!("<<{}>>", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",")),
    }
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
}
