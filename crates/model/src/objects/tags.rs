//! Tags of buckets and objects.

use serde::{Deserialize, Serialize};

use crate::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX};

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Its key: 1 to 128 characters.
    pub key: String,
    /// Its value: up to 256 characters.
    pub value: String,
}

/// Why tags are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// There are more than this many tags.
    #[error("there may not be more than {0} tags")]
    TooMany(usize),
    /// A key is empty or longer than [`TAG_KEY_CHARS_MAX`].
    #[error("the key of a tag has 1 to {TAG_KEY_CHARS_MAX} characters")]
    KeyLength,
    /// The value of this key is longer than [`TAG_VALUE_CHARS_MAX`].
    #[error("the value of the tag {0} has more than {TAG_VALUE_CHARS_MAX} characters")]
    ValueLength(String),
    /// Two tags have this key.
    #[error("there are two tags with the key {0}")]
    Duplicate(String),
    /// A key or a value has control characters.
    #[error("a tag has control characters")]
    Character,
    /// The header is not URL-encoded UTF-8.
    #[error("the tags are not URL-encoded UTF-8")]
    Encoding,
}

/// Checks tags: at most `max` of them, of allowed lengths, with different keys and without control characters.
///
/// # Errors
/// The first [`TagError`] found.
pub fn validate(tags: &[Tag], max: usize) -> Result<(), TagError> {
    if tags.len() > max {
        return Err(TagError::TooMany(max));
    }
    // There are at most 50 tags: comparing each with all others needs no set.
    for (at, Tag { key, value }) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().nth(TAG_KEY_CHARS_MAX).is_some() {
            return Err(TagError::KeyLength);
        }
        if value.chars().nth(TAG_VALUE_CHARS_MAX).is_some() {
            return Err(TagError::ValueLength(key.clone()));
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            return Err(TagError::Character);
        }
        if tags[..at].iter().any(|tag| tag.key == *key) {
            return Err(TagError::Duplicate(key.clone()));
        }
    }
    Ok(())
}

/// Reads and checks the tags of a header: `key=value&key2=value2`, URL-encoded as in HTML forms.
///
/// # Errors
/// The first [`TagError`] found.
pub fn parse_header(text: &str, max: usize) -> Result<Vec<Tag>, TagError> {
    let decode = |text: &str| percent_decode(&text.replace('+', " ")).ok_or(TagError::Encoding);
    let mut tags = Vec::new();
    for pair in text.trim().split('&').filter(|pair| !pair.is_empty()) {
        // Bound: the list is refused before the rest is decoded.
        if tags.len() == max {
            return Err(TagError::TooMany(max));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push(Tag { key: decode(key)?, value: decode(value)? });
    }
    validate(&tags, max)?;
    Ok(tags)
}

/// Decodes percent escapes once; `None` for an invalid escape or invalid UTF-8.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' { decode_escape(rest.next(), rest.next())? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

fn decode_escape(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(key: &str, value: &str) -> Tag {
        Tag { key: key.into(), value: value.into() }
    }

    #[test]
    fn headers_are_decoded_as_html_forms() {
        let read = |text| parse_header(text, 10);
        assert_eq!(read("k=v&k2=v2"), Ok(vec![tag("k", "v"), tag("k2", "v2")]));
        assert_eq!(
            read("a+b=c%2Bd%26&%C3%BC=x=y&bare&e="),
            Ok(vec![tag("a b", "c+d&"), tag("\u{fc}", "x=y"), tag("bare", ""), tag("e", "")])
        );
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("&a=1&&"), Ok(vec![tag("a", "1")]));
    }

    #[test]
    fn bad_headers_are_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%ff", "%c3=1"] {
            assert_eq!(parse_header(text, 10), Err(TagError::Encoding), "{text}");
        }
        assert_eq!(parse_header("=v", 10), Err(TagError::KeyLength));
        assert_eq!(parse_header("a=1&a=2", 10), Err(TagError::Duplicate("a".into())));
        assert_eq!(parse_header("a=%00", 10), Err(TagError::Character));
        assert_eq!(parse_header("a&b&c", 2), Err(TagError::TooMany(2)));
        assert_eq!(parse_header("a&b", 2).map(|tags| tags.len()), Ok(2));
    }

    #[test]
    fn lengths_count_characters() {
        let longest = tag(&"\u{1f980}".repeat(TAG_KEY_CHARS_MAX), &"\u{fc}".repeat(TAG_VALUE_CHARS_MAX));
        assert_eq!(validate(std::slice::from_ref(&longest), 1), Ok(()));
        let key = tag(&format!("{}k", longest.key), "");
        assert_eq!(validate(&[key], 1), Err(TagError::KeyLength));
        let value = tag("k", &format!("{}v", longest.value));
        assert_eq!(validate(&[value], 1), Err(TagError::ValueLength("k".into())));
        assert_eq!(validate(&[tag("a", ""), tag("b", "")], 1), Err(TagError::TooMany(1)));
    }

    proptest! {
        #[test]
        fn random_text_is_tags_or_an_error(text: String) {
            if let Ok(tags) = parse_header(&text, 10) {
                prop_assert_eq!(validate(&tags, 10), Ok(()));
            }
        }

        #[test]
        fn encoded_tags_decode_to_themselves(key in "\\PC{1,20}", value in "\\PC{0,20}") {
            let encode = |text: &str| text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"));
            let text = format!("{}={}", encode(&key), encode(&value));
            prop_assert_eq!(parse_header(&text, 1), Ok(vec![tag(&key, &value)]));
        }
    }
}
