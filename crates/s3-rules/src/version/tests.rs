use larder_rows::ActorId;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::acl::{Grant, Grantee, Permission};
use crate::checksum::{Algorithm, ChecksumKind};
use crate::encryption::tests::encryption;
use crate::object_lock::tests::object_lock;
use crate::object_lock::{Retention, RetentionMode};
use larder_encryption::{MasterKeyId, WRAPPED_KEY_BYTES};

pub(crate) fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

pub(crate) fn blob() -> impl Strategy<Value = BlobId> {
    any::<[u8; 24]>().prop_map(BlobId)
}

pub(crate) fn version_id() -> impl Strategy<Value = VersionId> {
    any::<[u8; 16]>().prop_map(VersionId)
}

pub(crate) fn etag() -> impl Strategy<Value = Etag> {
    (any::<[u8; 16]>(), option::of(1..=10_000_u32)).prop_map(|(md5, parts)| Etag { md5, parts })
}

pub(crate) fn algorithm() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(Algorithm::ALL.to_vec())
}

pub(crate) fn kind() -> impl Strategy<Value = ChecksumKind> {
    proptest::sample::select(ChecksumKind::ALL.to_vec())
}

pub(crate) fn checksum() -> impl Strategy<Value = Checksum> {
    (algorithm(), vec(any::<u8>(), 64), option::of(1..=10_000_u32)).prop_map(|(algorithm, digest, parts)| Checksum {
        algorithm,
        digest: Bytes::copy_from_slice(&digest[..algorithm.digest_length()]),
        parts,
    })
}

pub(crate) fn headers() -> impl Strategy<Value = Vec<(SystemHeader, Bytes)>> {
    vec((proptest::sample::select(SystemHeader::ALL.to_vec()), bytes(20)), 0..4)
}

pub(crate) fn meta() -> impl Strategy<Value = Vec<(String, Bytes)>> {
    vec((any::<String>(), bytes(20)), 0..4)
}

pub(crate) fn tags() -> impl Strategy<Value = Vec<Tag>> {
    vec((any::<String>(), any::<String>()), 0..3)
        .prop_map(|tags| tags.into_iter().map(|(key, value)| Tag { key, value }).collect())
}

pub(crate) fn acl() -> impl Strategy<Value = Acl> {
    let grantee = prop_oneof![
        any::<String>().prop_map(Grantee::User),
        Just(Grantee::AllUsers),
        Just(Grantee::AuthenticatedUsers),
        Just(Grantee::LogDelivery),
    ];
    let permission = prop_oneof![
        Just(Permission::FullControl),
        Just(Permission::Read),
        Just(Permission::Write),
        Just(Permission::ReadAcp),
        Just(Permission::WriteAcp),
    ];
    vec((grantee, permission), 0..4).prop_map(|grants| Acl {
        grants: grants.into_iter().map(|(grantee, permission)| Grant { grantee, permission }).collect(),
    })
}

fn body() -> impl Strategy<Value = ObjectBody> {
    prop_oneof![
        bytes(200).prop_map(ObjectBody::Inline),
        (blob(), any::<u64>()).prop_map(|(id, length)| ObjectBody::Blob { id, length }),
        (version_id(), any::<u32>(), any::<u64>()).prop_map(|(manifest, count, length)| ObjectBody::Parts {
            manifest,
            count,
            length
        }),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    let upload = any::<[u8; 16]>().prop_map(UploadId);
    let front = (body(), etag(), headers(), meta());
    let back = (option::of(upload), option::of(encryption()), object_lock());
    (front, tags(), option::of(acl()), option::of(checksum()), back).prop_map(
        |((body, etag, headers, meta), tags, acl, checksum, (upload, encryption, lock))| Object {
            body,
            etag,
            headers,
            meta,
            tags,
            acl,
            checksum,
            upload,
            encryption,
            lock,
        },
    )
}

pub(crate) fn version() -> impl Strategy<Value = Version> {
    (version_id(), any::<bool>(), any::<u64>(), any::<String>(), option::of(object())).prop_map(
        |(id, null, modified, owner, object)| Version { id, null, modified: Timestamp(modified), owner, object },
    )
}

/// A small object with one item in every list.
pub(crate) fn golden() -> Version {
    Version {
        id: VersionId([0x11; 16]),
        null: true,
        modified: Timestamp(7),
        owner: "ann".into(),
        object: Some(Object {
            body: ObjectBody::Inline(Bytes::from_static(b"tea")),
            etag: Etag { md5: [0x22; 16], parts: None },
            headers: vec![(SystemHeader::ContentType, Bytes::from_static(b"a/b"))],
            meta: vec![("m".into(), Bytes::from_static(b"n"))],
            tags: vec![Tag { key: "k".into(), value: "v".into() }],
            acl: Some(Acl { grants: vec![Grant { grantee: Grantee::AllUsers, permission: Permission::Read }] }),
            checksum: Some(Checksum::full(Algorithm::Crc32, Bytes::from_static(b"1234"))),
            upload: None,
            encryption: None,
            lock: ObjectLock::default(),
        }),
    }
}

/// The stored form of [`golden`] without the version byte.
pub(crate) const GOLDEN: &[u8] = b"\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x03\
    \x00\x00\x00\x00\x00\x00\x00\x07\x03ann\
    \x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x00\
    \x01\x01\x03a/b\x01\x01m\x01n\x01\x01k\x01v\x01\x01\x01\x01\x01\x01\x041234\x00\x00\x00tea";

/// Flips one bit of a row and decodes it, and a cut row too: that may fail, but not panic.
pub(crate) fn damage<T, E>(row: &Bytes, at: usize, bit: u8, decode: impl Fn(Bytes) -> Result<T, E>) {
    let mut bytes = row.to_vec();
    let at = at % bytes.len();
    bytes[at] ^= 1 << bit;
    let _ = decode(bytes.into());
    let _ = decode(row.slice(..at));
}

proptest! {
    #[test]
    fn versions_decode_to_themselves(version in version()) {
        prop_assert_eq!(Version::decode(version.encode()), Ok(version));
    }

    #[test]
    fn damaged_versions_fail_or_decode_without_panic(version in version(), at: usize, bit in 0..8_u8) {
        damage(&version.encode(), at, bit, Version::decode);
    }

    #[test]
    fn random_bytes_are_a_version_or_an_error(bytes: Vec<u8>) {
        let _ = Version::decode(bytes.clone().into());
        let _ = Version::decode([&[VERSION], &GOLDEN[..44], &bytes[..]].concat().into());
    }
}

/// The stored form, byte for byte: a change here is a change of format and needs a new version.
#[test]
fn the_golden_version_still_decodes() {
    let row = [&[1], GOLDEN].concat();
    assert_eq!(golden().encode(), row);
    assert_eq!(Version::decode(row.into()), Ok(golden()));
}

#[test]
fn the_golden_encrypted_version_still_decodes() {
    let mut version = golden();
    let encryption = ObjectEncryption::Server { master_key: MasterKeyId([5; 8]), wrapped_key: [6; WRAPPED_KEY_BYTES] };
    version.object = version.object.map(|object| Object { encryption: Some(encryption), ..object });
    // The flags, and what follows the owner's name.
    let (flags, object) = (16, 16 + 1 + 8 + 4);
    let row = [&[1], &GOLDEN[..flags], &[0x0b], &GOLDEN[flags + 1..object], &[1], &[5; 8], &[6; 60], &GOLDEN[object..]];
    let row = row.concat();
    assert_eq!(version.encode(), row);
    assert_eq!(Version::decode(row.clone().into()), Ok(version));
    let marker = [&row[..1 + flags], &[0x08], &row[2 + flags..]].concat();
    assert_eq!(Version::decode(marker.into()), Err(DecodeError::Invalid("version flags")));
}

#[test]
fn the_golden_locked_version_still_decodes() {
    let retention = Some(Retention { mode: RetentionMode::Compliance, until: Timestamp(258) });
    let lock = ObjectLock { retention, legal_hold: Some(true) };
    let mut version = golden();
    version.object = version.object.map(|object| Object { lock, ..object });
    let (front, back) = GOLDEN.split_at(29);
    let row = [&[1], &front[..16], &[7], &front[17..], &b"\x0e\0\0\0\0\0\0\x01\x02"[..], back].concat();
    assert_eq!(version.encode(), row);
    assert_eq!(Version::decode(row.into()), Ok(version));
}

#[test]
fn the_golden_bodies_still_decode() {
    let with = |body| {
        let mut version = golden();
        version.object = version.object.map(|object| Object { body, ..object });
        version
    };
    let front = [&[1], &GOLDEN[..GOLDEN.len() - 4]].concat();
    let blob = [&front[..], &[1], &[0x33; 24], &[0x80, 0x01]].concat();
    let parts = [&front[..], &[2], &[0x44; 16], &[2, 5]].concat();
    let bodies = [
        (ObjectBody::Blob { id: BlobId([0x33; 24]), length: 128 }, blob),
        (ObjectBody::Parts { manifest: VersionId([0x44; 16]), count: 2, length: 5 }, parts),
    ];
    for (body, row) in bodies {
        assert_eq!(with(body.clone()).encode(), row);
        assert_eq!(Version::decode(row.clone().into()), Ok(with(body)));
        assert_eq!(Version::decode([&row[..], &[0]].concat().into()), Err(DecodeError::Trailing));
    }
}

#[test]
fn an_inline_body_shares_the_memory_of_its_row() {
    let row = golden().encode();
    let Some(Object { body: ObjectBody::Inline(body), .. }) = Version::decode(row.clone()).unwrap().object else {
        panic!("the body is inline");
    };
    assert_eq!(body.as_ptr(), row[row.len() - 3..].as_ptr());
}

#[test]
fn rows_of_a_newer_build_are_errors() {
    let marker = Version { object: None, ..golden() };
    let row = marker.encode();
    assert_eq!(Version::decode(row.clone()), Ok(marker));
    let changed = |at: usize, byte: u8| {
        let mut row = row.to_vec();
        row[at] = byte;
        Version::decode(row.into())
    };
    assert_eq!(changed(0, 2), Err(DecodeError::UnknownVersion(2)));
    for flags in [4, 8] {
        assert_eq!(changed(17, flags), Err(DecodeError::Invalid("version flags")), "a marker has no lock");
    }
    assert_eq!(Version::decode([&row[..], &[0]].concat().into()), Err(DecodeError::Trailing));
    assert_eq!(Version::decode(Bytes::new()), Err(DecodeError::Truncated));
}

#[test]
fn newer_versions_sort_first() {
    let at = |stamp| Version { id: VersionId::new(stamp, ActorId(1)), ..golden() }.row_name();
    assert!(at(Timestamp(8)) < at(Timestamp(7)));
}
