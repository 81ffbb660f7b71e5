//! Tags of buckets and objects.

use larder_rows::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX};
use serde::{Deserialize, Serialize};

/// The begin of keys that users cannot set.
const SYSTEM: &str = "aws:";
/// Signs of keys and values.
const SIGNS: &str = "+-=._:/@";

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
    /// This key is empty, longer than [`TAG_KEY_CHARS_MAX`], or has other characters than tags have.
    #[error("the key of a tag has 1 to {TAG_KEY_CHARS_MAX} letters, digits, spaces and + - = . _ : / @: {0}")]
    Key(String),
    /// The value of this tag is longer than [`TAG_VALUE_CHARS_MAX`], or has other characters than tags have.
    #[error("the value of the tag {} has up to {TAG_VALUE_CHARS_MAX} letters, digits, spaces and + - = . _ : / @", .0.key)]
    Value(Tag),
    /// The key begins with `aws:`, which is for the system; at most so many tags were allowed.
    #[error("the key of a tag begins with aws:")]
    SystemKey(usize),
    /// Two tags have this key.
    #[error("there are two tags with the key {0}")]
    Duplicate(String),
    /// The header is not URL-encoded UTF-8, has a tag twice, or a value that a comma or another `=` ends.
    #[error("the tags are not URL-encoded UTF-8 with different keys")]
    Encoding,
}

/// Checks tags: at most `max` of them, of allowed lengths and characters, with different keys.
///
/// # Errors
/// The first [`TagError`] found.
pub fn validate(tags: &[Tag], max: usize) -> Result<(), TagError> {
    if tags.len() > max {
        return Err(TagError::TooMany(max));
    }
    // There are at most 50 tags: comparing each with all others needs no set.
    for (at, Tag { key, value }) in tags.iter().enumerate() {
        if key.is_empty() || !is_of_tags(key, TAG_KEY_CHARS_MAX) {
            return Err(TagError::Key(key.clone()));
        }
        if !is_of_tags(value, TAG_VALUE_CHARS_MAX) {
            return Err(TagError::Value(tags[at].clone()));
        }
        if key.get(..SYSTEM.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(SYSTEM)) {
            return Err(TagError::SystemKey(max));
        }
        if tags[..at].iter().any(|tag| tag.key == *key) {
            return Err(TagError::Duplicate(key.clone()));
        }
    }
    Ok(())
}

/// Whether a text has no more characters than these, each one that tags have: letters, digits and spaces of any script, and a few signs.
fn is_of_tags(text: &str, max: usize) -> bool {
    let is_allowed = |character: char| match character.is_ascii() {
        true => character.is_ascii_alphanumeric() || character == ' ' || SIGNS.contains(character),
        false => !character.is_control(),
    };
    text.chars().nth(max).is_none() && text.chars().all(is_allowed)
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
        // `key=v,key2=v2` is meant as two tags, and would be one.
        if value.contains([',', '=']) {
            return Err(TagError::Encoding);
        }
        tags.push(Tag { key: decode(key)?, value: decode(value)? });
    }
    match validate(&tags, max) {
        Err(TagError::Duplicate(_)) => Err(TagError::Encoding),
        checked => checked.map(|()| tags),
    }
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
            read("a+b=c%2Bd%40&%C3%BC=x%3Dy&bare&e="),
            Ok(vec![tag("a b", "c+d@"), tag("\u{fc}", "x=y"), tag("bare", ""), tag("e", "")])
        );
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("&a=1&&"), Ok(vec![tag("a", "1")]));
    }

    #[test]
    fn bad_headers_are_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%ff", "%c3=1"] {
            assert_eq!(parse_header(text, 10), Err(TagError::Encoding), "{text}");
        }
        assert_eq!(parse_header("=v", 10), Err(TagError::Key(String::new())));
        for text in ["a=1&a=2", "a=1,b=2", "a=b=c"] {
            assert_eq!(parse_header(text, 10), Err(TagError::Encoding), "{text}");
        }
        assert_eq!(parse_header("a=%00", 10), Err(TagError::Value(tag("a", "\0"))));
        assert_eq!(parse_header("a=1%2C2", 10), Err(TagError::Value(tag("a", "1,2"))));
        assert_eq!(parse_header("a&b&c", 2), Err(TagError::TooMany(2)));
        assert_eq!(parse_header("a&b", 2).map(|tags| tags.len()), Ok(2));
    }

    #[test]
    fn characters_and_system_keys_are_refused_that_s3_refuses() {
        for sign in ",!#%*?;()`\t".chars() {
            let text = format!("a{sign}");
            assert_eq!(validate(&[tag(&text, "")], 1), Err(TagError::Key(text.clone())));
            assert_eq!(validate(&[tag("k", &text)], 1), Err(TagError::Value(tag("k", &text))));
        }
        for text in ["+-=._:/@ 9", "\u{fc}", "\u{0928}\u{093f}"] {
            assert_eq!(validate(&[tag(text, text)], 1), Ok(()), "{text}");
        }
        assert_eq!(validate(&[tag("AWS:x", "")], 10), Err(TagError::SystemKey(10)));
        assert_eq!(validate(&[tag("awsx", "aws:")], 10), Ok(()));
    }

    #[test]
    fn lengths_count_characters() {
        let longest = tag(&"\u{1f980}".repeat(TAG_KEY_CHARS_MAX), &"\u{fc}".repeat(TAG_VALUE_CHARS_MAX));
        assert_eq!(validate(std::slice::from_ref(&longest), 1), Ok(()));
        let key = tag(&format!("{}k", longest.key), "");
        assert!(matches!(validate(&[key], 1), Err(TagError::Key(_))));
        let value = tag("k", &format!("{}v", longest.value));
        assert!(matches!(validate(&[value], 1), Err(TagError::Value(_))));
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
        fn encoded_tags_decode_to_themselves(key in "[a-zA-Z0-9 +=._/@\u{e0}-\u{ff}-]{1,20}", value in "[a-z0-9 +=._:/@\u{e0}-\u{ff}-]{0,20}") {
            let encode = |text: &str| text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"));
            let text = format!("{}={}", encode(&key), encode(&value));
            prop_assert_eq!(parse_header(&text, 1), Ok(vec![tag(&key, &value)]));
        }
    }
}
