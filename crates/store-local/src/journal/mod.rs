//! The journal (write-ahead log): every group, in order, until its writes are in tables.
//!
//! ```text
//! journal/00000007.jnl   sealed: the manifest names its last group, its checksum and its length
//! journal/00000008.jnl   active: the committer appends to it and is the only writer
//! ```
//! The committer seals a long file: it syncs the file, creates and syncs the next one, and names both in the manifest before
//! the first frame goes to the new file. A sealed file is removed when every write in it is in a table; the manifest forgets it
//! first. A start reads the files before it opens anything ([`scan`]): the manifest names the files and the ends of the sealed
//! ones, the chain of frames shows a gap, and `synced` tells a torn end from a lost one.

mod file;
mod files;
mod frame;
mod scan;
mod sync;

use std::sync::Arc;

use bytes::Bytes;

use crate::tree_id::TreeId;

pub(crate) use file::JournalFile;
pub(crate) use files::{JournalEnd, JournalFiles, ManifestJournal, numbers, path};
#[cfg(test)]
pub(crate) use frame::FrameBuffer;
pub(crate) use frame::{HEADER_BYTES, JournalFrame, JournalHeader};
pub(crate) use scan::{replay, scan};
#[cfg(test)]
pub(crate) use sync::encode_synced;
pub(crate) use sync::{SyncedFile, decode_synced};

/// The writes of one group, applied whole (RocksDB: write group).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct WriteGroup {
    /// Number: one more than that of the group before.
    pub(crate) number: u64,
    /// Sequence number of all its writes: greater than that of any earlier write.
    pub(crate) seqno: u64,
    /// The writes, each key at most once; `None` removes the key.
    pub(crate) writes: Vec<(TreeId, Bytes, Option<Bytes>)>,
}

/// The reason why a group was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The disk has no room; nothing of the group remains.
    #[error("the disk is full")]
    Full,
    /// The group may be written in part: no group may follow it.
    #[error("{0}")]
    Failed(String),
}

/// The log that the committer writes to; a port, so that tests can make it fail.
pub(crate) trait Journal: Send {
    /// Appends a group. It then survives the end of the process, not yet a power cut.
    ///
    /// # Errors
    /// `Full`: nothing of the group remains. `Failed`: a part of it may remain.
    fn append(&mut self, group: &WriteGroup) -> Result<(), JournalError>;

    /// Its syncs, which run beside appends.
    fn syncs(&self) -> Arc<dyn JournalSync>;
}

/// The syncs of a [`Journal`].
pub(crate) trait JournalSync: Send + Sync {
    /// Syncs: all groups appended before the call are on disk once this returns. Returns whether there was any to sync.
    ///
    /// # Errors
    /// `Failed`, also after an earlier failure: Linux may report success for the next sync.
    fn sync(&self) -> Result<bool, JournalError>;
}
