//! Where an object lives: type / bucket / key. Names are any bytes; only their length is limited.

use bytes::Bytes;

use crate::limits::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, TYPE_BYTES_MAX};

/// The type of every address that names none.
pub const DEFAULT_TYPE: &[u8] = b"default";

/// A bucket under its type. The same bucket name under two types is two buckets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketAddress {
    /// Name of the bucket type; [`DEFAULT_TYPE`] when the path names none.
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

/// Which part of an address is empty or longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// A name has no bytes.
    Empty(&'static str),
    /// A name is longer than the limit, which follows.
    TooLong(&'static str, usize),
}

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty(part) => write!(f, "The {part} must not be empty"),
            Self::TooLong(part, max) => write!(f, "The {part} is longer than {max} bytes"),
        }
    }
}

impl std::error::Error for AddressError {}

impl BucketAddress {
    /// Checks the lengths.
    ///
    /// # Errors
    /// [`AddressError`] names the part at fault.
    pub fn new(bucket_type: Bytes, bucket: Bytes) -> Result<Self, AddressError> {
        check("bucket type", &bucket_type, TYPE_BYTES_MAX)?;
        check("bucket", &bucket, BUCKET_BYTES_MAX)?;
        Ok(Self { bucket_type, bucket })
    }

    /// Whether the bucket is of type `default`.
    #[must_use]
    pub fn is_default_type(&self) -> bool {
        self.bucket_type == DEFAULT_TYPE
    }
}

impl Address {
    /// Checks the length of the key.
    ///
    /// # Errors
    /// [`AddressError`] when it is empty or too long.
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
