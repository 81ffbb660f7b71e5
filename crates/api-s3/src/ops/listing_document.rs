//! Parts of documents that list: the encoding of keys (plain, or percent-encoded with `encoding-type=url`), and the display
//! names of canonical ids.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use hyper::HeaderMap;
use hyper::header::{AsHeaderName, HeaderName};
use larder_s3::Objects;
use larder_s3::get::VersionSpec;
use percent_encoding::percent_encode;

use crate::auth::{PATH, QUERY};
use crate::errors::S3Error;
use crate::target::S3Query;
use crate::xml::XmlWriter;

/// The encoding of keys in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EncodingType {
    /// Plain; characters outside XML become numeric references.
    #[default]
    Plain,
    /// Percent-encoded except for `/`.
    Url,
}

impl EncodingType {
    /// The requested encoding.
    ///
    /// # Errors
    /// 400 for another value than `url`.
    pub(crate) fn from_param(encoding_type: Option<&str>) -> Result<Self, S3Error> {
        match encoding_type {
            None | Some("") => Ok(Self::Plain),
            Some(url) if url.eq_ignore_ascii_case("url") => Ok(Self::Url),
            Some(other) => {
                Err(S3Error::argument("encoding-type", other, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    /// Encodes a key, prefix or delimiter.
    pub(crate) fn encode_key(self, key: &[u8]) -> Cow<'_, str> {
        match self {
            Self::Plain => String::from_utf8_lossy(key),
            Self::Url => percent_encode(key, PATH).into(),
        }
    }

    /// Writes the `EncodingType` element if it was requested.
    pub(crate) fn write(self, xml: &mut XmlWriter) {
        if self == Self::Url {
            xml.text("EncodingType", "url");
        }
    }
}

/// Percent-encodes a key in a path.
pub(crate) fn encoded_path(key: &[u8]) -> String {
    percent_encode(key, PATH).to_string()
}

/// Percent-encodes a single value.
pub(crate) fn encoded_value(value: &[u8]) -> String {
    percent_encode(value, QUERY).to_string()
}

/// Display names by canonical id, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames(pub(crate) HashMap<String, String>);

impl DisplayNames {
    /// Looks up the names of these ids.
    pub(crate) async fn load(objects: &Objects, ids: HashSet<&str>) -> Self {
        let mut names = HashMap::with_capacity(ids.len());
        for id in ids {
            names.insert(id.to_owned(), objects.users.display_name(id).await);
        }
        Self(names)
    }

    /// Writes a user as `ID` and `DisplayName` within this element.
    pub(crate) fn write(&self, xml: &mut XmlWriter, element: &str, id: &str) {
        xml.element(element, |xml| {
            xml.text("ID", id).text("DisplayName", self.0.get(id).map_or(id, String::as_str));
        });
    }
}

#[cfg(test)]
impl DisplayNames {
    /// Fixed names.
    pub(crate) fn fixed(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect())
    }
}

/// Greatest value of a numeric parameter.
const GREATEST: u64 = i32::MAX as u64;

/// Parses a number from 0; `default` if it is missing or empty.
///
/// # Errors
/// 400 `InvalidArgument` for text that is no number, negative, or above 2147483647.
pub(crate) fn number(name: &'static str, value: Option<&str>, default: u32) -> Result<u32, S3Error> {
    let Some(text) = value.filter(|text| !text.is_empty()) else { return Ok(default) };
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !is_digits(digits) {
        return Err(no_integer(name, text));
    }
    let number = digits.trim_start_matches('0');
    let number = if number.is_empty() { 0 } else { number.parse::<u64>().unwrap_or(u64::MAX) };
    if number > GREATEST {
        return Err(no_integer(name, text));
    }
    if text.starts_with('-') && number > 0 {
        let message = format!("Argument {name} must be an integer between 0 and {GREATEST}");
        return Err(S3Error::argument(name, text, message));
    }
    u32::try_from(number).map_err(|_| no_integer(name, text))
}

/// Parses a number of digits alone, without sign or white space.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    is_digits(text).then(|| text.parse().ok()).flatten()
}

/// Whether a text has digits and nothing else.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// Parses a page size; `most` is the default and the limit.
///
/// # Errors
/// As [`number`].
pub(crate) fn page(name: &'static str, value: Option<&str>, most: usize) -> Result<usize, S3Error> {
    let limit = number(name, value, u32::try_from(most).unwrap_or(u32::MAX))?;
    Ok(usize::try_from(limit).unwrap_or(most).min(most))
}

/// The requested version of an object.
pub(crate) fn version(query: &S3Query) -> VersionSpec {
    query.get("versionId").map_or(VersionSpec::Current, |id| VersionSpec::Id(id.to_owned()))
}

/// The value of a header as text; `None` for invalid UTF-8.
pub(crate) fn header(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok().map(str::trim)
}

/// The first header by name that fits: the order of a request's headers does not choose its answer.
pub(crate) fn first_header(headers: &HeaderMap, fits: impl Fn(&str) -> bool) -> Option<&str> {
    headers.keys().map(HeaderName::as_str).filter(|name| fits(name)).min()
}

fn no_integer(name: &'static str, value: &str) -> S3Error {
    S3Error::argument(name, value, format!("Provided {name} not an integer or within integer range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_slashes_and_values_do_not() {
        let key = "a/b c+d%é\u{1}~-_.*".as_bytes();
        assert_eq!(EncodingType::Url.encode_key(key), "a/b%20c%2Bd%25%C3%A9%01~-_.%2A");
        assert_eq!(EncodingType::Plain.encode_key(key), "a/b c+d%é\u{1}~-_.*");
        assert_eq!(encoded_value(b"a/b"), "a%2Fb");
    }

    #[test]
    fn only_url_is_a_valid_encoding_type() {
        assert_eq!(EncodingType::from_param(None).unwrap(), EncodingType::Plain);
        assert_eq!(EncodingType::from_param(Some("url")).unwrap(), EncodingType::Url);
        let error = EncodingType::from_param(Some("base64")).unwrap_err();
        assert_eq!(error.code, crate::errors::Code::InvalidArgument);
        assert_eq!(error.extras[0].1, "encoding-type");
    }
}

#[cfg(test)]
mod params_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_parsed_or_refused() {
        for (text, expected) in [
            (None, Ok(1000)),
            (Some(""), Ok(1000)),
            (Some("0"), Ok(0)),
            (Some("-0"), Ok(0)),
            (Some("007"), Ok(7)),
            (Some("+7"), Ok(7)),
            (Some("2147483647"), Ok(2_147_483_647)),
            (Some("-1"), Err("must be an integer between 0 and 2147483647")),
            (Some("2147483648"), Err("not an integer or within integer range")),
            (Some("-99999999999999999999"), Err("not an integer or within integer range")),
            (Some("99999999999999999999"), Err("not an integer or within integer range")),
            (Some("x"), Err("not an integer or within integer range")),
            (Some("-"), Err("not an integer or within integer range")),
            (Some("1.0"), Err("not an integer or within integer range")),
            (Some(" 1"), Err("not an integer or within integer range")),
        ] {
            match (number("max-parts", text, 1000), expected) {
                (Ok(number), Ok(expected)) => assert_eq!(number, expected, "{text:?}"),
                (Err(error), Err(words)) => {
                    assert_eq!(error.code.name(), "InvalidArgument");
                    assert!(error.message.contains(words), "{text:?}: {}", error.message);
                    let value = text.unwrap().to_owned();
                    assert_eq!(error.extras, [("ArgumentName", "max-parts".to_owned()), ("ArgumentValue", value)]);
                }
                (got, expected) => panic!("{text:?}: {got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn page_sizes_are_capped() {
        for (text, expected) in [(None, 1000), (Some("1001"), 1000), (Some("1000"), 1000), (Some("0"), 0)] {
            assert_eq!(page("max-keys", text, 1000).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_number_or_refused(text: String) {
            let _ = number("max-keys", Some(&text), 1);
        }
    }
}
