//! How keys are spelled in documents: as they are, or percent-encoded when the client asks for it with
//! `encoding-type=url`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::errors::Fault;
use crate::xml::Xml;

/// What is left bare in a key that is percent-encoded.
const BARE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What is left bare in a single value, as that of a parameter.
const BARE_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Spelling {
    /// As it is; what XML has no place for becomes a numeric reference.
    #[default]
    Plain,
    /// Percent-encoded, `/` left bare.
    Url,
}

impl Spelling {
    /// The one asked for.
    ///
    /// # Errors
    /// 400 for another value than `url`.
    pub(crate) fn of(encoding_type: Option<&str>) -> Result<Self, Fault> {
        match encoding_type {
            None | Some("") => Ok(Self::Plain),
            Some(url) if url.eq_ignore_ascii_case("url") => Ok(Self::Url),
            Some(other) => Err(Fault::argument("encoding-type", other, "Invalid Encoding Method specified in Request")),
        }
    }

    /// This key, prefix or delimiter.
    pub(crate) fn of_key(self, key: &[u8]) -> Cow<'_, str> {
        match self {
            Self::Plain => String::from_utf8_lossy(key),
            Self::Url => percent_encode(key, BARE).into(),
        }
    }

    /// Says in the document what was asked for.
    pub(crate) fn say(self, xml: &mut Xml) {
        if self == Self::Url {
            xml.text("EncodingType", "url");
        }
    }
}

/// Percent-encodes a key as part of a path.
pub(crate) fn path_of(key: &[u8]) -> String {
    percent_encode(key, BARE).to_string()
}

/// Percent-encodes one value.
pub(crate) fn value_of(value: &[u8]) -> String {
    percent_encode(value, BARE_VALUE).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_bare() {
        let key = "a/b c+d%é\u{1}~-_.*".as_bytes();
        assert_eq!(Spelling::Url.of_key(key), "a/b%20c%2Bd%25%C3%A9%01~-_.%2A");
        assert_eq!(Spelling::Plain.of_key(key), "a/b c+d%é\u{1}~-_.*");
        assert_eq!(value_of(b"a/b"), "a%2Fb");
    }

    #[test]
    fn only_url_can_be_asked_for() {
        assert_eq!(Spelling::of(None).unwrap(), Spelling::Plain);
        assert_eq!(Spelling::of(Some("url")).unwrap(), Spelling::Url);
        let fault = Spelling::of(Some("base64")).unwrap_err();
        assert_eq!(fault.code, crate::errors::Code::InvalidArgument);
        assert_eq!(fault.extras[0].1, "encoding-type");
    }
}
