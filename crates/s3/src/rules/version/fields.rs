//! Encoding of the fields that rows of versions and uploads share.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};

use super::{Etag, SystemHeader};
use crate::rules::acl::{Acl, Grant, Grantee, Permission};
use crate::rules::checksum::{Algorithm, Checksum, ChecksumKind};
use crate::rules::tags::Tag;

type DecodeResult<T> = Result<T, DecodeError>;

/// Permissions in the order of their stored codes, from 0.
const PERMISSIONS: [Permission; 5] =
    [Permission::FullControl, Permission::Read, Permission::Write, Permission::ReadAcp, Permission::WriteAcp];

pub(in crate::rules) fn put_etag(out: &mut FieldEncoder, etag: Etag) {
    out.raw(&etag.md5);
    out.varint(etag.parts.unwrap_or(0).into());
}

pub(in crate::rules) fn etag(rest: &mut FieldDecoder) -> DecodeResult<Etag> {
    Ok(Etag { md5: rest.array()?, parts: parts(rest)? })
}

pub(in crate::rules) fn put_checksum(out: &mut FieldEncoder, checksum: &Checksum) {
    out.u8(checksum.algorithm.code());
    out.bytes(&checksum.digest);
    out.varint(checksum.parts.unwrap_or(0).into());
}

pub(in crate::rules) fn checksum(rest: &mut FieldDecoder) -> DecodeResult<Checksum> {
    Ok(Checksum { algorithm: algorithm(rest)?, digest: rest.bytes()?, parts: parts(rest)? })
}

pub(in crate::rules) fn put_algorithm(out: &mut FieldEncoder, (algorithm, kind): (Algorithm, ChecksumKind)) {
    out.u8(algorithm.code());
    out.u8(kind.code());
}

pub(in crate::rules) fn algorithm_and_kind(rest: &mut FieldDecoder) -> DecodeResult<(Algorithm, ChecksumKind)> {
    let algorithm = algorithm(rest)?;
    let kind = ChecksumKind::from_code(rest.u8()?).ok_or(DecodeError::Invalid("checksum kind"))?;
    Ok((algorithm, kind))
}

pub(in crate::rules) fn put_headers(out: &mut FieldEncoder, headers: &[(SystemHeader, Bytes)]) {
    out.list(headers, |out, (name, value)| {
        out.u8(name.code());
        out.bytes(value);
    });
}

pub(in crate::rules) fn headers(rest: &mut FieldDecoder) -> DecodeResult<Vec<(SystemHeader, Bytes)>> {
    rest.list(|rest| {
        let name = SystemHeader::from_code(rest.u8()?).ok_or(DecodeError::Invalid("header"))?;
        Ok((name, rest.bytes()?))
    })
}

pub(in crate::rules) fn put_meta(out: &mut FieldEncoder, meta: &[(String, Bytes)]) {
    out.list(meta, |out, (name, value)| {
        out.text(name);
        out.bytes(value);
    });
}

pub(in crate::rules) fn meta(rest: &mut FieldDecoder) -> DecodeResult<Vec<(String, Bytes)>> {
    rest.list(|rest| Ok((rest.text()?, rest.bytes()?)))
}

pub(in crate::rules) fn put_tags(out: &mut FieldEncoder, tags: &[Tag]) {
    out.list(tags, |out, tag| {
        out.text(&tag.key);
        out.text(&tag.value);
    });
}

pub(in crate::rules) fn tags(rest: &mut FieldDecoder) -> DecodeResult<Vec<Tag>> {
    rest.list(|rest| Ok(Tag { key: rest.text()?, value: rest.text()? }))
}

pub(in crate::rules) fn put_acl(out: &mut FieldEncoder, acl: &Acl) {
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

pub(in crate::rules) fn acl(rest: &mut FieldDecoder) -> DecodeResult<Acl> {
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
