//! JSON as Riak's decoder, mochijson2, takes it. It takes more than RFC 8259 does, and clients and tutorials rely on that: a regular
//! expression such as `\w` in a function of a job has its backslash once.
//!
//! | Text | Read as |
//! |---|---|
//! | an escape that JSON does not have, `"\w"` | the backslash and the character |
//! | a control character in a string | itself |
//! | a comma before `]` or `}` | nothing |

use std::borrow::Cow;
use std::io::Write as _;

use serde::de::DeserializeOwned;

/// Reads a document.
///
/// # Errors
/// It is no JSON for Riak either.
pub fn parse<T: DeserializeOwned>(document: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(&standard(document))
}

/// The document in standard JSON, where Riak takes more. Other faults stay in it.
#[must_use]
pub fn standard(document: &[u8]) -> Cow<'_, [u8]> {
    let mut rewritten = RewrittenJson { document, copied: 0, text: Vec::new() };
    // The last byte that is no space: a comma follows a value, or it is a fault.
    let (mut at, mut last) = (0, b',');
    while let Some(byte) = document.get(at) {
        let begins = at;
        match byte {
            b'"' => at = rewritten.string(at + 1),
            b',' if !matches!(last, b'[' | b'{' | b',') && closes(&document[at + 1..]) => {
                rewritten.replace(at, 1, b"");
                at += 1;
            }
            _ => at += 1,
        }
        if !is_space(document[begins]) {
            last = document[begins];
        }
    }
    rewritten.finish()
}

/// A document, and its text up to the last place that differs from the standard.
struct RewrittenJson<'a> {
    document: &'a [u8],
    /// Bytes of the document that are in the text, or replaced there.
    copied: usize,
    text: Vec<u8>,
}

impl<'a> RewrittenJson<'a> {
    /// Goes through a string from after its quote on; returns the place after its end.
    fn string(&mut self, mut at: usize) -> usize {
        loop {
            match self.document.get(at) {
                None => return at,
                Some(b'"') => return at + 1,
                Some(b'\\') => match self.document.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u') => at += 2,
                    _ => {
                        self.replace(at, 1, br"\\");
                        at += 1;
                    }
                },
                Some(control @ ..b' ') => {
                    let mut escaped = Vec::with_capacity(6);
                    // A vector takes all bytes.
                    let _ = write!(escaped, "\\u{control:04x}");
                    self.replace(at, 1, &escaped);
                    at += 1;
                }
                Some(_) => at += 1,
            }
        }
    }

    fn replace(&mut self, at: usize, bytes: usize, by: &[u8]) {
        self.text.extend_from_slice(&self.document[self.copied..at]);
        self.text.extend_from_slice(by);
        self.copied = at + bytes;
    }

    fn finish(mut self) -> Cow<'a, [u8]> {
        if self.copied == 0 {
            return Cow::Borrowed(self.document);
        }
        self.text.extend_from_slice(&self.document[self.copied..]);
        Cow::Owned(self.text)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether an array or an object ends here.
fn closes(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !is_space(**byte)).is_some_and(|byte| matches!(byte, b']' | b'}'))
}

/// The values in a JSON text, or a few more: each takes up to fifty times its text in memory once it is parsed.
#[must_use]
pub fn values_in(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' | b':' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_riak_takes_is_read_as_riak_reads_it() {
        for (document, value) in [
            (&br#"{"a":"match(/\w*/g)"}"#[..], json!({"a": r"match(/\w*/g)"})),
            (br#"["\'\x","\\w\"\\",1,]"#, json!([r"\'\x", "\\w\"\\", 1])),
            (b"{\"a\":\"1\n2\t3\x01\",\r\n}", json!({"a": "1\n2\t3\u{1}"})),
            (b"[\"\\\n\"]", json!(["\\\n"])),
            (b"[1 , ]", json!([1])),
            (br#"[",]",",}"]"#, json!([",]", ",}"])),
        ] {
            assert_eq!(parse::<Value>(document).unwrap(), value, "{}", String::from_utf8_lossy(document));
        }
    }

    #[test]
    fn what_riak_refuses_is_refused() {
        for document in [&b"[,]"[..], b"[1,,]", b"{,}", b"[1", br#"["\u12"]"#, br#"["\"#, b"[1,,2]", b",", b"[1],"] {
            assert!(parse::<Value>(document).is_err(), "{}", String::from_utf8_lossy(document));
        }
    }

    proptest! {
        #[test]
        fn standard_json_is_left_alone(text in ".*", number in any::<i64>()) {
            let value = json!({text.clone(): [text, number], "b": []});
            let document = serde_json::to_vec(&value).unwrap();
            prop_assert!(matches!(standard(&document), Cow::Borrowed(_)));
            prop_assert_eq!(parse::<Value>(&document).unwrap(), value);
        }

        #[test]
        fn no_document_panics(document in any::<Vec<u8>>()) {
            let _ = parse::<Value>(&document);
        }
    }
}
