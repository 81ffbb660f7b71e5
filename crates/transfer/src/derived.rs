//! Derived rows of heads. Engines store them in different ways, so an import computes them anew from the heads.

use larder_rows::codec::DecodeError;
use larder_rows::keyspace::entry_shard;
use larder_s3_rules::entry::upload_entry_name;
use larder_s3_rules::{ListingEntry, ObjectHead, Upload, UploadEntry, UploadId};
use larder_store::{DerivedRow, HeadWrite, Partition, Row, Table};

/// The head `row` of this partition, with its derived row if its table has one.
///
/// # Errors
/// The head's value cannot be decoded.
pub(crate) fn head_with_derived_row(partition: &Partition, row: Row) -> Result<HeadWrite, DecodeError> {
    let derived = match partition.table {
        Table::Heads => Some(object_entry(partition, &row)?),
        Table::Uploads => Some(upload_entry(partition, &row)?),
        _ => None,
    };
    Ok(HeadWrite { derived, ..HeadWrite::from(row) })
}

fn object_entry(partition: &Partition, row: &Row) -> Result<DerivedRow, DecodeError> {
    let (bucket, key) = partition.head_bucket_and_key().ok_or(DecodeError::Truncated)?;
    let head = ObjectHead::decode(row.value.clone())?;
    let value = ListingEntry::from_head(&head).map(|entry| entry.encode());
    Ok(DerivedRow { partition: Partition::entries(bucket, entry_shard(&key)), name: key, value })
}

fn upload_entry(partition: &Partition, row: &Row) -> Result<DerivedRow, DecodeError> {
    let id = partition.key.as_ref().try_into().map(UploadId).map_err(|_| DecodeError::Truncated)?;
    let upload = Upload::decode(row.value.clone())?;
    let value = UploadEntry::from_upload(&upload).map(|entry| entry.encode());
    let name = upload_entry_name(&upload.key, id);
    Ok(DerivedRow { partition: Partition::upload_entries(upload.bucket), name, value })
}
