//! User metadata that is not ASCII: encoded words of RFC 2047 on the way, text at rest.
//!
//! AWS decodes an encoded word that a client sends, also one of plain ASCII, and encodes what is not printable ASCII when it answers.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// Longest value that is decoded. Its text may be no longer than 2 KiB with all other metadata.
const WORDS_BYTES_MAX: usize = 8 * 1024;

/// The text of a header's value; a value without encoded words, or a long one, as it is.
#[must_use]
pub(crate) fn decoded(value: &Bytes) -> Bytes {
    // Attack: each mark is followed to the next end, which a long value may have thousands of times.
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= WORDS_BYTES_MAX && text.contains("=?"));
    let Some(text) = text else { return value.clone() };
    let (mut out, mut rest, mut after_word) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find("=?") {
        let (before, from) = rest.split_at(at);
        let Some((word, after)) = leading_word(from) else {
            let (mark, after) = from.split_at("=?".len());
            out.push_str(before);
            out.push_str(mark);
            (rest, after_word) = (after, false);
            continue;
        };
        // Space between two words is part of neither (RFC 2047 §6.2).
        if !(after_word && before.trim().is_empty()) {
            out.push_str(before);
        }
        out.push_str(&word);
        (rest, after_word) = (after, true);
    }
    out.push_str(rest);
    out.into()
}

/// The text of the encoded word that the text begins with, and what follows it.
fn leading_word(text: &str) -> Option<(String, &str)> {
    let mut pieces = text.strip_prefix("=?")?.splitn(3, '?');
    let (charset, encoding, rest) = (pieces.next()?, pieces.next()?, pieces.next()?);
    let (content, after) = rest.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => STANDARD.decode(content).ok()?,
        "Q" | "q" => decoded_quotes(content)?,
        _ => return None,
    };
    let text = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok()?,
        "iso-8859-1" => bytes.into_iter().map(char::from).collect(),
        _ => return None,
    };
    // A stored line end would break the answer's head.
    (!text.contains(['\r', '\n', '\0'])).then_some((text, after))
}

/// The bytes of the form `Q`.
fn decoded_quotes(content: &str) -> Option<Vec<u8>> {
    let mut bytes = content.bytes();
    let mut out = Vec::with_capacity(content.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'_' => b' ',
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(out)
}

/// The value of a header for this text: as it is where it is printable ASCII, and where it is no text.
#[must_use]
pub(crate) fn encoded(value: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(value) else { return value.clone() };
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return value.clone();
    }
    // The form in which a person still reads most of it.
    let is_readable = 2 * text.chars().filter(char::is_ascii).count() >= text.chars().count();
    match is_readable && !text.contains(|char: char| char.is_ascii_control()) {
        true => format!("=?UTF-8?Q?{}?=", encoded_quotes(text)).into(),
        false => format!("=?UTF-8?B?{}?=", STANDARD.encode(text)).into(),
    }
}

fn encoded_quotes(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('_'),
            b'_' | b'?' | b'=' => drop(write!(out, "={byte:02X}")),
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "={byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(value: &'static str) -> String {
        String::from_utf8(decoded(&Bytes::from_static(value.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn encoded_words_are_read_as_text() {
        for (value, text) in [
            ("=?UTF-8?B?YWJj?=", "abc"),
            ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
            ("=?utf-8?q?=C3=A9_t=C3=A9?=", "é té"),
            ("=?ISO-8859-1?Q?=E9?=", "é"),
            ("a =?UTF-8?B?YQ==?= =?UTF-8?B?Yg==?= c", "a ab c"),
            ("plain", "plain"),
            ("=?UTF-8?B?***?=", "=?UTF-8?B?***?="),
            ("=?UTF-8?X?a?=", "=?UTF-8?X?a?="),
            ("=?UTF-8?Q?a", "=?UTF-8?Q?a"),
            ("=?UTF-8?Q?=0D=0Ax:_y?=", "=?UTF-8?Q?=0D=0Ax:_y?="),
            ("x=?y", "x=?y"),
        ] {
            assert_eq!(text_of(value), text, "{value}");
        }
    }

    #[test]
    fn text_that_is_not_ascii_is_an_encoded_word() {
        for (text, value) in [
            ("plain text", "plain text"),
            ("Hello World é", "=?UTF-8?Q?Hello_World_=C3=A9?="),
            ("a_b?c=d%é", "=?UTF-8?Q?a=5Fb=3Fc=3Dd%=C3=A9?="),
            ("日本語", "=?UTF-8?B?5pel5pys6Kqe?="),
        ] {
            assert_eq!(encoded(&Bytes::from_static(text.as_bytes())), value, "{text}");
        }
        let raw = Bytes::from_static(b"\xe9");
        assert_eq!((decoded(&raw), encoded(&raw)), (raw.clone(), raw), "no text");
    }

    proptest! {
        #[test]
        fn text_comes_back(text in "[^\r\n\0]*") {
            let text = Bytes::from(text.into_bytes());
            let value = encoded(&text);
            prop_assume!(value != text);
            prop_assert!(value.is_ascii());
            prop_assert_eq!(decoded(&value), text);
        }

        #[test]
        fn no_value_panics(value in any::<Vec<u8>>(), text in "[=?BQutf8-]*") {
            let _ = decoded(&value.into());
            let _ = decoded(&text.into());
        }
    }
}
