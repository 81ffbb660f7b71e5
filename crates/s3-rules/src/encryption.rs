//! Encryption by the server, as it is stored: the key material of an object, and the default of a bucket.

use larder_encryption::{MasterKeyId, WRAPPED_KEY_BYTES};
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use serde::{Deserialize, Serialize};

/// The ways in which the server encrypts an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptionKind {
    /// SSE-S3: with a key of the server.
    Server,
    /// SSE-C: with a key that each request brings.
    Customer,
}

/// What the key of an encrypted object or upload is made of. It is useless without the master key or the customer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectEncryption {
    /// SSE-S3.
    Server {
        /// The master key that wraps the object key.
        master_key: MasterKeyId,
        /// The wrapped object key.
        wrapped_key: [u8; WRAPPED_KEY_BYTES],
    },
    /// SSE-C. Neither the customer's key nor a plain hash of it is stored.
    Customer {
        /// Mixed into the customer's key, so that each object has a key of its own.
        salt: [u8; 32],
        /// Derived from salt and key: tells a wrong key.
        verifier: [u8; 32],
    },
}

impl ObjectEncryption {
    /// The way of this encryption.
    #[must_use]
    pub fn kind(&self) -> EncryptionKind {
        match self {
            Self::Server { .. } => EncryptionKind::Server,
            Self::Customer { .. } => EncryptionKind::Customer,
        }
    }

    /// Appends the stored form.
    pub(super) fn put(&self, out: &mut FieldEncoder) {
        match self {
            Self::Server { master_key, wrapped_key } => {
                out.u8(1);
                out.raw(&master_key.0);
                out.raw(wrapped_key);
            }
            Self::Customer { salt, verifier } => {
                out.u8(2);
                out.raw(salt);
                out.raw(verifier);
            }
        }
    }

    /// Reads [`Self::put`] back.
    pub(super) fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        match rest.u8()? {
            1 => Ok(Self::Server { master_key: MasterKeyId(rest.array()?), wrapped_key: rest.array()? }),
            2 => Ok(Self::Customer { salt: rest.array()?, verifier: rest.array()? }),
            _ => Err(DecodeError::Invalid("encryption kind")),
        }
    }
}

/// The default encryption of a bucket: SSE-S3 for each write that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BucketEncryption {
    /// Whether new objects are encrypted; a bucket may block keys of customers without it.
    pub encrypts: bool,
    /// What the client said of bucket keys, which only KMS has; it is returned.
    pub bucket_key: bool,
    /// Whether writes with keys of customers are refused; `None`: not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_customer_keys: Option<bool>,
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn encryption() -> impl Strategy<Value = ObjectEncryption> {
        let server = (any::<[u8; 8]>(), any::<[u8; 32]>(), any::<[u8; 28]>()).prop_map(|(id, front, back)| {
            let mut wrapped_key = [0; WRAPPED_KEY_BYTES];
            wrapped_key[..32].copy_from_slice(&front);
            wrapped_key[32..].copy_from_slice(&back);
            ObjectEncryption::Server { master_key: MasterKeyId(id), wrapped_key }
        });
        let customer = any::<([u8; 32], [u8; 32])>();
        prop_oneof![server, customer.prop_map(|(salt, verifier)| ObjectEncryption::Customer { salt, verifier })]
    }

    /// The stored forms, byte for byte.
    #[test]
    fn the_golden_encryptions_still_decode() {
        let server = ObjectEncryption::Server { master_key: MasterKeyId([1; 8]), wrapped_key: [2; WRAPPED_KEY_BYTES] };
        let customer = ObjectEncryption::Customer { salt: [3; 32], verifier: [4; 32] };
        for (encryption, golden) in
            [(server, [&[1][..], &[1; 8], &[2; 60]].concat()), (customer, [&[2][..], &[3; 32], &[4; 32]].concat())]
        {
            let mut out = FieldEncoder::with_capacity(80);
            encryption.put(&mut out);
            assert_eq!(out.finish(), golden);
            let mut rest = FieldDecoder::new(Bytes::from(golden));
            assert_eq!(ObjectEncryption::take(&mut rest), Ok(encryption));
            assert_eq!(rest.finish(), Ok(()));
        }
        let unknown = ObjectEncryption::take(&mut FieldDecoder::new(Bytes::from_static(&[3])));
        assert_eq!(unknown, Err(DecodeError::Invalid("encryption kind")));
    }
}
