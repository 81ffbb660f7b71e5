//! Encryption of objects by the server: which key a request uses.
//!
//! ```text
//! master key (ring) ── wraps ──> object key ──┐
//! customer's key + salt ── derives ──> object key ──> body key, one for each blob or row ──> chunks
//! ```
//! Each object and each upload has an object key of its own. The ways, the texts of refusals and the fields are AWS's.

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_encryption::key_ring::{KeyRing, KeyRingError};
use larder_encryption::sealed_body::BodyCipher;
use larder_encryption::{BadKey, SecretKey};

use crate::rules::encryption::{EncryptionKind, ObjectEncryption};
use crate::rules::object_key::{
    body_cipher, customer_encryption, customer_object_key, hidden_etag, server_encryption, server_object_key,
};
use crate::rules::{Bucket, Object};
use crate::{Error, Result};

/// The encryption that a write asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptionChoice {
    /// None named: the default of the bucket.
    #[default]
    BucketDefault,
    /// SSE-S3.
    Server,
    /// SSE-C, with this key.
    Customer(SecretKey),
}

impl EncryptionChoice {
    /// The encryption of an object in this bucket.
    fn kind(self, bucket: &Bucket) -> Option<EncryptionKind> {
        match self {
            Self::BucketDefault => bucket.encryption.filter(|default| default.encrypts).map(|_| EncryptionKind::Server),
            Self::Server => Some(EncryptionKind::Server),
            Self::Customer(_) => Some(EncryptionKind::Customer),
        }
    }
}

/// Why a request cannot use the keys that it names or lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionError {
    /// There is no master key, and none can be made.
    #[error("no master key: start with --encryption-keys")]
    NoMasterKey,
    /// The object names a master key that the ring lacks.
    #[error("the master key {0} is not in the ring of --encryption-keys")]
    MissingMasterKey(String),
    /// The object was encrypted with a customer's key, and the request has none.
    #[error("the object is encrypted with a customer's key")]
    CustomerKeyNeeded,
    /// The request has another key than the object was encrypted with.
    #[error("the object is encrypted with another customer's key")]
    OtherCustomerKey,
    /// The request has a customer's key, and the object has none.
    #[error("the object is not encrypted with a customer's key")]
    NotApplicable,
    /// A part lacks the customer's key of its upload, or has one and the upload has none.
    #[error("a part and its upload differ in their encryption")]
    PartDiffers,
    /// A part, or the end of an upload, has another customer's key than its upload.
    #[error("a part has another customer's key than its upload")]
    PartKeyDiffers,
    /// The bucket refuses new objects with customers' keys.
    #[error("the bucket refuses customers' keys")]
    CustomerKeysBlocked,
}

impl From<EncryptionError> for Error {
    fn from(error: EncryptionError) -> Self {
        Self::Encryption(error)
    }
}

impl From<KeyRingError> for Error {
    fn from(error: KeyRingError) -> Self {
        match error {
            KeyRingError::NoMasterKey => EncryptionError::NoMasterKey.into(),
            KeyRingError::DiskFull => larder_core::Error::DiskFull.into(),
            KeyRingError::Many | KeyRingError::NotStored(_) => larder_core::Error::Internal(error.to_string()).into(),
        }
    }
}

impl From<BadKey> for Error {
    /// A stored key or chunk that does not open is damage; a wrong key of a customer is told apart before.
    fn from(BadKey: BadKey) -> Self {
        larder_core::Error::Damaged("encrypted bytes do not open with their key".into()).into()
    }
}

/// The encryption of new bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEncryption {
    /// What is stored with the object.
    pub(crate) stored: ObjectEncryption,
    /// The object key.
    pub(crate) key: BytesKey,
}

/// An object key, as readers and writers of bytes use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BytesKey {
    /// The object key.
    pub(crate) key: SecretKey,
    /// How the object is encrypted.
    pub(crate) kind: EncryptionKind,
}

impl BytesKey {
    /// The digest in the entity tag of a body: its MD5, which a customer's key hides.
    pub(crate) fn etag(&self, body: &[u8], md5: [u8; 16]) -> Result<[u8; 16]> {
        match self.kind {
            EncryptionKind::Server => Ok(md5),
            EncryptionKind::Customer => Ok(hidden_etag(&self.key, body, &md5)?),
        }
    }

    /// The cipher of one body: the id of its blob, or empty for bytes in the row of the object.
    pub(crate) fn cipher(&self, body: &[u8]) -> Result<BodyCipher> {
        Ok(body_cipher(&self.key, body)?)
    }
}

/// Makes and finds the keys of objects.
pub struct ObjectKeys {
    /// The master keys.
    pub ring: Arc<KeyRing>,
    random: fn(&mut [u8]),
}

impl ObjectKeys {
    pub(crate) fn new(ring: Arc<KeyRing>, random: fn(&mut [u8])) -> Self {
        Self { ring, random }
    }

    /// The encryption of a new object in this bucket; `None`: it is stored as it comes.
    ///
    /// # Errors
    /// `NoMasterKey`, `CustomerKeysBlocked`; errors of the file of the ring.
    pub(crate) async fn begin(&self, choice: EncryptionChoice, bucket: &Bucket) -> Result<Option<NewEncryption>> {
        let (stored, key) = match (choice.kind(bucket), choice) {
            (None, _) => return Ok(None),
            (Some(EncryptionKind::Customer), EncryptionChoice::Customer(key)) => {
                if bucket.encryption.and_then(|default| default.blocks_customer_keys) == Some(true) {
                    return Err(EncryptionError::CustomerKeysBlocked.into());
                }
                customer_encryption(&key, self.random_bytes())?
            }
            (Some(_), _) => {
                let master = self.ring.current(self.random).await?;
                let key = SecretKey::new(self.random_bytes());
                (server_encryption(&master, &key, self.random_bytes())?, key)
            }
        };
        Ok(Some(NewEncryption { stored, key: BytesKey { key, kind: stored.kind() } }))
    }

    /// The key of an object's bytes, for a request with or without a customer's key; `None` for an object that is not encrypted.
    ///
    /// # Errors
    /// `NotApplicable`, `CustomerKeyNeeded`, `OtherCustomerKey`, `MissingMasterKey`; `Damaged`.
    pub(crate) fn object_key(&self, object: &Object, customer: Option<&SecretKey>) -> Result<Option<BytesKey>> {
        self.find(object.encryption.as_ref(), customer)
    }

    /// The key of the parts of an upload, for a request that names this encryption.
    ///
    /// # Errors
    /// `PartDiffers`, `PartKeyDiffers`, `MissingMasterKey`; `Damaged`.
    pub(crate) fn upload_key(
        &self,
        encryption: Option<&ObjectEncryption>,
        named: EncryptionChoice,
    ) -> Result<Option<BytesKey>> {
        let is_server = matches!(encryption, Some(ObjectEncryption::Server { .. }));
        let customer = match named {
            // Its client would take the part for encrypted.
            EncryptionChoice::Server if !is_server => return Err(EncryptionError::PartDiffers.into()),
            EncryptionChoice::BucketDefault | EncryptionChoice::Server => None,
            EncryptionChoice::Customer(key) => Some(key),
        };
        self.find(encryption, customer.as_ref()).map_err(|error| match error {
            Error::Encryption(EncryptionError::CustomerKeyNeeded | EncryptionError::NotApplicable) => {
                EncryptionError::PartDiffers.into()
            }
            Error::Encryption(EncryptionError::OtherCustomerKey) => EncryptionError::PartKeyDiffers.into(),
            other => other,
        })
    }

    fn find(&self, encryption: Option<&ObjectEncryption>, customer: Option<&SecretKey>) -> Result<Option<BytesKey>> {
        let key = match (encryption, customer) {
            (None, None) => return Ok(None),
            (None | Some(ObjectEncryption::Server { .. }), Some(_)) => {
                return Err(EncryptionError::NotApplicable.into());
            }
            (Some(ObjectEncryption::Customer { .. }), None) => return Err(EncryptionError::CustomerKeyNeeded.into()),
            (Some(ObjectEncryption::Customer { salt, verifier }), Some(key)) => {
                let key = customer_object_key(key, salt, verifier);
                key.map_err(|BadKey| Error::from(EncryptionError::OtherCustomerKey))?
            }
            (Some(ObjectEncryption::Server { master_key, wrapped_key }), None) => {
                let master = self.ring.find(*master_key);
                let master = master.ok_or_else(|| EncryptionError::MissingMasterKey(master_key.to_string()))?;
                server_object_key(&master, wrapped_key)?
            }
        };
        Ok(encryption.map(|encryption| BytesKey { key, kind: encryption.kind() }))
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}
