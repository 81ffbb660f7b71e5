//! Parts of documents that list: the encoding of keys (plain, or percent-encoded with `encoding-type=url`), and the display
//! names of canonical ids.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use larder_s3::Objects;
use percent_encoding::percent_encode;

use crate::auth::{PATH, QUERY};
use crate::errors::S3Error;
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
    pub(crate) fn of_key(self, key: &[u8]) -> Cow<'_, str> {
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
pub(crate) fn path_of(key: &[u8]) -> String {
    percent_encode(key, PATH).to_string()
}

/// Percent-encodes a single value.
pub(crate) fn value_of(value: &[u8]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_slashes_and_values_do_not() {
        let key = "a/b c+d%é\u{1}~-_.*".as_bytes();
        assert_eq!(EncodingType::Url.of_key(key), "a/b%20c%2Bd%25%C3%A9%01~-_.%2A");
        assert_eq!(EncodingType::Plain.of_key(key), "a/b c+d%é\u{1}~-_.*");
        assert_eq!(value_of(b"a/b"), "a%2Fb");
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
