//! The three keyspaces of the engine below, and its errors in the store's words.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, LsmError, Readable};
use larder_store::{Error, Kind, Result, Row};

use crate::cache::EntryCache;
use crate::descriptors::TABLES_OPEN_MAX;
use crate::{entry, keys};

/// One of the three keyspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Space {
    /// A partition is one entry.
    Packed,
    /// A row is one entry.
    Wide,
    /// Bodies, kept apart from their keys.
    Bulk,
}

impl Space {
    /// Every keyspace.
    pub(crate) const ALL: [Self; 3] = [Self::Packed, Self::Wide, Self::Bulk];

    fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Wide => "wide",
            Self::Bulk => "bulk",
        }
    }

    /// Missing gets matter in packed and wide: their last level keeps its filters. Whoever asks for a bulk row has its name.
    fn options(self) -> KeyspaceCreateOptions {
        let bloom = |policy| FilterPolicyEntry::Bloom(policy);
        let options = KeyspaceCreateOptions::default()
            .manual_journal_persist(true)
            .filter_policy(FilterPolicy::new([
                bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
                bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
            ]))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .expect_point_read_hits(self == Self::Bulk);
        match self {
            Self::Packed | Self::Wide => options,
            Self::Bulk => options.with_kv_separation(Some(KvSeparationOptions::default())),
        }
    }
}

/// The engine below, opened.
#[derive(Clone)]
pub(crate) struct Spaces {
    /// All of it.
    pub(crate) database: Database,
    packed: Keyspace,
    wide: Keyspace,
    bulk: Keyspace,
    /// Packed entries that are read often.
    pub(crate) cache: Arc<EntryCache>,
}

impl Spaces {
    /// Opens or creates the engine's directory.
    pub(crate) fn open(dir: &Path, cache_bytes: u64) -> fjall::Result<Self> {
        let database = Database::builder(dir)
            .cache_size(cache_bytes - cache_bytes / 2)
            .max_cached_files(Some(TABLES_OPEN_MAX))
            .manual_journal_persist(true)
            .journal_compression(CompressionType::None)
            .open()?;
        let keyspace = |space: Space| database.keyspace(space.name(), || space.options());
        let (packed, wide, bulk) = (keyspace(Space::Packed)?, keyspace(Space::Wide)?, keyspace(Space::Bulk)?);
        let cache = Arc::new(EntryCache::new(cache_bytes / 2));
        Ok(Self { database, packed, wide, bulk, cache })
    }

    /// Writes what is in memory out to tables, so that the next open has no journal to read.
    pub(crate) fn settle(&self) -> fjall::Result<()> {
        Space::ALL.into_iter().try_for_each(|space| self.keyspace(space).rotate_memtable_and_wait())
    }

    /// One of the keyspaces.
    pub(crate) fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Packed => &self.packed,
            Space::Wide => &self.wide,
            Space::Bulk => &self.bulk,
        }
    }

    /// One entry, sharing the engine's memory.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let entry = self.keyspace(space).get(key).map_err(|error| read_failed(space, error))?;
        Ok(entry.map(Bytes::from_owner))
    }

    /// As [`Self::get`], of whole groups: a head is never seen before its shadow.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn settled(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let entry = self.database.snapshot().get(self.keyspace(space), key);
        Ok(entry.map_err(|error| read_failed(space, error))?.map(Bytes::from_owner))
    }

    /// As [`Self::packed_rows`], for readers: of whole groups, and what is read often is kept.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn cached_rows(&self, key: &Bytes) -> Result<Option<Vec<Row>>> {
        let entry = match self.cache.get(key) {
            Ok(entry) => Some(entry),
            Err(begun) => {
                let entry = self.settled(Space::Packed, key)?;
                if let Some(entry) = &entry {
                    self.cache.offer(key.clone(), entry, begun);
                }
                entry
            }
        };
        entry.map(|entry| entry::decode_packed(entry).map_err(|error| damaged(Space::Packed, error))).transpose()
    }

    /// The rows of a packed partition, expired ones too; `None` when it has no entry.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn packed_rows(&self, key: &[u8]) -> Result<Option<Vec<Row>>> {
        let entry = self.get(Space::Packed, key)?;
        entry.map(|entry| entry::decode_packed(entry).map_err(|error| damaged(Space::Packed, error))).transpose()
    }

    /// Entries from `from` to before `to` as the committer sees them: no other thread writes.
    pub(crate) fn entries(
        &self,
        space: Space,
        from: &Bytes,
        to: &Bytes,
    ) -> impl Iterator<Item = Result<(Bytes, Bytes)>> {
        let entries = self.keyspace(space).range(from.clone()..to.clone());
        entries.map(move |guard| pair(space, guard))
    }

    /// The number of the last group written to this keyspace, 0 when there was none.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub(crate) fn group(&self, space: Space) -> Result<u64> {
        let entry = self.get(space, keys::GROUP_KEY)?;
        entry.map_or(Ok(0), |entry| entry::decode_group(entry).map_err(|error| damaged(space, error)))
    }
}

/// Key and value behind a guard, sharing the engine's memory.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn pair(space: Space, guard: fjall::Guard) -> Result<(Bytes, Bytes)> {
    let (key, value) = guard.into_inner().map_err(|error| read_failed(space, error))?;
    Ok((Bytes::from_owner(key), Bytes::from_owner(value)))
}

/// The store's error for an entry that does not decode.
pub(crate) fn damaged(space: Space, error: larder_model::codec::DecodeError) -> Error {
    Error::caused(Kind::Damaged, format_args!("an entry of {} is damaged", space.name()), error)
}

/// The store's error for a read that the engine below refused.
pub(crate) fn read_failed(space: Space, error: fjall::Error) -> Error {
    let kind = if is_damage(&error) { Kind::Damaged } else { Kind::Io };
    Error::caused(kind, format_args!("reading {} failed", space.name()), error)
}

/// Whether the engine below found wrong bytes, rather than being refused by the machine.
pub(crate) fn is_damage(error: &fjall::Error) -> bool {
    match error {
        fjall::Error::Storage(LsmError::Io(error)) | fjall::Error::Io(error) => {
            error.kind() == std::io::ErrorKind::UnexpectedEof || error.kind() == std::io::ErrorKind::InvalidData
        }
        fjall::Error::Storage(_)
        | fjall::Error::JournalRecovery(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Unrecoverable => true,
        _ => false,
    }
}
