//! The table of message codes: what each request means, and how long its message may be.

use larder_core::rules::security::KvPermission::{
    self, Delete, Get, GetBucket, GetBucketType, GetPreflist, Index, ListBuckets, ListKeys, Put, SetBucket,
    SetBucketType,
};
use larder_rows::limits::{DATATYPE_EDITS_MAX, JOB_BYTES_MAX, METADATA_BYTES_MAX};

use super::session::{
    PbAccess, ScopeDecoder, bucket_type_at_2, bucket_type_at_3, bucket_type_at_9, bucket_type_at_12, bucket_type_at_13,
    bucket_type_at_16, default_bucket, type_at_1, type_at_3,
};
use crate::mapred::DOCUMENT_DECODED_PER_BYTE;

/// A request that clients can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PbOperation {
    /// Answers.
    Ping,
    /// The id that the client set on this connection.
    GetClientId,
    /// Sets it. It has no meaning for causality.
    SetClientId,
    /// Node name and version.
    GetServerInfo,
    /// Reads an object.
    Get,
    /// Writes an object.
    Put,
    /// Deletes an object.
    Delete,
    /// The buckets of a type.
    ListBuckets,
    /// The keys of a bucket.
    ListKeys,
    /// Properties of a bucket.
    GetBucket,
    /// Sets properties of a bucket.
    SetBucket,
    /// Removes the own properties of a bucket.
    ResetBucket,
    /// Properties of a type.
    GetBucketType,
    /// Sets properties of a type.
    SetBucketType,
    /// A query of a secondary index.
    Index,
    /// The objects of a range of keys.
    ScanBucket,
    /// The nodes that hold a key.
    GetPreflist,
    /// Updates a counter of Riak 1.4.
    UpdateCounter,
    /// Reads a counter of Riak 1.4.
    GetCounter,
    /// Reads a data type.
    FetchDatatype,
    /// Updates a data type.
    UpdateDatatype,
    /// Runs a MapReduce job.
    MapReduce,
    /// Encryption of the connection, where security is on.
    StartTls,
    /// The user of the connection, where security is on.
    Authenticate,
}

/// One message code.
#[derive(Debug, Clone, Copy)]
pub(super) struct PbCode {
    /// The code.
    pub(super) code: u8,
    /// Its request.
    pub(super) operation: PbOperation,
    /// The right that it needs while security is on.
    pub(super) access: PbAccess,
    /// Longest message in bytes, besides the value of a put.
    pub(super) bytes_max: usize,
    /// Bytes of memory that one byte of a decoded message may take.
    decoded_per_byte: u64,
    /// Most bytes of memory that a decoded message takes beyond its length.
    decoded_extra_max: u64,
}

impl PbCode {
    /// Bytes of memory that a message of this length may take once it is decoded.
    pub(super) fn decoded_bytes(&self, length: usize) -> u64 {
        let length = length as u64;
        length.saturating_mul(self.decoded_per_byte).min(length.saturating_add(self.decoded_extra_max))
    }
}

/// A request with names of limited length and numbers.
const NAMES: usize = 64 * 1024;
/// Properties: a byte of a message may become some 100 in memory, as a message and as JSON.
const PROPS: usize = 64 * 1024;
const PROPS_DECODED_PER_BYTE: u64 = 100;
/// An id of a client: each connection keeps one. Those of clients have four bytes.
const CLIENT_ID: usize = 0;
/// Everything about a value but the value.
pub(super) const PUT_BESIDES_VALUE: usize = NAMES + METADATA_BYTES_MAX + 16 * 1024;

/// Every request that is answered in its own way; any other code is unknown, as in a Riak without that part.
pub(super) const CODES: &[PbCode] = &[
    code(1, PbOperation::Ping, PbAccess::LoggedIn, 0),
    code(3, PbOperation::GetClientId, PbAccess::LoggedIn, 0),
    code(5, PbOperation::SetClientId, PbAccess::LoggedIn, CLIENT_ID),
    code(7, PbOperation::GetServerInfo, PbAccess::LoggedIn, 0),
    code(9, PbOperation::Get, needs(&[Get], bucket_type_at_13), NAMES),
    code(11, PbOperation::Put, needs(&[Put], bucket_type_at_16), PUT_BESIDES_VALUE),
    code(13, PbOperation::Delete, needs(&[Delete], bucket_type_at_13), NAMES),
    code(15, PbOperation::ListBuckets, needs(&[ListBuckets], type_at_3), NAMES),
    code(17, PbOperation::ListKeys, needs(&[ListKeys], bucket_type_at_3), NAMES),
    code(19, PbOperation::GetBucket, needs(&[GetBucket], bucket_type_at_2), NAMES),
    props(21, PbOperation::SetBucket, needs(&[SetBucket], bucket_type_at_3)),
    PbCode {
        decoded_per_byte: DOCUMENT_DECODED_PER_BYTE,
        ..code(23, PbOperation::MapReduce, PbAccess::Job, JOB_BYTES_MAX)
    },
    code(25, PbOperation::Index, needs(&[Index], bucket_type_at_12), QUERY),
    code(29, PbOperation::ResetBucket, needs(&[SetBucket], bucket_type_at_2), NAMES),
    code(31, PbOperation::GetBucketType, needs(&[GetBucketType], type_at_1), NAMES),
    props(32, PbOperation::SetBucketType, needs(&[SetBucketType], type_at_1)),
    code(33, PbOperation::GetPreflist, needs(&[GetPreflist], bucket_type_at_3), NAMES),
    code(40, PbOperation::ScanBucket, needs(&[ListKeys, Get], bucket_type_at_9), QUERY),
    code(50, PbOperation::UpdateCounter, needs(&[Put], default_bucket), NAMES),
    code(52, PbOperation::GetCounter, needs(&[Get], default_bucket), NAMES),
    code(80, PbOperation::FetchDatatype, needs(&[Get], bucket_type_at_3), NAMES),
    PbCode {
        decoded_per_byte: EDIT_DECODED_BYTES / 2,
        decoded_extra_max: EDIT_DECODED_BYTES * DATATYPE_EDITS_MAX as u64,
        ..code(82, PbOperation::UpdateDatatype, needs(&[Put], bucket_type_at_3), NAMES + UPDATE)
    },
    code(253, PbOperation::Authenticate, PbAccess::Login, NAMES),
    code(255, PbOperation::StartTls, PbAccess::Login, 0),
];

/// A query.
const QUERY: usize = 1024 * 1024;
/// An update of a data type: what a batch takes.
const UPDATE: usize = 2 * 1024 * 1024;
/// Bytes of memory of one decoded edit of a map, which two bytes of a message can be. Its message and its update count.
const EDIT_DECODED_BYTES: u64 = 600;

const fn code(code: u8, operation: PbOperation, access: PbAccess, bytes_max: usize) -> PbCode {
    // Clients of a newer version may add fields.
    PbCode { code, operation, access, bytes_max: bytes_max + 1024, decoded_per_byte: 1, decoded_extra_max: u64::MAX }
}

const fn needs(permissions: &'static [KvPermission], scope: ScopeDecoder) -> PbAccess {
    PbAccess::Needs(permissions, scope)
}

const fn props(number: u8, operation: PbOperation, access: PbAccess) -> PbCode {
    PbCode { decoded_per_byte: PROPS_DECODED_PER_BYTE, ..code(number, operation, access, NAMES + PROPS) }
}

/// The row of a code; `None`: the code is unknown.
pub(super) fn find(code: u8) -> Option<&'static PbCode> {
    CODES.iter().find(|row| row.code == code)
}

/// The longest message of an unknown code. It is read and dropped, so that the connection goes on.
pub(super) const UNKNOWN_BYTES_MAX: usize = QUERY;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_once_and_in_order() {
        assert!(CODES.is_sorted_by(|a, b| a.code < b.code));
    }
}
