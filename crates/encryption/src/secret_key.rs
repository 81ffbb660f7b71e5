//! 32 secret bytes: they wrap other keys, and others are derived from them.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use sha2::{Digest, Sha256};

/// Bytes of a wrapped key: nonce, key, tag.
pub const WRAPPED_KEY_BYTES: usize = 12 + 32 + 16;
/// In the name of a master key.
const MASTER: &[u8] = b"larder s3 master key 1";

/// Names a master key: the beginning of a hash of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MasterKeyId(pub [u8; 8]);

impl std::fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

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

    /// Wraps a key for this purpose. The nonce must be random.
    ///
    /// # Errors
    /// None in practice: AES-GCM seals any 32 bytes.
    pub fn wrap(&self, purpose: &[u8], key: &Self, nonce: [u8; NONCE_LEN]) -> Result<[u8; WRAPPED_KEY_BYTES], BadKey> {
        let mut sealed = key.0.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.cipher()?.seal_in_place_append_tag(unique, Aad::from(purpose), &mut sealed).map_err(|_| BadKey)?;
        let mut wrapped = [0; WRAPPED_KEY_BYTES];
        wrapped[..NONCE_LEN].copy_from_slice(&nonce);
        wrapped[NONCE_LEN..].copy_from_slice(&sealed);
        Ok(wrapped)
    }

    /// The key in [`Self::wrap`].
    ///
    /// # Errors
    /// [`BadKey`] where this key did not wrap it for this purpose, or it is damaged.
    pub fn unwrap_key(&self, purpose: &[u8], wrapped: &[u8; WRAPPED_KEY_BYTES]) -> Result<Self, BadKey> {
        let (nonce, sealed) = wrapped.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| BadKey)?;
        let mut sealed = sealed.to_vec();
        let key = self.cipher()?.open_in_place(nonce, Aad::from(purpose), &mut sealed).map_err(|_| BadKey)?;
        Ok(Self((&*key).try_into().map_err(|_| BadKey)?))
    }

    /// Bytes that only this key and salt give, other ones for each purpose.
    ///
    /// # Errors
    /// None in practice.
    pub fn derive<const N: usize>(&self, salt: &[u8], purpose: &[&[u8]]) -> Result<[u8; N], BadKey> {
        let mut derived = [0; N];
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let expanded = secret.expand(purpose, DerivedLength(N)).map_err(|_| BadKey)?;
        expanded.fill(&mut derived).map_err(|_| BadKey)?;
        Ok(derived)
    }

    /// AES-256-GCM with this key. Its caller sees to it that no nonce comes twice.
    ///
    /// # Errors
    /// None in practice.
    pub fn cipher(&self) -> Result<LessSafeKey, BadKey> {
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).map_err(|_| BadKey)?))
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

impl From<BadKey> for larder_store::Error {
    /// Damage: a wrong key of a customer is told apart before.
    fn from(BadKey: BadKey) -> Self {
        Self::new(larder_store::Kind::Damaged, "encrypted bytes do not open with their key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SecretKey = SecretKey([1; 32]);
    const B: SecretKey = SecretKey([2; 32]);

    #[test]
    fn only_the_key_that_wrapped_a_key_opens_it_for_its_purpose() {
        let wrapped = A.wrap(b"tea", &B, [7; 12]).unwrap();
        assert_eq!(A.unwrap_key(b"tea", &wrapped), Ok(B));
        assert_eq!(B.unwrap_key(b"tea", &wrapped), Err(BadKey));
        assert_eq!(A.unwrap_key(b"coffee", &wrapped), Err(BadKey));
        for at in 0..WRAPPED_KEY_BYTES {
            let mut damaged = wrapped;
            damaged[at] ^= 1;
            assert_eq!(A.unwrap_key(b"tea", &damaged), Err(BadKey), "byte {at}");
        }
    }

    #[test]
    fn keys_have_names_and_no_text() {
        assert_ne!(A.master_id(), B.master_id());
        assert_eq!(A.master_id().to_string(), "d4f4cddea4550348");
        assert_eq!(format!("{A:?}"), "SecretKey(..)");
        assert_ne!(A.derive::<16>(b"", &[b"tea"]), A.derive::<16>(b"", &[b"coffee"]));
        assert_ne!(A.derive::<16>(b"1", &[b"tea"]), A.derive::<16>(b"2", &[b"tea"]));
    }
}
