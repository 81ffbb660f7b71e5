//! The port to the journal: what may fail when writing, so that tests can make it fail.

use bytes::Bytes;
use fjall::PersistMode;

use crate::spaces::{Space, Spaces};
use crate::{entry, keys};

/// Free bytes that a group leaves: the engine below needs room to tidy up, and does not survive without.
const DISK_RESERVE_BYTES: u64 = 128 * 1024 * 1024;
/// Free bytes below which no small group is written either.
const DISK_RESERVE_FOR_SMALL_BYTES: u64 = 32 * 1024 * 1024;
/// Most bytes of a small group. Whoever makes room comes in small groups: a delete writes a tombstone before it removes
/// anything, and shares its group with the marks that gateways write in passing.
const SMALL_GROUP_BYTES: u64 = 64 * 1024;

/// Writes of one group, applied whole.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Its number: one more than the group's before it.
    pub(crate) number: u64,
    /// What it writes (`None`: removes), each key at most once.
    pub(crate) writes: Vec<(Space, Bytes, Option<Bytes>)>,
}

impl Group {
    /// Bytes it adds; 0 when it only removes.
    fn bytes(&self) -> u64 {
        self.writes.iter().filter_map(|(_, key, value)| Some(key.len() + value.as_ref()?.len())).sum::<usize>() as u64
    }

    /// Free bytes that the disk must have before it is written.
    fn needs_free(&self) -> u64 {
        match self.bytes() {
            ..=SMALL_GROUP_BYTES => DISK_RESERVE_FOR_SMALL_BYTES,
            bytes => DISK_RESERVE_BYTES + bytes,
        }
    }

    /// Whether it writes to this keyspace.
    pub(crate) fn touches(&self, space: Space) -> bool {
        self.writes.iter().any(|(touched, _, _)| *touched == space)
    }
}

/// Why a group was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// There is no room for it; nothing of it was written.
    #[error("the disk is full: {free} bytes are free")]
    Full {
        /// Free bytes.
        free: u64,
    },
    /// It failed, and may be written in part: nothing may be written after it.
    #[error("{0}")]
    Failed(String),
}

/// Where groups go.
pub(crate) trait Journal: Send {
    /// Writes a group: readers see it afterwards, and it survives the end of the process.
    fn commit(&mut self, group: &Group) -> Result<(), JournalError>;

    /// Returns when all that was committed is on disk.
    fn sync(&mut self) -> Result<(), JournalError>;
}

/// The journal of the engine below.
pub(crate) struct FjallJournal {
    spaces: Spaces,
    dir: std::path::PathBuf,
}

impl FjallJournal {
    /// The journal of these keyspaces, which lie in `dir`.
    pub(crate) fn new(spaces: Spaces, dir: std::path::PathBuf) -> Self {
        Self { spaces, dir }
    }

    /// Refuses a group while nothing of it is written, because a write that fails half-way ends all writing.
    fn check_room(&self, group: &Group) -> Result<(), JournalError> {
        let disk = rustix::fs::statvfs(&self.dir).map_err(|error| JournalError::Failed(error.to_string()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < group.needs_free() { Err(JournalError::Full { free }) } else { Ok(()) }
    }
}

impl Journal for FjallJournal {
    fn commit(&mut self, group: &Group) -> Result<(), JournalError> {
        self.check_room(group)?;
        let writes = fjall::OwnedWriteBatch::with_capacity(self.spaces.database.clone(), group.writes.len() + 3);
        let mut writes = writes.durability(Some(PersistMode::Buffer));
        for (space, key, value) in &group.writes {
            match value {
                Some(value) => writes.insert(self.spaces.keyspace(*space), &key[..], &value[..]),
                None => writes.remove(self.spaces.keyspace(*space), &key[..]),
            }
        }
        let number = entry::encode_group(group.number);
        for space in Space::ALL.into_iter().filter(|space| group.touches(*space)) {
            writes.insert(self.spaces.keyspace(space), keys::GROUP_KEY, &number[..]);
        }
        writes.commit().map_err(|error| JournalError::Failed(error.to_string()))
    }

    /// `SyncData` is enough: it waits for the data, for the length of the file, and for the blocks that were holes before.
    /// The entry in the directory is synced by the engine when it makes a new journal.
    fn sync(&mut self) -> Result<(), JournalError> {
        self.spaces.database.persist(PersistMode::SyncData).map_err(|error| JournalError::Failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn group(values: &[Option<usize>]) -> Group {
        let value = |length: &Option<usize>| length.map(|length| Bytes::from(vec![0; length]));
        let writes = values.iter().map(|length| (Space::Packed, Bytes::from_static(b"k"), value(length)));
        Group { number: 1, writes: writes.collect() }
    }

    #[test]
    fn small_groups_are_written_until_little_is_free() {
        let small = [&[None][..], &[Some(100)], &[Some(100), None, Some(64 * 1024 - 102)]];
        for values in small {
            assert_eq!(group(values).needs_free(), 32 * MIB, "{values:?}");
        }
    }

    #[test]
    fn large_groups_leave_more_and_need_their_own_bytes() {
        assert_eq!(group(&[Some(64 * 1024)]).needs_free(), 128 * MIB + 64 * 1024 + 1);
        assert_eq!(group(&[Some(40_000), None, Some(40_000)]).needs_free(), 128 * MIB + 80_002);
    }
}
