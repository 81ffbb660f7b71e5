//! The address of an object: type / bucket / key. Names are arbitrary bytes of limited length.

use std::fmt;

use bytes::Bytes;

use crate::limits::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, TYPE_BYTES_MAX};

/// The bucket type of an address without one.
pub const DEFAULT_TYPE: &[u8] = b"default";

/// A bucket under its type. One bucket name under two types is two buckets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketAddress {
    /// Name of the bucket type; [`DEFAULT_TYPE`] for a path without one.
    pub bucket_type: Bytes,
    /// Name of the bucket.
    pub bucket: Bytes,
}

/// An object: a key in a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The key.
    pub key: Bytes,
}

/// Why an address is refused, with the part at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// This part has no bytes.
    #[error("The {0} must not be empty")]
    Empty(&'static str),
    /// This part is longer than this limit, in bytes.
    #[error("The {0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
}

/// Type and bucket, for people; bytes that are no UTF-8 are replaced.
impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", String::from_utf8_lossy(&self.bucket_type), String::from_utf8_lossy(&self.bucket))
    }
}

impl BucketAddress {
    /// A bucket address of checked lengths.
    ///
    /// # Errors
    /// [`AddressError`] when a part is empty or too long.
    #[inline]
    pub fn new(bucket_type: Bytes, bucket: Bytes) -> Result<Self, AddressError> {
        check("bucket type", &bucket_type, TYPE_BYTES_MAX)?;
        check("bucket", &bucket, BUCKET_BYTES_MAX)?;
        Ok(Self { bucket_type, bucket })
    }

    /// Whether the bucket is of type `default`.
    #[must_use]
    #[inline]
    pub fn is_default_type(&self) -> bool {
        self.bucket_type == DEFAULT_TYPE
    }
}

impl Address {
    /// An address whose key has a checked length.
    ///
    /// # Errors
    /// [`AddressError`] when the key is empty or too long.
    #[inline]
    pub fn new(bucket: BucketAddress, key: Bytes) -> Result<Self, AddressError> {
        check("key", &key, KEY_BYTES_MAX)?;
        Ok(Self { bucket, key })
    }
}

fn check(part: &'static str, name: &Bytes, max: usize) -> Result<(), AddressError> {
    match name.len() {
        0 => Err(AddressError::Empty(part)),
        length if length > max => Err(AddressError::TooLong(part, max)),
        _ => Ok(()),
    }
}
