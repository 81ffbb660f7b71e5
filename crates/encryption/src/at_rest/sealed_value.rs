//! The sealed form of one value.
//!
//! ```text
//! version · rank · id of the data key, 8 bytes · number, 8 bytes · sealed value · tag, 16 bytes
//! ```
//! The number is the nonce: one run of a server counts with a data key that no other run has. The address of the row is bound in,
//! so a value that is moved to another row does not open.
//!
//! Of two writes with one stamp the greater stored value wins. The rank is the one bit of a clear value that decides there, that of
//! a tombstone. After it the later write of a run wins, and all replicas decide alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use bytes::Bytes;
use larder_rows::{DataKeyRow, SEAL_BYTES, SEALED_VERSION};
use larder_store::{Partition, Row, Timestamp};

use crate::key_ring::KeyRing;
use crate::secret_key::{BadKey, MasterKeyId, SecretKey};

/// Bytes before the sealed value.
const FRONT: usize = 1 + 1 + 8 + 8;
/// The bit of the second byte of a value that is its rank.
const RANK: u8 = 0x80;
/// Bound into each wrapped data key.
pub(super) const WRAPPED: &[u8] = b"larder data key 1";

/// Names a data key: 8 random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DataKeyId(pub(super) [u8; 8]);

/// A data key.
pub(super) struct DataKey {
    pub(super) id: DataKeyId,
    pub(super) secret: SecretKey,
    cipher: LessSafeKey,
    /// The number of the next value. Only the run that made the key counts on.
    next: AtomicU64,
}

impl DataKey {
    pub(super) fn new(id: DataKeyId, secret: SecretKey) -> Result<Self, BadKey> {
        Ok(Self { id, secret, cipher: secret.cipher()?, next: AtomicU64::new(0) })
    }

    /// Seals the value of a row.
    ///
    /// # Errors
    /// None in practice.
    pub(super) fn seal(&self, partition: &Partition, name: &[u8], value: &[u8]) -> Result<Bytes, BadKey> {
        // Relaxed: each caller needs a number of its own, in any order.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut sealed = Vec::with_capacity(value.len() + SEAL_BYTES);
        sealed.push(SEALED_VERSION);
        sealed.push(value.get(1).copied().unwrap_or_default() & RANK);
        sealed.extend_from_slice(&self.id.0);
        sealed.extend_from_slice(&number.to_be_bytes());
        sealed.extend_from_slice(value);
        let bound = Aad::from(address(partition, name));
        let tag = self.cipher.seal_in_place_separate_tag(nonce(number), bound, &mut sealed[FRONT..]);
        sealed.extend_from_slice(tag.map_err(|_| BadKey)?.as_ref());
        Ok(sealed.into())
    }

    /// Opens what [`Self::seal`] made.
    pub(super) fn open(&self, partition: &Partition, name: &[u8], sealed: &[u8]) -> Result<Bytes, BadKey> {
        let number = sealed.get(10..FRONT).and_then(|number| number.try_into().ok()).ok_or(BadKey)?;
        let mut value = sealed[FRONT..].to_vec();
        let bound = Aad::from(address(partition, name));
        let number = u64::from_be_bytes(number);
        let length = self.cipher.open_in_place(nonce(number), bound, &mut value).map_err(|_| BadKey)?.len();
        value.truncate(length);
        if sealed[1] != value.get(1).copied().unwrap_or_default() & RANK {
            return Err(BadKey);
        }
        Ok(value.into())
    }
}

/// Why a stored data key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnopenedKey {
    MissingMasterKey(MasterKeyId),
    Damaged,
}

/// A data key with the master key that wraps it now.
#[derive(Clone)]
pub(super) struct WrappedDataKey {
    pub(super) master: MasterKeyId,
    /// The stamp of its row.
    pub(super) stamp: Timestamp,
    pub(super) key: Arc<DataKey>,
}

impl WrappedDataKey {
    /// The data key in a row.
    ///
    /// # Errors
    /// The master key that the ring lacks, or damage.
    pub(super) fn from_row(row: &Row, ring: &KeyRing) -> Result<Self, UnopenedKey> {
        let id = DataKeyId(row.name.as_ref().try_into().map_err(|_| UnopenedKey::Damaged)?);
        let stored = DataKeyRow::decode(row.value.clone()).map_err(|_| UnopenedKey::Damaged)?;
        let master = MasterKeyId(stored.master_key);
        let wrapping = ring.find(master).ok_or(UnopenedKey::MissingMasterKey(master))?;
        let secret = wrapping.unwrap_key(WRAPPED, &stored.wrapped_key);
        let key = secret.and_then(|secret| DataKey::new(id, secret)).map_err(|BadKey| UnopenedKey::Damaged)?;
        Ok(Self { master, stamp: row.stamp, key: Arc::new(key) })
    }
}

/// Data keys by their ids: opens values without a store, as an inspection does.
#[derive(Clone, Default)]
pub struct RowKeys(pub(super) HashMap<DataKeyId, WrappedDataKey>);

/// A value, as stored.
pub(super) enum StoredValue {
    Clear(Bytes),
    /// Sealed with a key that is not known.
    OtherKey(DataKeyId),
}

impl RowKeys {
    /// The keys in these rows of data keys that the ring opens.
    #[must_use]
    pub fn from_rows(rows: &[Row], ring: &KeyRing) -> Self {
        let keys = rows.iter().filter_map(|row| WrappedDataKey::from_row(row, ring).ok());
        Self(keys.map(|found| (found.key.id, found)).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The clear value of a row; `None` where its key is not here, or it is damaged.
    #[must_use]
    pub fn clear_value(&self, partition: &Partition, name: &[u8], value: Bytes) -> Option<Bytes> {
        match self.open(partition, name, value) {
            Ok(StoredValue::Clear(value)) => Some(value),
            Ok(StoredValue::OtherKey(_)) | Err(BadKey) => None,
        }
    }

    /// Opens a value where it is sealed.
    ///
    /// # Errors
    /// [`BadKey`] for damage.
    pub(super) fn open(&self, partition: &Partition, name: &[u8], value: Bytes) -> Result<StoredValue, BadKey> {
        if value.first() != Some(&SEALED_VERSION) {
            return Ok(StoredValue::Clear(value));
        }
        let id = DataKeyId(value.get(2..10).and_then(|id| id.try_into().ok()).ok_or(BadKey)?);
        match self.0.get(&id) {
            Some(found) => Ok(StoredValue::Clear(found.key.open(partition, name, &value)?)),
            None => Ok(StoredValue::OtherKey(id)),
        }
    }
}

/// What is bound into a sealed value. The number of copies is left out: an engine on one machine does not store it.
fn address(partition: &Partition, name: &[u8]) -> Vec<u8> {
    let mut address = Vec::with_capacity(1 + 8 + partition.key.len() + name.len());
    address.push(partition.table.code());
    address.extend_from_slice(&(partition.key.len() as u64).to_be_bytes());
    address.extend_from_slice(&partition.key);
    address.extend_from_slice(name);
    address
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use larder_store::Table;

    use super::*;

    fn key(id: u8) -> DataKey {
        DataKey::new(DataKeyId([id; 8]), SecretKey::new([id; 32])).unwrap()
    }

    fn keys(ids: &[u8]) -> RowKeys {
        let wrapped =
            |id: &u8| WrappedDataKey { master: MasterKeyId([9; 8]), stamp: Timestamp(1), key: Arc::new(key(*id)) };
        RowKeys(ids.iter().map(|id| (DataKeyId([*id; 8]), wrapped(id))).collect())
    }

    fn partition(key: &'static str) -> Partition {
        Partition::new(Table::Objects, key)
    }

    #[test]
    fn a_value_opens_at_its_own_address_alone() {
        let (sealer, opener, at) = (key(1), keys(&[1]), partition("a"));
        let sealed = sealer.seal(&at, b"n", b"\x01tea").unwrap();
        assert_eq!(sealed.len(), 4 + SEAL_BYTES);
        let clear = |keys: &RowKeys, at: &Partition, name: &[u8]| keys.clear_value(at, name, sealed.clone());
        assert_eq!(clear(&opener, &at, b"n"), Some(Bytes::from_static(b"\x01tea")));
        assert_eq!(clear(&opener, &at, b"m"), None);
        assert_eq!(clear(&opener, &partition("b"), b"n"), None);
        assert_eq!(clear(&opener, &Partition { table: Table::Keys, ..at.clone() }, b"n"), None);
        assert_eq!(clear(&opener, &Partition { copies: 1, ..at.clone() }, b"n"), Some(Bytes::from_static(b"\x01tea")));
        // The key of the partition ends where it ends.
        assert_eq!(clear(&opener, &partition("an"), b""), None);
        assert_eq!(clear(&keys(&[2]), &at, b"n"), None);
    }

    #[test]
    fn a_flipped_bit_is_damage_or_another_key() {
        let (sealer, opener, at) = (key(1), keys(&[1]), partition("a"));
        let sealed = sealer.seal(&at, b"n", b"").unwrap();
        for place in 1..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[place] ^= 1;
            assert_eq!(opener.clear_value(&at, b"n", damaged.into()), None, "byte {place}");
        }
        for length in 1..sealed.len() {
            assert_eq!(opener.clear_value(&at, b"n", sealed.slice(..length)), None, "{length} bytes");
        }
    }

    #[test]
    fn equal_values_are_sealed_differently() {
        let (sealer, at) = (key(1), partition("a"));
        let sealed: Vec<Bytes> = (0..3).map(|_| sealer.seal(&at, b"n", b"tea").unwrap()).collect();
        assert!(sealed[0] != sealed[1] && sealed[1] != sealed[2]);
    }

    #[test]
    fn of_one_stamp_a_tombstone_wins_and_then_the_later_write() {
        let (sealer, at) = (key(1), partition("a"));
        let seal = |value: &[u8]| sealer.seal(&at, b"n", value).unwrap();
        let (tombstone, first, second) = (seal(b"\x01\x80"), seal(b"\x01\x04tea"), seal(b"\x01\0a"));
        assert!(tombstone > second && second > first && first > Bytes::from_static(b"\x01\x80"));
    }

    #[test]
    fn clear_values_stay_as_they_are() {
        for value in [&b""[..], b"\x01", b"\x01tea"] {
            let value = Bytes::from_static(value);
            assert_eq!(keys(&[]).clear_value(&partition("a"), b"n", value.clone()), Some(value));
        }
    }

    /// The stored form, byte for byte, from another implementation of AES-GCM.
    #[test]
    fn the_golden_sealed_value() {
        let sealed = key(1).seal(&partition("a"), b"n", b"\x01tea").unwrap();
        assert_eq!(hex::encode(&sealed[..FRONT]), "e50001010101010101010000000000000000");
        assert_eq!(hex::encode(&sealed[FRONT..]), GOLDEN);
    }

    const GOLDEN: &str = "be41fdbd9e4129c0bf1cf7593230905f078e6c59";
}
