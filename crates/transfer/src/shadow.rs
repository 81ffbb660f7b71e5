//! A head with the shadow it had: engines keep shadows in ways of their own, so they are made anew.

use larder_model::codec::DecodeError;
use larder_model::keyspace::entry_shard;
use larder_model::objects::entry::upload_entry_name;
use larder_model::objects::{Entry, Head as ObjectHead, Upload, UploadEntry, UploadId};
use larder_store::{Head, Partition, Row, Shadow, Table};

/// The head `row` of this partition, with its shadow if it has one.
///
/// # Errors
/// A head that cannot be read.
pub(crate) fn head_of(partition: &Partition, row: Row) -> Result<Head, DecodeError> {
    let shadow = match partition.table {
        Table::Heads => Some(of_object(partition, &row)?),
        Table::Uploads => Some(of_upload(partition, &row)?),
        _ => None,
    };
    Ok(Head { row, shadow })
}

fn of_object(partition: &Partition, row: &Row) -> Result<Shadow, DecodeError> {
    let (bucket, key) = partition.of_head().ok_or(DecodeError::Truncated)?;
    let head = ObjectHead::decode(row.value.clone())?;
    let value = Entry::of(&head).map(|entry| entry.encode());
    Ok(Shadow { partition: Partition::entries(bucket, entry_shard(&key)), name: key, value })
}

fn of_upload(partition: &Partition, row: &Row) -> Result<Shadow, DecodeError> {
    let id = partition.key.as_ref().try_into().map(UploadId).map_err(|_| DecodeError::Truncated)?;
    let upload = Upload::decode(row.value.clone())?;
    let value = UploadEntry::of(&upload).map(|entry| entry.encode());
    let name = upload_entry_name(&upload.key, id);
    Ok(Shadow { partition: Partition::upload_entries(upload.bucket), name, value })
}
