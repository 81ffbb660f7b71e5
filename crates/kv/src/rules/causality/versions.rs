//! Resolves the rows of a key into siblings and a context.

use bytes::Bytes;
use larder_rows::codec::DecodeError;
use larder_rows::content::KvContent;
use larder_rows::limits::SIBLINGS_MAX;
use larder_rows::{Row, Timestamp, hash};

use super::context::{Context, Dot, SHARED_SLOT, Slot, Vtag};
use super::version_vector::{VectorEntry, VersionVector};
use super::write::ConflictPolicy;
use crate::rules::object_row::ObjectRow;

/// One live value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// The name of its row.
    pub name: Bytes,
    /// The write that made it.
    pub dot: Dot,
    /// The value.
    pub content: KvContent,
    context_hash: u64,
}

/// The versions of a key, as one read of its rows shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyVersions {
    /// Live values, newest first. Empty when the key was never written or is deleted.
    pub siblings: Vec<Sibling>,
    /// The rows that a writer with this context replaces: all that were read, shown or not, up to [`SIBLINGS_MAX`].
    pub context: Context,
    /// Whether there is a tombstone and no live value.
    pub deleted: bool,
}

impl Sibling {
    /// The value of a write that is not a row of an object.
    #[must_use]
    pub fn from_write(dot: Dot, content: KvContent) -> Self {
        Self { name: dot.slot.row_name(), dot, content, context_hash: 0 }
    }

    /// Its entity tag, without quotes.
    #[must_use]
    pub fn vtag(&self) -> Vtag {
        Vtag::new(&self.name, self.dot.clock)
    }

    /// Its last modification, in microseconds since 1970.
    #[must_use]
    pub fn modified(&self) -> Timestamp {
        self.dot.clock
    }
}

impl KeyVersions {
    /// Resolves the unexpired rows of a key, given in row order, by the policy of its bucket. The context also names rows that
    /// the policy hides: a change of the policy would show them again.
    ///
    /// # Errors
    /// [`DecodeError`] when a row is of an unknown version or damaged.
    pub fn from_rows(rows: Vec<Row>, policy: ConflictPolicy) -> Result<Self, DecodeError> {
        let mut rows = rows.into_iter().map(DecodedRow::decode).collect::<Result<Vec<_>, _>>()?;
        // WriteOnce shows the smallest SHA-1, which is the first in row order; all others show the newest.
        if policy != ConflictPolicy::WriteOnce && rows.len() > 1 {
            // The name breaks a tie, so that every gateway shows the same order.
            rows.sort_by(|a, b| (b.clock(), b.name()).cmp(&(a.clock(), a.name())));
        }
        let vector = VersionVector::merge(rows.iter().flat_map(DecodedRow::vector));
        // A replica that missed a removal brings the row back; without this step a replaced value would live again.
        if !vector.is_empty() {
            rows.iter_mut().for_each(|row| row.hide_if_superseded(&vector));
        }
        // Live rows come first: with more than SIBLINGS_MAX rows, expiring tombstones must not push out a value.
        rows.sort_by_key(|row| row.tombstone);
        // Bound: the context of more rows would not fit a header; the next read names the rest.
        rows.truncate(SIBLINGS_MAX);
        let context = rows_context(&rows, vector);
        let tombstones = rows.iter().any(|row| row.tombstone);
        let mut siblings: Vec<Sibling> = rows.into_iter().filter(|row| !row.tombstone).map(|row| row.sibling).collect();
        merge_retries(&mut siblings);
        if policy != ConflictPolicy::Siblings {
            siblings.truncate(1);
        }
        Ok(Self { deleted: siblings.is_empty() && tombstones, siblings, context })
    }

    /// The entity tag of the key: that of its only sibling, or a hash of the dots when there are several.
    #[must_use]
    pub fn etag(&self) -> Option<String> {
        match self.siblings.as_slice() {
            [] => None,
            [only] => Some(only.vtag().to_string()),
            [first, ..] => {
                let hash = u128::from(self.context.dots_hash()) << 64;
                Some(hash::base62(hash | u128::from(hash::id64(&[&first.name]))))
            }
        }
    }

    /// The last modification of the newest sibling, in microseconds since 1970.
    #[must_use]
    pub fn modified(&self) -> Option<Timestamp> {
        self.siblings.iter().map(Sibling::modified).max()
    }

    /// The greatest clock in the context, 0 for none.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        self.context.latest()
    }
}

/// The live value of a key that has one row and no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleVersion {
    /// The value.
    pub sibling: Sibling,
    /// As that of [`KeyVersions`].
    pub context: Context,
}

impl SingleVersion {
    /// The version in the only unexpired row of a key; `None` for a tombstone. No policy matters: each shows the only value.
    ///
    /// # Errors
    /// [`DecodeError`] when the row is of an unknown version or damaged.
    pub fn from_row(row: Row) -> Result<Option<Self>, DecodeError> {
        let row = DecodedRow::decode(row)?;
        if row.tombstone {
            return Ok(None);
        }
        // No entry hides the row: those of its own vector are older than it, and there is no other row.
        let context = rows_context(std::slice::from_ref(&row), VersionVector::merge(row.vector()));
        Ok(Some(Self { sibling: row.sibling, context }))
    }
}

/// A row of an object with its value decoded.
struct DecodedRow {
    sibling: Sibling,
    tombstone: bool,
    vector: VersionVector,
}

impl DecodedRow {
    fn decode(row: Row) -> Result<Self, DecodeError> {
        let object = ObjectRow::decode(row.value)?;
        // A write_once row is named by its content and has no slot: a context can name it by its clock only.
        let slot = if row.name.len() == 16 { Slot::from_row_name(&row.name)? } else { SHARED_SLOT };
        let dot = Dot { slot, clock: row.stamp, flags: object.flags() };
        let sibling = Sibling { name: row.name, dot, content: object.content, context_hash: object.context_hash };
        Ok(Self { sibling, tombstone: object.tombstone, vector: object.vector })
    }

    /// The vector of the row. A writer's clock passes every clock that it saw, so a later entry is forged and ignored.
    fn vector(&self) -> impl Iterator<Item = VectorEntry> {
        self.vector.iter().filter(|entry| entry.clock < self.clock())
    }

    /// Turns a superseded row into a tombstone: it is not shown, and the context still names it for the next write to remove.
    fn hide_if_superseded(&mut self, vector: &VersionVector) {
        // Race: a replica that missed the removal brought the row back [invariant 13].
        if vector.get(self.sibling.dot.slot) >= self.clock() {
            self.tombstone = true;
            self.sibling.dot.flags.tombstone = true;
        }
    }

    fn clock(&self) -> Timestamp {
        self.sibling.dot.clock
    }

    fn name(&self) -> &Bytes {
        &self.sibling.name
    }
}

fn rows_context(rows: &[DecodedRow], mut vector: VersionVector) -> Context {
    let mut dots: Vec<_> = rows.iter().map(|row| row.sibling.dot).collect();
    dots.sort_unstable();
    // A dot implies every older entry of its slot.
    vector.retain_bounded(|entry| !dots.iter().any(|dot| dot.slot == entry.slot && dot.clock >= entry.clock));
    Context { dots, vector }
}

/// Shows rows of equal content that replaced the same non-empty context once: a put and its retry are one write.
fn merge_retries(siblings: &mut Vec<Sibling>) {
    let mut shown: Vec<Sibling> = Vec::with_capacity(siblings.len());
    for sibling in siblings.drain(..) {
        let is_retry = |other: &Sibling| {
            // Without a context two equal puts are two writes: only a retry repeats a context [invariant 8].
            sibling.context_hash != 0
                && other.context_hash == sibling.context_hash
                && other.content.is_same_as(&sibling.content)
        };
        if !shown.iter().any(is_retry) {
            shown.push(sibling);
        }
    }
    *siblings = shown;
}
