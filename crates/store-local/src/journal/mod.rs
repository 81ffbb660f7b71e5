//! The journal: every group, in order, until its writes are in tables.
//!
//! ```text
//! journal/00000007.jnl   sealed: the manifest names its last group, its checksum and its length
//! journal/00000008.jnl   active: the committer appends to it and is the only writer
//! ```
//! A file is sealed when it is long: it is synced, the next file is made and synced, and the manifest names both before the
//! first frame goes to the new file. A sealed file goes when every write in it is in a table; the manifest forgets it first.
//! A start reads the files before it opens anything ([`scan`]): the manifest says which must be there and where they end,
//! the frames' chain says that none is missing between, and `synced` tells a torn end from a lost one.

mod file;
mod frame;
mod scan;

use bytes::Bytes;

use crate::spaces::Space;

pub(crate) use file::{JournalEnd, JournalFile, JournalFiles, ManifestedJournal, path};
#[cfg(test)]
pub(crate) use frame::FrameBuffer;
pub(crate) use frame::{HEADER_BYTES, JournalHeader};
pub(crate) use scan::{replay, scan};

/// Writes of one group, applied whole.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its number: one more than the number of the group before it.
    pub(crate) number: u64,
    /// Sequence number of its writes: greater than that of any write before.
    pub(crate) seqno: u64,
    /// Its writes (`None`: removes), each key at most once.
    pub(crate) writes: Vec<(Space, Bytes, Option<Bytes>)>,
}

/// Why a group was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The disk has no room; nothing of the group remains.
    #[error("the disk is full")]
    Full,
    /// It failed, and may be written in part: nothing may be written after it.
    #[error("{0}")]
    Failed(String),
}

/// Where groups go.
pub(crate) trait Journal: Send {
    /// Appends a group: it survives the end of the process afterwards.
    ///
    /// # Errors
    /// `Full`: nothing of it remains. `Failed`: a part of it may remain.
    fn append(&mut self, group: &Group) -> Result<(), JournalError>;

    /// Returns when all groups so far are on disk.
    ///
    /// # Errors
    /// `Failed`.
    fn sync(&mut self) -> Result<(), JournalError>;
}
