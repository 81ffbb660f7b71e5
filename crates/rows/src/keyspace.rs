//! The stored schema: every table, and how an address becomes a partition.
//!
//! ```text
//! table              partition                       row
//! objects            type, bucket, key               slot, or SHA-1 of the content (write_once)
//! consistent         type, bucket, key               the head alone
//! keys   ($key)      type, bucket, epoch, shard      key, slot (`rows/epochs.rs`)
//! buckets ($bucket)  type                            bucket
//! catalogue          "catalogue"                     kind, type[, bucket]; the head is its version
//! members            "members"                       actor
//! marks              "marks"                         node name
//! heads (S3)         bucket id, key                  the head; noncurrent versions, newest first
//! entries            bucket id, shard                key: the head's derived row
//! uploads            upload id                       the head alone
//! upload entries     bucket id                       key, upload id: the head's derived row
//! parts              upload id                       part number
//! manifests          version id                      its owner; offset of the first byte of 256 parts
//! users              "users"                         user, access key, e-mail; the head orders changes
//! gc marks           blob id                         a sweeper's mark
//! usage              access key id                   hour, node, operation
//! datatypes          type, bucket, key, shard 0      clocks, markers, parts of the value (`datatypes/row_name.rs`)
//! index              type, bucket, field, epoch, shard   term, key, slot (`index/row.rs`)
//! outbox             actor                           number of the place
//! moves              0, or type, bucket, shard      name of a row about the move, or a moved key
//! data keys          "data_keys"                    id of the key
//! ```
//! Plain and guarded tables never share rows. Numbers and layouts are part of the format, see `docs/format.md`.

use bytes::Bytes;

use crate::ActorId;
use crate::address::{Address, BucketAddress};
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded, varint_len};
use crate::content::BlobId;
use crate::ids::{BucketId, UploadId, VersionId};
use crate::limits::{KEY_VIEW_SHARDS, MOVED_SHARDS};

/// How an engine may keep a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Few rows, always read whole: the engine may keep them in one entry.
    Packed,
    /// Any number of rows, read in ranges: one entry per row.
    Wide,
}

coded! {
    /// A table. The number is its byte in every stored key.
    /// The name is in logs, metrics and statements; it is part of the format.
    pub enum Table {
        /// Key-value objects.
        Objects = 1, "objects";
        /// Key-value objects of `consistent` types.
        Consistent = 2, "consistent";
        /// The `$key` view: keys of a bucket.
        Keys = 3, "keys";
        /// The `$bucket` view: buckets of a type.
        Buckets = 4, "buckets";
        /// Bucket types, properties set on buckets, S3 buckets.
        Catalogue = 5, "catalogue";
        /// Heartbeats of running gateways.
        Members = 6, "members";
        /// High-water marks of clocks.
        Marks = 7, "marks";
        /// Heads and versions of S3 objects.
        Heads = 8, "heads";
        /// Listing entries of S3 objects.
        Entries = 9, "entries";
        /// Multipart uploads.
        Uploads = 10, "uploads";
        /// Listing entries of multipart uploads.
        UploadEntries = 11, "upload_entries";
        /// Parts of multipart uploads.
        Parts = 12, "parts";
        /// The parts of objects made by multipart uploads.
        Manifests = 13, "manifests";
        /// Users of the S3 interface.
        Users = 14, "users";
        /// Marks of blobs that a sweeper is about to remove.
        GcMarks = 15, "doomed";
        /// Requests and bytes of S3 users, by the hour.
        Usage = 16, "usage";
        /// Counters, sets, maps and HyperLogLogs.
        DataTypes = 17, "datatypes";
        /// Secondary indexes: terms of objects.
        Index = 18, "index";
        /// Notices that webhooks have not received yet.
        Outbox = 19, "outbox";
        /// A move from another store, and the addresses that it brought.
        Moves = 20, "moves";
        /// The keys that seal all other rows, wrapped by master keys.
        DataKeys = 21, "data_keys";
    }
}

impl Table {
    /// How an engine may keep its partitions.
    #[must_use]
    #[inline]
    pub fn layout(self) -> Layout {
        match self {
            Self::Objects | Self::Consistent | Self::Marks | Self::Uploads | Self::GcMarks => Layout::Packed,
            Self::Keys | Self::Buckets | Self::Catalogue | Self::Members => Layout::Wide,
            Self::Heads | Self::Entries | Self::UploadEntries | Self::Parts | Self::Manifests => Layout::Wide,
            Self::Users | Self::Usage | Self::DataTypes | Self::Index | Self::Outbox | Self::Moves => Layout::Wide,
            Self::DataKeys => Layout::Wide,
        }
    }

    /// Whether its partitions have a head and change by `apply_if` alone.
    #[must_use]
    #[inline]
    pub fn is_guarded(self) -> bool {
        matches!(self, Self::Consistent | Self::Catalogue | Self::Heads | Self::Uploads | Self::Users)
    }
}

/// One partition of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// The table.
    pub table: Table,
    /// The number of stored replicas: the n_val at the creation of its bucket type. It never changes. Cassandra keeps each
    /// number in a keyspace of its own; an engine on one machine ignores it.
    pub copies: u8,
    /// Its key inside the table.
    pub key: Bytes,
}

impl Partition {
    /// The number of copies of partitions that belong to no bucket type.
    pub const DEFAULT_COPIES: u8 = 3;

    /// A partition with [`Self::DEFAULT_COPIES`] copies.
    #[must_use]
    #[inline]
    pub fn new(table: Table, key: impl Into<Bytes>) -> Self {
        Self { table, copies: Self::DEFAULT_COPIES, key: key.into() }
    }

    /// The rows of a key-value object. `consistent` types have their own table.
    #[must_use]
    #[inline]
    pub fn object(address: &Address, consistent: bool, copies: u8) -> Self {
        let mut key = bucket_prefix(&address.bucket, address.key.len());
        key.raw(&address.key);
        Self { table: if consistent { Table::Consistent } else { Table::Objects }, copies, key: key.finish() }
    }

    /// The rows of a data type.
    #[must_use]
    #[inline]
    pub fn datatype(address: &Address, copies: u8) -> Self {
        let mut key = bucket_prefix(&address.bucket, address.key.len() + 1);
        key.raw(&address.key);
        // The only shard yet: a larger value may be spread over several.
        key.u8(0);
        Self { table: Table::DataTypes, copies, key: key.finish() }
    }

    /// One shard of the `$key` view of a bucket.
    #[must_use]
    #[inline]
    pub fn keys(bucket: &BucketAddress, epoch: u8, shard: u8, copies: u8) -> Self {
        let mut key = bucket_prefix(bucket, 2);
        key.u8(epoch);
        key.u8(shard);
        Self { table: Table::Keys, copies, key: key.finish() }
    }

    /// One shard of the index of a field.
    #[must_use]
    #[inline]
    pub fn index(bucket: &BucketAddress, field: &[u8], epoch: u8, shard: u8, copies: u8) -> Self {
        let mut key = bucket_prefix(bucket, varint_len(field.len() as u64) + field.len() + 2);
        key.bytes(field);
        key.u8(epoch);
        key.u8(shard);
        Self { table: Table::Index, copies, key: key.finish() }
    }

    /// The bucket and the field of a partition made by [`Self::index`]; `None` for a partition of another table.
    #[must_use]
    pub fn index_bucket_and_field(&self) -> Option<(BucketAddress, Bytes)> {
        let mut rest = FieldDecoder::new(self.key.clone());
        let bucket = BucketAddress { bucket_type: rest.bytes().ok()?, bucket: rest.bytes().ok()? };
        let field = rest.bytes().ok().filter(|_| self.table == Table::Index)?;
        Some((bucket, field))
    }

    /// The bucket of a partition made by [`Self::keys`]; `None` for a partition of another table.
    #[must_use]
    pub fn listed_bucket(&self) -> Option<BucketAddress> {
        let mut rest = FieldDecoder::new(self.key.clone());
        let bucket = BucketAddress { bucket_type: rest.bytes().ok()?, bucket: rest.bytes().ok()? };
        (self.table == Table::Keys).then_some(bucket)
    }

    /// The address of a partition made by [`Self::object`]; `None` for a partition of another table.
    #[must_use]
    pub fn object_address(&self) -> Option<Address> {
        let mut rest = FieldDecoder::new(self.key.clone());
        let bucket = BucketAddress { bucket_type: rest.bytes().ok()?, bucket: rest.bytes().ok()? };
        matches!(self.table, Table::Objects | Table::Consistent).then(|| Address { bucket, key: rest.rest() })
    }

    /// The `$bucket` view of a type.
    #[must_use]
    #[inline]
    pub fn buckets(bucket_type: &Bytes, copies: u8) -> Self {
        Self { table: Table::Buckets, copies, key: bucket_type.clone() }
    }

    /// The bucket type that it belongs to, if any.
    #[must_use]
    pub fn bucket_type(&self) -> Option<Bytes> {
        match self.table {
            Table::Objects | Table::Consistent | Table::Keys | Table::DataTypes | Table::Index => {
                FieldDecoder::new(self.key.clone()).bytes().ok()
            }
            Table::Buckets => Some(self.key.clone()),
            _ => None,
        }
    }

    /// Text for an operator: the table, then bucket type, bucket and key as far as the partition has them.
    #[must_use]
    pub fn describe(&self) -> String {
        let table = self.table.name();
        let mut rest = FieldDecoder::new(self.key.clone());
        let named = match self.table {
            Table::Objects | Table::Consistent | Table::Keys | Table::DataTypes | Table::Index => {
                rest.bytes().and_then(|of| Ok((of, rest.bytes()?)))
            }
            _ => Err(DecodeError::Truncated),
        };
        match (named, self.head_bucket_and_key()) {
            (Ok((of, bucket)), _) => {
                let view = if self.table == Table::Keys {
                    String::new()
                } else if let Some((_, field)) = self.index_bucket_and_field() {
                    format!("/index/{}", field.escape_ascii())
                } else {
                    let rest = rest.rest();
                    // A data type has the number of its shard behind its key.
                    let key = rest.len() - usize::from(table == Table::DataTypes.name() && !rest.is_empty());
                    format!("/keys/{}", rest[..key].escape_ascii())
                };
                format!("{table} /types/{}/buckets/{}{view}", of.escape_ascii(), bucket.escape_ascii())
            }
            (_, Some((bucket, key))) => format!("{table} bucket {} key {}", hex::encode(bucket.0), key.escape_ascii()),
            _ => format!("{table} {}", self.key.escape_ascii()),
        }
    }

    /// The partition of the catalogue.
    #[must_use]
    pub fn catalogue() -> Self {
        Self::new(Table::Catalogue, Bytes::from_static(b"catalogue"))
    }

    /// The partition of the heartbeats.
    #[must_use]
    pub fn members() -> Self {
        Self::new(Table::Members, Bytes::from_static(b"members"))
    }

    /// The partition of the clock marks.
    #[must_use]
    pub fn marks() -> Self {
        Self::new(Table::Marks, Bytes::from_static(b"marks"))
    }

    /// The head and the noncurrent versions of an S3 key.
    #[must_use]
    #[inline]
    pub fn head(bucket: BucketId, key: &[u8]) -> Self {
        Self::new(Table::Heads, [&bucket.0, key].concat())
    }

    /// The bucket and the key of a partition made by [`Self::head`]; `None` for a partition of another table.
    #[must_use]
    pub fn head_bucket_and_key(&self) -> Option<(BucketId, Bytes)> {
        let id = self.key.get(..16)?.try_into().ok()?;
        (self.table == Table::Heads).then(|| (BucketId(id), self.key.slice(16..)))
    }

    /// One shard of the listing entries of an S3 bucket.
    #[must_use]
    #[inline]
    pub fn entries(bucket: BucketId, shard: u8) -> Self {
        Self::new(Table::Entries, [&bucket.0[..], &[shard]].concat())
    }

    /// A multipart upload.
    #[must_use]
    pub fn upload(upload: UploadId) -> Self {
        Self::new(Table::Uploads, Bytes::copy_from_slice(&upload.0))
    }

    /// The open uploads of an S3 bucket.
    #[must_use]
    pub fn upload_entries(bucket: BucketId) -> Self {
        Self::new(Table::UploadEntries, Bytes::copy_from_slice(&bucket.0))
    }

    /// The parts of an upload.
    #[must_use]
    pub fn parts(upload: UploadId) -> Self {
        Self::new(Table::Parts, Bytes::copy_from_slice(&upload.0))
    }

    /// The manifest of a version made of parts.
    #[must_use]
    pub fn manifest(version: VersionId) -> Self {
        Self::new(Table::Manifests, Bytes::copy_from_slice(&version.0))
    }

    /// The partition of the S3 users.
    #[must_use]
    pub fn users() -> Self {
        Self::new(Table::Users, Bytes::from_static(b"users"))
    }

    /// The mark of a blob that a sweeper is about to remove.
    #[must_use]
    pub fn gc_mark(blob: BlobId) -> Self {
        Self::new(Table::GcMarks, Bytes::copy_from_slice(&blob.0))
    }

    /// The notices of one run of a gateway.
    #[must_use]
    pub fn outbox(actor: ActorId) -> Self {
        Self::new(Table::Outbox, Bytes::copy_from_slice(&actor.0.to_be_bytes()))
    }

    /// The run of a partition made by [`Self::outbox`]; `None` for a partition of another table.
    #[must_use]
    pub fn outbox_actor(&self) -> Option<ActorId> {
        let actor = self.key.as_ref().try_into().ok().map(u64::from_be_bytes)?;
        (self.table == Table::Outbox).then_some(ActorId(actor))
    }

    /// The keys that seal all other rows.
    #[must_use]
    pub fn data_keys() -> Self {
        Self::new(Table::DataKeys, Bytes::from_static(b"data_keys"))
    }

    /// The rows about the move from another store.
    #[must_use]
    pub fn moving() -> Self {
        // No moved key is here: the name of a type is never empty.
        Self::new(Table::Moves, Bytes::from_static(b"\0"))
    }

    /// One shard of the moved keys of a bucket.
    #[must_use]
    pub fn moved(bucket: &BucketAddress, shard: u8) -> Self {
        let mut key = bucket_prefix(bucket, 1);
        key.u8(shard);
        Self::new(Table::Moves, key.finish())
    }

    /// The usage records of an S3 user.
    #[must_use]
    pub fn usage(key_id: &str) -> Self {
        Self::new(Table::Usage, Bytes::copy_from_slice(key_id.as_bytes()))
    }
}

/// The shard of a bucket's moved keys that holds `key`.
#[must_use]
#[inline]
pub fn moved_shard(key: &[u8]) -> u8 {
    (crate::hash::id64(&[key]) % u64::from(MOVED_SHARDS)) as u8
}

/// The shard of a bucket's listing entries that holds the entry of `key`.
#[must_use]
#[inline]
pub fn entry_shard(key: &[u8]) -> u8 {
    (crate::hash::id64(&[key]) % u64::from(KEY_VIEW_SHARDS)) as u8
}

fn bucket_prefix(bucket: &BucketAddress, more: usize) -> FieldEncoder {
    let names = [&bucket.bucket_type, &bucket.bucket];
    // Exactly its length: bytes with room left over would take a second allocation when they are finished.
    let length: usize = names.iter().map(|name| varint_len(name.len() as u64) + name.len()).sum();
    let mut key = FieldEncoder::with_capacity(length + more);
    names.iter().for_each(|name| key.bytes(name));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_type_bucket_and_key() {
        let bucket = BucketAddress::new("t".into(), "b".into()).unwrap();
        let object = Partition::object(&Address::new(bucket.clone(), "k\n".into()).unwrap(), false, 3);
        assert_eq!(object.describe(), "objects /types/t/buckets/b/keys/k\\n");
        let datatype = Partition::datatype(&Address::new(bucket.clone(), "k".into()).unwrap(), 3);
        assert_eq!(datatype.describe(), "datatypes /types/t/buckets/b/keys/k");
        assert_eq!((datatype.bucket_type(), &datatype.key[..]), (Some("t".into()), b"\x01t\x01bk\0".as_ref()));
        assert_eq!(Partition::keys(&bucket, 1, 2, 3).describe(), "keys /types/t/buckets/b");
        let index = Partition::index(&bucket, b"a_int", 0, 3, 3);
        assert_eq!(index.describe(), "index /types/t/buckets/b/index/a_int");
        assert_eq!((index.bucket_type(), &index.key[..]), (Some("t".into()), b"\x01t\x01b\x05a_int\0\x03".as_ref()));
        assert_eq!(index.index_bucket_and_field(), Some((bucket.clone(), "a_int".into())));
        let head = Partition::head(BucketId([0xab; 16]), b"k");
        assert_eq!(head.describe(), format!("heads bucket {} key k", "ab".repeat(16)));
        assert_eq!(Partition::new(Table::Objects, "?").describe(), "objects ?");
    }

    #[test]
    fn table_codes_are_unique_and_decode_to_their_tables() {
        for table in Table::ALL {
            assert_eq!(Table::from_code(table.code()), Some(table));
        }
        assert_eq!(Table::from_code(0), None);
    }
}
