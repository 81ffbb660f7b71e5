//! The key of one encrypted object or upload, and the keys derived from it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use sha2::{Digest, Sha256};

use super::encryption::{MasterKeyId, ObjectEncryption, WRAPPED_KEY_BYTES};
use super::sealed_body::BodyCipher;

/// What keys are derived for: a key for one purpose says nothing about another.
const BODY: &[u8] = b"larder s3 body 1";
const ETAG: &[u8] = b"larder s3 etag 1";
const CUSTOMER: &[u8] = b"larder s3 customer object 1";
const VERIFIER: &[u8] = b"larder s3 customer verifier 1";
const MASTER: &[u8] = b"larder s3 master key 1";
/// Bound into each wrapped key.
const WRAPPED: &[u8] = b"larder s3 wrapped key 1";

/// 32 secret bytes. Logs never show them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its name as a master key: tells keys apart and gives nothing away.
    #[must_use]
    pub fn master_id(&self) -> MasterKeyId {
        let digest = Sha256::new_with_prefix(MASTER).chain_update(self.0).finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        MasterKeyId(id)
    }

    /// Wraps an object key. The nonce must be random.
    ///
    /// # Errors
    /// None in practice: AES-GCM seals any 32 bytes.
    pub fn wrap(&self, key: &Self, nonce: [u8; NONCE_LEN]) -> Result<[u8; WRAPPED_KEY_BYTES], BadKey> {
        let mut sealed = key.0.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.cipher()?.seal_in_place_append_tag(unique, Aad::from(WRAPPED), &mut sealed).map_err(|_| BadKey)?;
        let mut wrapped = [0; WRAPPED_KEY_BYTES];
        wrapped[..NONCE_LEN].copy_from_slice(&nonce);
        wrapped[NONCE_LEN..].copy_from_slice(&sealed);
        Ok(wrapped)
    }

    /// The object key in [`Self::wrap`].
    ///
    /// # Errors
    /// [`BadKey`] where this key did not wrap it, or it is damaged.
    pub fn unwrap_key(&self, wrapped: &[u8; WRAPPED_KEY_BYTES]) -> Result<Self, BadKey> {
        let (nonce, sealed) = wrapped.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| BadKey)?;
        let mut sealed = sealed.to_vec();
        let key = self.cipher()?.open_in_place(nonce, Aad::from(WRAPPED), &mut sealed).map_err(|_| BadKey)?;
        Ok(Self((&*key).try_into().map_err(|_| BadKey)?))
    }

    /// The encryption of a new object by this key of a customer, and its object key.
    ///
    /// # Errors
    /// None in practice.
    pub fn customer_encryption(&self, salt: [u8; 32]) -> Result<(ObjectEncryption, Self), BadKey> {
        let verifier = self.derive(&salt, &[VERIFIER])?;
        Ok((ObjectEncryption::Customer { salt, verifier }, Self(self.derive(&salt, &[CUSTOMER])?)))
    }

    /// The object key of an object that was encrypted by a customer's key, if it is this one.
    ///
    /// # Errors
    /// [`BadKey`] for another key.
    pub fn customer_object_key(&self, salt: &[u8; 32], verifier: &[u8; 32]) -> Result<Self, BadKey> {
        let derived: [u8; 32] = self.derive(salt, &[VERIFIER])?;
        verify_slices_are_equal(&derived, verifier).map_err(|_| BadKey)?;
        Ok(Self(self.derive(salt, &[CUSTOMER])?))
    }

    /// As an object key: the cipher of one body. `body` is the id of its blob, or empty for bytes in the row of the object.
    ///
    /// # Errors
    /// None in practice.
    pub fn body_cipher(&self, body: &[u8]) -> Result<BodyCipher, BadKey> {
        Ok(BodyCipher::new(Self(self.derive(&[], &[BODY, body])?).cipher()?))
    }

    /// As an object key: an entity tag in the place of the MD5 of the bytes, which says nothing about them.
    ///
    /// # Errors
    /// None in practice.
    pub fn hidden_etag(&self, body: &[u8], md5: &[u8; 16]) -> Result<[u8; 16], BadKey> {
        self.derive(&[], &[ETAG, body, md5])
    }

    fn cipher(&self) -> Result<LessSafeKey, BadKey> {
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).map_err(|_| BadKey)?))
    }

    fn derive<const N: usize>(&self, salt: &[u8], purpose: &[&[u8]]) -> Result<[u8; N], BadKey> {
        let mut derived = [0; N];
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let expanded = secret.expand(purpose, DerivedLength(N)).map_err(|_| BadKey)?;
        expanded.fill(&mut derived).map_err(|_| BadKey)?;
        Ok(derived)
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// The length of a derived key in bytes.
#[derive(Debug, Clone, Copy)]
struct DerivedLength(usize);

impl KeyType for DerivedLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// The key does not open what it was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key does not fit")]
pub struct BadKey;

#[cfg(test)]
mod tests {
    use super::*;

    const A: SecretKey = SecretKey([1; 32]);
    const B: SecretKey = SecretKey([2; 32]);

    #[test]
    fn only_the_key_that_wrapped_an_object_key_opens_it() {
        let wrapped = A.wrap(&B, [7; 12]).unwrap();
        assert_eq!(A.unwrap_key(&wrapped), Ok(B));
        assert_eq!(B.unwrap_key(&wrapped), Err(BadKey));
        for at in 0..WRAPPED_KEY_BYTES {
            let mut damaged = wrapped;
            damaged[at] ^= 1;
            assert_eq!(A.unwrap_key(&damaged), Err(BadKey), "byte {at}");
        }
    }

    #[test]
    fn a_customer_key_opens_its_objects_alone() {
        let (encryption, key) = A.customer_encryption([3; 32]).unwrap();
        let ObjectEncryption::Customer { salt, verifier } = encryption else { panic!("{encryption:?}") };
        assert_eq!(A.customer_object_key(&salt, &verifier), Ok(key));
        assert_eq!(B.customer_object_key(&salt, &verifier), Err(BadKey));
        let (_, other) = A.customer_encryption([4; 32]).unwrap();
        assert_ne!(key, other, "each object has a key of its own");
        assert_ne!(key.bytes(), &verifier);
    }

    #[test]
    fn derived_values_differ_by_purpose_and_body() {
        let tag = A.hidden_etag(b"1", &[5; 16]).unwrap();
        assert_ne!(tag, A.hidden_etag(b"2", &[5; 16]).unwrap());
        assert_ne!(tag, B.hidden_etag(b"1", &[5; 16]).unwrap());
        assert_ne!(tag, [5; 16]);
        assert_ne!(A.master_id(), B.master_id());
        assert_eq!(format!("{A:?}"), "SecretKey(..)");
    }

    /// What is derived is stored with every object: a change here loses them. The values are those of other implementations of HKDF and
    /// AES-GCM.
    #[test]
    fn the_golden_derivations() {
        assert_eq!(A.master_id().to_string(), "d4f4cddea4550348");
        assert_eq!(hex::encode(A.hidden_etag(b"b", &[0; 16]).unwrap()), "70aff2a08b567a149f7883b2a2afd803");
        let (encryption, key) = A.customer_encryption([0; 32]).unwrap();
        let ObjectEncryption::Customer { verifier, .. } = encryption else { panic!("{encryption:?}") };
        assert_eq!(hex::encode(verifier), "9c8375db876497fc78e2e9924b8dc6e138c23e5d63aa44700f51343369155ae2");
        assert_eq!(hex::encode(key.bytes()), "45f5a881e992024ee0ace4ff722560c44e76bd4c067d9101bce1c332640e3e5f");
        let sealed = A.body_cipher(b"b").unwrap().seal(0, true, b"tea").unwrap();
        assert_eq!(hex::encode(sealed), "16cf9e5837d9c9ead195229df33e8b94df3686");
    }
}
