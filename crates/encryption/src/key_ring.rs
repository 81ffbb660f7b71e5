//! The master keys: the last one wraps new keys, all of them open older ones.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::secret_key::{MasterKeyId, SecretKey};

/// Most keys in a ring.
const KEYS_MAX: usize = 1_000;

/// The place where a ring is kept. Its text has one key a line, 32 bytes in base64; empty lines and those that begin with `#` say
/// nothing.
pub trait KeyRingPlace: Send + Sync {
    /// Adds a line, for good: when this returns, a start reads it.
    ///
    /// # Errors
    /// Those of the file; `Unsupported` where keys come from elsewhere.
    fn add(&self, line: &str) -> io::Result<()>;
}

/// A ring in memory: its keys end with the process, as the data of the memory engine does.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryKeys;

impl KeyRingPlace for MemoryKeys {
    fn add(&self, _line: &str) -> io::Result<()> {
        Ok(())
    }
}

/// The master keys.
pub struct KeyRing {
    keys: RwLock<Vec<SecretKey>>,
    /// `Arc`, as keys are added on a thread that may wait for a disk.
    place: Arc<dyn KeyRingPlace>,
    /// Held while a key is made, so that two first writes make one.
    making: Mutex<()>,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRing({} keys)", self.keys.read().len())
    }
}

impl KeyRing {
    /// A ring with the keys in this text.
    ///
    /// # Errors
    /// The number of a line that is no key, or comes twice.
    pub fn parse(text: &str, place: Arc<dyn KeyRingPlace>) -> Result<Self, BadRing> {
        let mut keys: Vec<SecretKey> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = STANDARD.decode(line).ok().and_then(|bytes| bytes.try_into().ok()).map(SecretKey::new);
            let key = key.filter(|key| !keys.contains(key)).ok_or(BadRing { line: at + 1 })?;
            if keys.len() == KEYS_MAX {
                return Err(BadRing { line: at + 1 });
            }
            keys.push(key);
        }
        Ok(Self { keys: RwLock::new(keys), place, making: Mutex::default() })
    }

    /// An empty ring in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { keys: RwLock::default(), place: Arc::new(MemoryKeys), making: Mutex::default() }
    }

    /// The ids of the keys, the current one last.
    #[must_use]
    pub fn ids(&self) -> Vec<MasterKeyId> {
        self.keys.read().iter().map(SecretKey::master_id).collect()
    }

    /// The key with this id.
    #[must_use]
    pub fn find(&self, id: MasterKeyId) -> Option<SecretKey> {
        self.keys.read().iter().rev().find(|key| key.master_id() == id).copied()
    }

    /// The key that wraps new ones. The first use of an empty ring makes one.
    ///
    /// # Errors
    /// `NoMasterKey`; `DiskFull`, `NotStored`.
    pub async fn current(&self, random: fn(&mut [u8])) -> Result<SecretKey, KeyRingError> {
        let last = || self.keys.read().last().copied();
        if let Some(key) = last() {
            return Ok(key);
        }
        let _making = self.making.lock().await;
        match last() {
            Some(key) => Ok(key),
            None => self.add(random).await,
        }
    }

    /// Adds a key, which wraps new ones from now on. Older ones stay.
    ///
    /// # Errors
    /// `NoMasterKey` where keys come from elsewhere; `Many`, `DiskFull`, `NotStored`.
    pub async fn rotate(&self, random: fn(&mut [u8])) -> Result<MasterKeyId, KeyRingError> {
        let _making = self.making.lock().await;
        Ok(self.add(random).await?.master_id())
    }

    async fn add(&self, random: fn(&mut [u8])) -> Result<SecretKey, KeyRingError> {
        if self.keys.read().len() >= KEYS_MAX {
            return Err(KeyRingError::Many);
        }
        let mut bytes = [0; 32];
        random(&mut bytes);
        let (key, line, place) = (SecretKey::new(bytes), STANDARD.encode(bytes), Arc::clone(&self.place));
        // Crash: stored before its first use. Bytes whose master key is lost are lost.
        let stored = tokio::task::spawn_blocking(move || place.add(&line)).await.map_err(io::Error::other).flatten();
        match stored {
            Ok(()) => {
                self.keys.write().push(key);
                Ok(key)
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(KeyRingError::NoMasterKey),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(KeyRingError::DiskFull),
            Err(error) => Err(KeyRingError::NotStored(error.to_string())),
        }
    }
}

/// Why a ring has no key, or no further one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// There is no master key, and none can be made.
    #[error("no master key: start with --encryption-keys")]
    NoMasterKey,
    /// The ring is full.
    #[error("the ring has {KEYS_MAX} master keys already")]
    Many,
    /// The disk has no room for a key.
    #[error("a master key cannot be stored: the disk is full")]
    DiskFull,
    /// The place of the ring takes no key.
    #[error("a master key cannot be stored: {0}")]
    NotStored(String),
}

/// A line of a ring that is no key, or one that came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not a new key of 32 bytes in base64")]
pub struct BadRing {
    /// Its number, from 1.
    pub line: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &mut [u8]) {
        use std::sync::atomic::{AtomicU8, Ordering};
        static NEXT: AtomicU8 = AtomicU8::new(1);
        bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
    }

    struct FullDisk;

    impl KeyRingPlace for FullDisk {
        fn add(&self, _line: &str) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[tokio::test]
    async fn a_first_key_on_a_full_disk_was_a_fault_of_the_server() {
        let ring = KeyRing::parse("", Arc::new(FullDisk)).unwrap();
        let refused = ring.current(counted).await.unwrap_err();
        assert_eq!(refused, KeyRingError::DiskFull);
        assert!(ring.ids().is_empty(), "no object may use a key that is not stored");
    }

    struct Elsewhere;

    impl KeyRingPlace for Elsewhere {
        fn add(&self, _line: &str) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[tokio::test]
    async fn the_first_use_makes_a_key_and_a_rotation_another() {
        let ring = KeyRing::in_memory();
        assert!(ring.ids().is_empty());
        let first = ring.current(counted).await.unwrap();
        assert_eq!(ring.current(counted).await.unwrap(), first);
        let second = ring.rotate(counted).await.unwrap();
        assert_eq!(ring.ids(), [first.master_id(), second]);
        assert_eq!(ring.current(counted).await.unwrap().master_id(), second);
        assert_eq!(ring.find(first.master_id()), Some(first));
        assert_eq!(ring.find(MasterKeyId([0; 8])), None);
    }

    #[tokio::test]
    async fn a_ring_from_elsewhere_is_used_and_not_changed() {
        let text = format!("# ours\n\n{}\n {} \n", STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
        let ring = KeyRing::parse(&text, Arc::new(Elsewhere)).unwrap();
        assert_eq!(ring.current(counted).await.unwrap(), SecretKey::new([2; 32]));
        let refused = ring.rotate(counted).await.unwrap_err();
        assert_eq!(refused, KeyRingError::NoMasterKey);
        assert_eq!(ring.ids().len(), 2);
        let empty = KeyRing::parse("", Arc::new(Elsewhere)).unwrap();
        assert!(empty.current(counted).await.is_err());
    }

    #[test]
    fn a_line_that_is_no_key_is_named() {
        let key = STANDARD.encode([1; 32]);
        for (text, line) in [
            ("tea".to_owned(), 1),
            (format!("{key}\n\n{}", STANDARD.encode([1; 31])), 3),
            (format!("{key}\n{key}\n"), 2),
        ] {
            assert_eq!(KeyRing::parse(&text, Arc::new(Elsewhere)).err(), Some(BadRing { line }), "{text}");
        }
    }
}
