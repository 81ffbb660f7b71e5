//! Entity tags.

use md5::{Digest, Md5};

use crate::rules::checksum::part_count;

/// The entity tag of an S3 object: the MD5 of its bytes, or the MD5 of the MD5s of its parts with the number of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Etag {
    /// The digest.
    pub md5: [u8; 16],
    /// The number of parts of an object made by an upload, at least one.
    pub parts: Option<u32>,
}

impl Etag {
    /// The tag of an object whose bytes have this MD5.
    #[must_use]
    pub fn of_md5(md5: [u8; 16]) -> Self {
        Self { md5, parts: None }
    }

    /// The tag of an object made of parts with these MD5s, in their order. There is at least one part.
    #[must_use]
    pub fn of_parts(md5s: &[[u8; 16]]) -> Self {
        Self { md5: Md5::digest(md5s.as_flattened()).into(), parts: u32::try_from(md5s.len()).ok() }
    }

    /// Reads a tag as clients write it: quoted, unquoted, or with quotes escaped for XML. `None` for weak tags, which S3 does
    /// not have.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = unquote(text, "\"").or_else(|| unquote(text, "&quot;")).unwrap_or(text);
        let (digits, parts) = match bare.split_once('-') {
            Some((digits, count)) => (digits, Some(part_count(count)?)),
            None => (bare, None),
        };
        let mut md5 = [0; 16];
        hex::decode_to_slice(digits, &mut md5).ok()?;
        Some(Self { md5, parts })
    }
}

/// Without quotes: 32 hexadecimal digits, followed by `-` and the number of parts of an object made by an upload.
impl std::fmt::Display for Etag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.md5))?;
        self.parts.map_or(Ok(()), |parts| write!(f, "-{parts}"))
    }
}

fn unquote<'a>(text: &'a str, quote: &str) -> Option<&'a str> {
    text.strip_prefix(quote)?.strip_suffix(quote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tags_parse_from_every_form(md5: [u8; 16], parts in proptest::option::of(1..=10_000_u32)) {
            let etag = Etag { md5, parts };
            for text in [format!("{etag}"), format!("\"{etag}\""), format!("&quot;{etag}&quot;"), format!(" \"{etag}\"\n")] {
                prop_assert_eq!(Etag::parse(&text), Some(etag));
            }
            prop_assert_eq!(Etag::parse(&etag.to_string().to_uppercase()), Some(etag));
            prop_assert_eq!(Etag::parse(&format!("W/\"{etag}\"")), None);
            prop_assert_eq!(Etag::parse(&format!("\"{etag}")), None);
        }

        #[test]
        fn random_text_is_a_tag_or_none(text: String) {
            let _ = Etag::parse(&text);
        }
    }

    #[test]
    fn malformed_tags_are_refused() {
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let foreign =
            ["", "*", "\"", "\"\"", "-", "x", &md5[1..], "+41d8cd98f00b204e9800998ecf8427e", &format!("{md5}-")];
        for text in foreign {
            assert_eq!(Etag::parse(text), None, "{text}");
        }
        for count in ["0", "+1", "01", "-1", "4294967296", "1-1"] {
            assert_eq!(Etag::parse(&format!("{md5}-{count}")), None, "{count}");
        }
    }

    #[test]
    fn the_tag_of_parts_is_the_md5_of_their_md5s() {
        let md5 = |bytes: &[u8]| -> [u8; 16] { Md5::digest(bytes).into() };
        assert_eq!(Etag::of_md5(md5(b"")).to_string(), "d41d8cd98f00b204e9800998ecf8427e");
        let one = Etag::of_parts(&[md5(b"")]);
        assert_eq!(one.to_string(), "59adb24ef3cdbe0297f05b395827453f-1");
        let two = Etag::of_parts(&[md5(b"tea"), md5(b"milk")]);
        assert_eq!(two.md5, md5(&[md5(b"tea"), md5(b"milk")].concat()));
        assert_eq!(two.parts, Some(2));
    }
}
