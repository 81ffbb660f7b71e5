//! Encoding of the fields that rows of versions and uploads share.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::limits::METADATA_BYTES_MAX;
use crate::objects::acl::{Acl, Grant, Grantee, Permission};
use crate::objects::checksum::{Algorithm, Checksum, ChecksumKind};
use crate::objects::tags::Tag;

use super::{Etag, SystemHeader};

type DecodeResult<T> = Result<T, DecodeError>;

/// Permissions in the order of their stored codes, from 0.
const PERMISSIONS: [Permission; 5] =
    [Permission::FullControl, Permission::Read, Permission::Write, Permission::ReadAcp, Permission::WriteAcp];

pub(in crate::objects) fn array<const N: usize>(rest: &mut FieldDecoder) -> DecodeResult<[u8; N]> {
    rest.raw(N)?.as_ref().try_into().map_err(|_| DecodeError::Truncated)
}

pub(in crate::objects) fn put_text(out: &mut FieldEncoder, text: &str) {
    out.bytes(text.as_bytes());
}

pub(in crate::objects) fn text(rest: &mut FieldDecoder) -> DecodeResult<String> {
    String::from_utf8(rest.bytes()?.into()).map_err(|_| DecodeError::Invalid("text"))
}

/// 0 for an absent value, 1 before a value.
pub(in crate::objects) fn put_optional<T>(
    out: &mut FieldEncoder,
    value: Option<T>,
    put: impl FnOnce(&mut FieldEncoder, T),
) {
    out.u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(in crate::objects) fn optional<T>(
    rest: &mut FieldDecoder,
    take: impl FnOnce(&mut FieldDecoder) -> DecodeResult<T>,
) -> DecodeResult<Option<T>> {
    match rest.u8()? {
        0 => Ok(None),
        1 => take(rest).map(Some),
        _ => Err(DecodeError::Invalid("presence")),
    }
}

pub(in crate::objects) fn put_list<T>(out: &mut FieldEncoder, items: &[T], put: impl Fn(&mut FieldEncoder, &T)) {
    out.varint(items.len() as u64);
    for item in items {
        put(out, item);
    }
}

/// Reads a list. The list grows with its items: a hostile count reserves no memory.
pub(in crate::objects) fn list<T>(
    rest: &mut FieldDecoder,
    take: impl Fn(&mut FieldDecoder) -> DecodeResult<T>,
) -> DecodeResult<Vec<T>> {
    let mut items = Vec::new();
    for _ in 0..rest.count(METADATA_BYTES_MAX)? {
        items.push(take(rest)?);
    }
    Ok(items)
}

pub(in crate::objects) fn put_etag(out: &mut FieldEncoder, etag: Etag) {
    out.raw(&etag.md5);
    out.varint(etag.parts.unwrap_or(0).into());
}

pub(in crate::objects) fn etag(rest: &mut FieldDecoder) -> DecodeResult<Etag> {
    Ok(Etag { md5: array(rest)?, parts: parts(rest)? })
}

pub(in crate::objects) fn put_checksum(out: &mut FieldEncoder, checksum: &Checksum) {
    out.u8(checksum.algorithm.code());
    out.bytes(&checksum.digest);
    out.varint(checksum.parts.unwrap_or(0).into());
}

pub(in crate::objects) fn checksum(rest: &mut FieldDecoder) -> DecodeResult<Checksum> {
    Ok(Checksum { algorithm: algorithm(rest)?, digest: rest.bytes()?, parts: parts(rest)? })
}

pub(in crate::objects) fn put_algorithm(out: &mut FieldEncoder, (algorithm, kind): (Algorithm, ChecksumKind)) {
    out.u8(algorithm.code());
    out.u8(kind.code());
}

pub(in crate::objects) fn algorithm_and_kind(rest: &mut FieldDecoder) -> DecodeResult<(Algorithm, ChecksumKind)> {
    let algorithm = algorithm(rest)?;
    let kind = ChecksumKind::from_code(rest.u8()?).ok_or(DecodeError::Invalid("checksum kind"))?;
    Ok((algorithm, kind))
}

pub(in crate::objects) fn put_headers(out: &mut FieldEncoder, headers: &[(SystemHeader, Bytes)]) {
    put_list(out, headers, |out, (name, value)| {
        out.u8(name.code());
        out.bytes(value);
    });
}

pub(in crate::objects) fn headers(rest: &mut FieldDecoder) -> DecodeResult<Vec<(SystemHeader, Bytes)>> {
    list(rest, |rest| {
        let name = SystemHeader::from_code(rest.u8()?).ok_or(DecodeError::Invalid("header"))?;
        Ok((name, rest.bytes()?))
    })
}

pub(in crate::objects) fn put_meta(out: &mut FieldEncoder, meta: &[(String, Bytes)]) {
    put_list(out, meta, |out, (name, value)| {
        put_text(out, name);
        out.bytes(value);
    });
}

pub(in crate::objects) fn meta(rest: &mut FieldDecoder) -> DecodeResult<Vec<(String, Bytes)>> {
    list(rest, |rest| Ok((text(rest)?, rest.bytes()?)))
}

pub(in crate::objects) fn put_tags(out: &mut FieldEncoder, tags: &[Tag]) {
    put_list(out, tags, |out, tag| {
        put_text(out, &tag.key);
        put_text(out, &tag.value);
    });
}

pub(in crate::objects) fn tags(rest: &mut FieldDecoder) -> DecodeResult<Vec<Tag>> {
    list(rest, |rest| Ok(Tag { key: text(rest)?, value: text(rest)? }))
}

pub(in crate::objects) fn put_acl(out: &mut FieldEncoder, acl: &Acl) {
    put_list(out, &acl.grants, |out, grant| {
        match &grant.grantee {
            Grantee::User(id) => {
                out.u8(0);
                put_text(out, id);
            }
            Grantee::AllUsers => out.u8(1),
            Grantee::AuthenticatedUsers => out.u8(2),
            Grantee::LogDelivery => out.u8(3),
        }
        out.u8(match grant.permission {
            Permission::FullControl => 0,
            Permission::Read => 1,
            Permission::Write => 2,
            Permission::ReadAcp => 3,
            Permission::WriteAcp => 4,
        });
    });
}

pub(in crate::objects) fn acl(rest: &mut FieldDecoder) -> DecodeResult<Acl> {
    let grants = list(rest, |rest| {
        let grantee = match rest.u8()? {
            0 => Grantee::User(text(rest)?),
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
