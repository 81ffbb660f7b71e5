//! Encoding of the fields that rows of versions and uploads share.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};
use md5::{Digest, Md5};

use crate::acl::{Acl, Grant, Grantee, Permission};
use crate::checksum::{Algorithm, Checksum, ChecksumKind, part_count};
use crate::tags::Tag;

type DecodeResult<T> = Result<T, DecodeError>;

/// Permissions in the order of their stored codes, from 0.
const PERMISSIONS: [Permission; 5] =
    [Permission::FullControl, Permission::Read, Permission::Write, Permission::ReadAcp, Permission::WriteAcp];

pub(crate) fn put_etag(out: &mut FieldEncoder, etag: Etag) {
    out.raw(&etag.md5);
    out.varint(etag.parts.unwrap_or(0).into());
}

pub(crate) fn etag(rest: &mut FieldDecoder) -> DecodeResult<Etag> {
    Ok(Etag { md5: rest.array()?, parts: parts(rest)? })
}

pub(crate) fn put_checksum(out: &mut FieldEncoder, checksum: &Checksum) {
    out.u8(checksum.algorithm.code());
    out.bytes(&checksum.digest);
    out.varint(checksum.parts.unwrap_or(0).into());
}

pub(crate) fn checksum(rest: &mut FieldDecoder) -> DecodeResult<Checksum> {
    Ok(Checksum { algorithm: algorithm(rest)?, digest: rest.bytes()?, parts: parts(rest)? })
}

pub(crate) fn put_algorithm(out: &mut FieldEncoder, algorithm: Algorithm, kind: ChecksumKind) {
    out.u8(algorithm.code());
    out.u8(kind.code());
}

pub(crate) fn algorithm_and_kind(rest: &mut FieldDecoder) -> DecodeResult<(Algorithm, ChecksumKind)> {
    let algorithm = algorithm(rest)?;
    let kind = ChecksumKind::from_code(rest.u8()?).ok_or(DecodeError::Invalid("checksum kind"))?;
    Ok((algorithm, kind))
}

pub(crate) fn put_headers(out: &mut FieldEncoder, headers: &[(SystemHeader, Bytes)]) {
    out.list(headers, |out, (name, value)| {
        out.u8(name.code());
        out.bytes(value);
    });
}

pub(crate) fn headers(rest: &mut FieldDecoder) -> DecodeResult<Vec<(SystemHeader, Bytes)>> {
    rest.list(|rest| {
        let name = SystemHeader::from_code(rest.u8()?).ok_or(DecodeError::Invalid("header"))?;
        Ok((name, rest.bytes()?))
    })
}

pub(crate) fn put_meta(out: &mut FieldEncoder, meta: &[(String, Bytes)]) {
    out.list(meta, |out, (name, value)| {
        out.text(name);
        out.bytes(value);
    });
}

pub(crate) fn meta(rest: &mut FieldDecoder) -> DecodeResult<Vec<(String, Bytes)>> {
    rest.list(|rest| Ok((rest.text()?, rest.bytes()?)))
}

pub(crate) fn put_tags(out: &mut FieldEncoder, tags: &[Tag]) {
    out.list(tags, |out, tag| {
        out.text(&tag.key);
        out.text(&tag.value);
    });
}

pub(crate) fn tags(rest: &mut FieldDecoder) -> DecodeResult<Vec<Tag>> {
    rest.list(|rest| Ok(Tag { key: rest.text()?, value: rest.text()? }))
}

pub(crate) fn put_acl(out: &mut FieldEncoder, acl: &Acl) {
    out.list(&acl.grants, |out, grant| {
        match &grant.grantee {
            Grantee::User(id) => {
                out.u8(0);
                out.text(id);
            }
            Grantee::AllUsers => out.u8(1),
            Grantee::AuthenticatedUsers => out.u8(2),
            Grantee::LogDelivery => out.u8(3),
        }
        out.u8(grant.permission as u8);
    });
}

pub(crate) fn acl(rest: &mut FieldDecoder) -> DecodeResult<Acl> {
    let grants = rest.list(|rest| {
        let grantee = match rest.u8()? {
            0 => Grantee::User(rest.text()?),
            1 => Grantee::AllUsers,
            2 => Grantee::AuthenticatedUsers,
            3 => Grantee::LogDelivery,
            _ => return Err(DecodeError::Invalid("grantee")),
        };
        let permission = PERMISSIONS.get(usize::from(rest.u8()?)).ok_or(DecodeError::Invalid("permission"))?;
        Ok(Grant { grantee, permission: *permission })
    })?;
    Ok(Acl { grants })
}

fn algorithm(rest: &mut FieldDecoder) -> DecodeResult<Algorithm> {
    Algorithm::from_code(rest.u8()?).ok_or(DecodeError::Invalid("checksum algorithm"))
}

/// The number of parts; 0 stands for `None`.
fn parts(rest: &mut FieldDecoder) -> DecodeResult<Option<u32>> {
    let count = u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("parts"))?;
    Ok((count > 0).then_some(count))
}

coded! {
    /// A header that is stored with an object and returned with it.
    /// The name is that on the wire, in lower case.
    pub enum SystemHeader {
        /// `Content-Type`
        ContentType = 1, "content-type";
        /// `Cache-Control`
        CacheControl = 2, "cache-control";
        /// `Content-Disposition`
        ContentDisposition = 3, "content-disposition";
        /// `Content-Encoding`, without `aws-chunked`
        ContentEncoding = 4, "content-encoding";
        /// `Content-Language`
        ContentLanguage = 5, "content-language";
        /// `Expires`
        Expires = 6, "expires";
        /// `x-amz-website-redirect-location`
        WebsiteRedirect = 7, "x-amz-website-redirect-location";
        /// `x-amz-storage-class`, when it is not `STANDARD`
        StorageClass = 8, "x-amz-storage-class";
    }
}

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
    pub fn from_md5(md5: [u8; 16]) -> Self {
        Self { md5, parts: None }
    }

    /// The tag of an object made of parts with these MD5s, in their order. There is at least one part.
    #[must_use]
    pub fn from_parts(md5s: &[[u8; 16]]) -> Self {
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

    #[test]
    fn headers_are_found_by_codes_and_names() {
        for header in SystemHeader::ALL {
            assert_eq!(SystemHeader::from_code(header.code()), Some(header));
            assert_eq!(SystemHeader::from_name(&header.name().to_uppercase()), Some(header));
            assert_eq!(header.name(), header.name().to_lowercase());
        }
        assert_eq!(SystemHeader::from_code(0), None);
        assert_eq!(SystemHeader::from_code(9), None);
        assert_eq!(SystemHeader::from_name("etag"), None);
    }
}

#[cfg(test)]
mod etag_tests {
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
        assert_eq!(Etag::from_md5(md5(b"")).to_string(), "d41d8cd98f00b204e9800998ecf8427e");
        let tag = Etag::from_parts(&[md5(b"")]);
        assert_eq!(tag.to_string(), "59adb24ef3cdbe0297f05b395827453f-1");
        let two = Etag::from_parts(&[md5(b"tea"), md5(b"milk")]);
        assert_eq!(two.md5, md5(&[md5(b"tea"), md5(b"milk")].concat()));
        assert_eq!(two.parts, Some(2));
    }
}
