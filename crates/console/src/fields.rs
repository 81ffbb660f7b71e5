//! The fields of a query or of a form: names, and values of arbitrary bytes.

use bytes::Bytes;
use percent_encoding::percent_decode;

/// Most fields that are read; no page has as many.
const FIELDS_MAX: usize = 32;

/// Decoded fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConsoleFields(Vec<(Bytes, Bytes)>);

impl ConsoleFields {
    /// The fields of `application/x-www-form-urlencoded` bytes: `%XX` is a byte, `+` a space.
    pub(crate) fn parse(encoded: &[u8]) -> Self {
        let parts = encoded.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).take(FIELDS_MAX);
        let field = |part: &[u8]| {
            let at = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
            (decoded(&part[..at]), decoded(part.get(at + 1..).unwrap_or_default()))
        };
        Self(parts.map(field).collect())
    }

    /// The value of a field; empty without it.
    pub(crate) fn bytes(&self, name: &str) -> Bytes {
        self.given(name).unwrap_or_default()
    }

    /// The value of a field that is there and not empty.
    pub(crate) fn given(&self, name: &str) -> Option<Bytes> {
        let found = self.0.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    }

    /// The value of a field as text; bytes that are no UTF-8 become replacement characters.
    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.bytes(name)).into_owned()
    }
}

fn decoded(part: &[u8]) -> Bytes {
    let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::href::Href;

    #[test]
    fn fields_are_bytes() {
        let fields = ConsoleFields::parse(b"a=1%00%ff&b=x+y%2B&&c&d=e=f&a=2");
        assert_eq!(fields.bytes("a"), &b"1\0\xff"[..]);
        assert_eq!(fields.text("b"), "x y+");
        assert_eq!((fields.given("c"), fields.bytes("d"), fields.given("e")), (None, "e=f".into(), None));
    }

    #[test]
    fn every_name_survives_a_link() {
        let all: Vec<u8> = (0..=255).collect();
        for name in [&all[..], b".", b"..", b"/", b"a b+c", b"&key=1#", "\u{202e}\u{1f375}".as_bytes()] {
            let link = Href::to("/object").with("key", name).with("bucket", b"b").text();
            let (_, query) = link.split_once('?').unwrap();
            let fields = ConsoleFields::parse(query.as_bytes());
            assert_eq!((fields.bytes("key"), fields.bytes("bucket")), (Bytes::copy_from_slice(name), "b".into()));
        }
    }
}
