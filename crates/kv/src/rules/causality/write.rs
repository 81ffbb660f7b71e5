//! The batch of a put or a delete: one new row, and the removal of the rows that it supersedes.

use bytes::Bytes;
use larder_core::rules::refusals::FailedCondition;
use larder_rows::content::{BlobId, Term};
use larder_rows::keyspace::Partition;
use larder_rows::{Change, Row, Timestamp};

use super::context::{Context, DotFlags, SHARED_SLOT, Slot};
use super::version_vector::VersionVector;
use super::versions::KeyVersions;
use crate::rules::index::SupersededTerms;
use crate::rules::object_row::{ObjectRow, view_row_name};

/// How concurrent writes of a key resolve; the bucket's properties choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// `allow_mult`: concurrent writes are all kept and all shown.
    Siblings,
    /// None of the others: concurrent writes are all kept, and the newest is shown.
    Newest,
    /// `last_write_wins`: one fixed row, whose greatest clock stays.
    LastWriteWins,
    /// `write_once`: one row per content, and the smallest SHA-1 is shown.
    WriteOnce,
}

impl ConflictPolicy {
    /// Whether every write has a slot and its row is named by it.
    #[must_use]
    pub fn has_slots(self) -> bool {
        matches!(self, Self::Siblings | Self::Newest)
    }
}

/// A row that a write supersedes and removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededRow {
    /// The name of the row.
    pub name: Bytes,
    /// The clock of its write: a later write to the row stays.
    pub clock: Timestamp,
    /// Properties of its write.
    pub flags: DotFlags,
}

/// The rows of the `$key` index that a write removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexRemovals {
    /// Those of the superseded rows.
    SupersededRows,
    /// Those of these slots, whether or not their rows are already gone. Other index rows stay while the key lives: the
    /// version vector names their slots, so a later delete finds them.
    Slots(VersionVector),
}

/// A put or delete of a key, ready to become a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrite {
    /// The policy of the bucket.
    pub policy: ConflictPolicy,
    /// The row to write.
    pub row: Option<Row>,
    /// Whether the row is a tombstone, which no index lists.
    pub tombstone: bool,
    /// The rows it supersedes. The write removes them, except one of its own name, which it overwrites.
    pub superseded: Vec<SupersededRow>,
    /// The index rows to remove.
    pub index_removals: IndexRemovals,
    /// The clock of the write.
    pub clock: Timestamp,
    /// The terms of the row.
    pub terms: Vec<Term>,
    /// The terms of superseded rows that have some: a read finds them, and the write removes their index rows.
    pub superseded_terms: Vec<SupersededTerms>,
}

impl SupersededRow {
    /// The rows that a context names.
    #[must_use]
    pub fn named_by(context: &Context) -> Vec<Self> {
        let mut dots = context.dots.clone();
        // A batch may name a row once only, and a client can send a context with two dots of one slot.
        dots.sort_unstable_by_key(|dot| (dot.slot, std::cmp::Reverse(dot.clock)));
        dots.dedup_by_key(|dot| dot.slot);
        dots.iter().map(|dot| Self { name: dot.slot.row_name(), clock: dot.clock, flags: dot.flags }).collect()
    }

    /// The rows that a read met. It knows the names of `write_once` rows, which no context can carry.
    #[must_use]
    pub fn from_versions(versions: &KeyVersions) -> Vec<Self> {
        let mut superseded = Self::named_by(&versions.context);
        for sibling in versions.siblings.iter().filter(|sibling| sibling.name.len() != 16) {
            superseded.push(Self { name: sibling.name.clone(), clock: sibling.dot.clock, flags: sibling.dot.flags });
        }
        superseded
    }

    /// The blob of the row, if it has one and its name gives the blob's id. The name of a row that several actors write does
    /// not: the sweeper removes the blobs that such a row replaced.
    #[must_use]
    pub fn blob(&self, partition: &Partition) -> Option<BlobId> {
        let is_slot = self.name.len() == SHARED_SLOT.row_name().len() && self.name != SHARED_SLOT.row_name();
        (self.flags.blob && is_slot).then(|| BlobId::for_row(&partition.key, &self.name, self.clock))
    }
}

impl KeyWrite {
    /// A put of `row` into `slot` at `clock`. A policy without slots names the row itself.
    #[must_use]
    pub fn put(
        policy: ConflictPolicy,
        slot: Slot,
        clock: Timestamp,
        row: &ObjectRow,
        superseded: Vec<SupersededRow>,
    ) -> Self {
        let terms = row.content.terms.clone();
        let row = Row { name: Self::row_name(policy, slot, row), value: row.encode(), stamp: clock, expires: None };
        let index_removals = IndexRemovals::SupersededRows;
        let superseded_terms = Vec::new();
        Self { policy, row: Some(row), tombstone: false, superseded, index_removals, clock, terms, superseded_terms }
    }

    fn row_name(policy: ConflictPolicy, slot: Slot, row: &ObjectRow) -> Bytes {
        match policy {
            ConflictPolicy::Siblings | ConflictPolicy::Newest => slot.row_name(),
            ConflictPolicy::LastWriteWins => SHARED_SLOT.row_name(),
            // A tombstone has no content: all deletions of a key share a row.
            ConflictPolicy::WriteOnce if row.tombstone => SHARED_SLOT.row_name(),
            // The content names the row, so a late retry writes the same row again [invariant 17].
            ConflictPolicy::WriteOnce => Bytes::copy_from_slice(&row.content.sha1()),
        }
    }

    /// A delete: a tombstone in `slot` that stores `vector`, expires at `expires` (`None`: never) and replaces `superseded`.
    #[must_use]
    pub fn delete(
        policy: ConflictPolicy,
        slot: Slot,
        clock: Timestamp,
        expires: Option<Timestamp>,
        vector: VersionVector,
        superseded: Vec<SupersededRow>,
    ) -> Self {
        let tombstone = ObjectRow { tombstone: true, context_hash: 0, vector, content: Default::default() };
        let name = Self::row_name(policy, slot, &tombstone);
        let row = Some(Row { name, value: tombstone.encode(), stamp: clock, expires });
        let index_removals = IndexRemovals::SupersededRows;
        let (terms, superseded_terms) = (Vec::new(), Vec::new());
        Self { policy, row, tombstone: true, superseded, index_removals, clock, terms, superseded_terms }
    }

    /// Supersedes further rows, found when the key had too many, and their index rows. `vector` is that of the further rows.
    pub fn supersede_more(&mut self, more: Vec<SupersededRow>, vector: VersionVector) {
        if let IndexRemovals::Slots(slots) = &mut self.index_removals {
            // These rows stored the vector: once they are gone, no row leads a later delete to the index rows of its slots.
            let dropped = more.iter().filter_map(SupersededRow::vector_entry).chain(vector);
            *slots = VersionVector::merge(slots.iter().chain(dropped));
        }
        self.superseded.extend(more);
    }

    /// The changes to the object's own partition.
    #[must_use]
    pub fn object_changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.superseded.len() + 2);
        match self.policy {
            // One microsecond less: the clear must spare the row of this batch, and a concurrent put of the same clock.
            ConflictPolicy::LastWriteWins => changes.push(Change::Clear { stamp: self.clock - 1 }),
            ConflictPolicy::WriteOnce if self.tombstone => changes.push(Change::Clear { stamp: self.clock - 1 }),
            ConflictPolicy::WriteOnce => {}
            // Each removal stops at the clock that the client saw: a later write to a reused slot survives.
            ConflictPolicy::Siblings | ConflictPolicy::Newest => changes.extend(
                self.superseded
                    .iter()
                    // The row of this write overwrites its namesake, so only the others are removed.
                    .filter(|gone| !self.is_row(&gone.name))
                    .map(|gone| Change::Remove { name: gone.name.clone(), stamp: gone.clock }),
            ),
        }
        changes.extend(self.row.clone().map(Change::Put));
        changes
    }

    /// The changes to the key's shard of the `$key` index: the new row's entry, and the index removals. With a policy without
    /// slots a delete removes every entry of the key, and the caller has to find them.
    #[must_use]
    pub fn key_view_changes(&self, key: &[u8]) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.superseded.len() + 1);
        let is_listed = |name: &Bytes| !self.tombstone && self.is_row(name);
        let mut remove = |name: &Bytes, stamp| {
            if !is_listed(name) {
                changes.push(Change::Remove { name: view_row_name(key, name), stamp });
            }
        };
        match &self.index_removals {
            IndexRemovals::SupersededRows if self.policy.has_slots() || !self.tombstone => {
                let listed = self.superseded.iter().filter(|gone| !gone.flags.tombstone);
                listed.for_each(|gone| remove(&gone.name, gone.clock));
            }
            IndexRemovals::SupersededRows => {}
            IndexRemovals::Slots(slots) => slots.iter().for_each(|gone| remove(&gone.slot.row_name(), gone.clock)),
        }
        if let Some(row) = self.row.as_ref().filter(|_| !self.tombstone) {
            let name = view_row_name(key, &row.name);
            // The entry has the stamp of its row: an older delete does not remove it [invariant 29].
            changes.push(Change::Put(Row { name, value: Bytes::new(), stamp: row.stamp, expires: row.expires }));
        }
        changes
    }

    /// Whether the row that it writes has this name.
    fn is_row(&self, name: &Bytes) -> bool {
        self.row.as_ref().is_some_and(|row| row.name == *name)
    }
}

/// The value of an `If-Match` or `If-None-Match` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtagMatcher {
    /// `*`: any live value.
    Any,
    /// One of these entity tags, without quotes.
    Tags(Vec<String>),
}

/// The conditions of one request; all must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// `If-Match`.
    pub if_match: Option<EtagMatcher>,
    /// `If-Unmodified-Since`, in seconds since 1970.
    pub if_unmodified_since: Option<u64>,
    /// `If-None-Match`.
    pub if_none_match: Option<EtagMatcher>,
    /// `If-Modified-Since`, in seconds since 1970.
    pub if_modified_since: Option<u64>,
    /// `X-Riak-If-Not-Modified`, PB `if_not_modified`: the live writes must still be those of this context.
    pub if_not_modified: Option<Context>,
}

/// The state of the key that conditions are checked against.
#[derive(Debug, Clone, Copy)]
pub struct CurrentValue<'a> {
    /// Entity tag, `None` when there is no live value.
    pub etag: Option<&'a str>,
    /// Last modification in seconds since 1970.
    pub modified: u64,
    /// The context that a read returns.
    pub context: &'a Context,
}

impl EtagMatcher {
    fn matches(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag == etag),
        }
    }
}

impl Conditions {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a write has to read first. By the reference's pre-read rule, `If-Modified-Since` alone never fails a write.
    #[must_use]
    pub fn needs_read(&self) -> bool {
        self.if_match.is_some()
            || self.if_unmodified_since.is_some()
            || self.if_none_match.is_some()
            || self.if_not_modified.is_some()
    }

    /// Checks all conditions in the reference's order. `now` is in seconds since 1970; a later `If-Modified-Since` is ignored.
    ///
    /// # Errors
    /// The first condition that fails.
    pub fn check(&self, current: CurrentValue<'_>, reading: bool, now: u64) -> Result<(), FailedCondition> {
        if let Some(seen) = &self.if_not_modified {
            match current.etag {
                None => return Err(FailedCondition::Missing),
                Some(_) if !seen.has_same_live_dots(current.context) => return Err(FailedCondition::Modified),
                Some(_) => {}
            }
        }
        // Without a live value there is no tag to match, and only `If-Match` demands one.
        let Some(etag) = current.etag else {
            return if self.if_match.is_some() { Err(FailedCondition::Precondition) } else { Ok(()) };
        };
        if self.if_match.as_ref().is_some_and(|matcher| !matcher.matches(etag)) {
            return Err(FailedCondition::Precondition);
        }
        if self.if_unmodified_since.is_some_and(|since| current.modified > since) {
            return Err(FailedCondition::Precondition);
        }
        if self.if_none_match.as_ref().is_some_and(|matcher| matcher.matches(etag)) {
            return Err(if reading { FailedCondition::NotModified } else { FailedCondition::Precondition });
        }
        // A date in the future says nothing about the past, so it is ignored (RFC 9110).
        let unmodified = self.if_modified_since.is_some_and(|since| since <= now && current.modified <= since);
        if reading && self.if_none_match.is_none() && unmodified { Err(FailedCondition::NotModified) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(conditions: Conditions, etag: Option<&str>, reading: bool) -> Result<(), FailedCondition> {
        let context = Context::default();
        conditions.check(CurrentValue { etag, modified: 100, context: &context }, reading, 1000)
    }

    fn tags(tag: &str) -> Option<EtagMatcher> {
        Some(EtagMatcher::Tags(vec![tag.into()]))
    }

    #[test]
    fn if_match_fails_without_the_current_tag() {
        let if_match = |matcher| Conditions { if_match: matcher, ..Conditions::default() };
        assert_eq!(check(if_match(tags("a")), Some("a"), false), Ok(()));
        assert_eq!(check(if_match(tags("b")), Some("a"), false), Err(FailedCondition::Precondition));
        assert_eq!(check(if_match(Some(EtagMatcher::Any)), Some("a"), false), Ok(()));
        assert_eq!(check(if_match(Some(EtagMatcher::Any)), None, false), Err(FailedCondition::Precondition));
    }

    #[test]
    fn if_none_match_is_304_for_reads_and_412_for_writes() {
        let if_none_match = |matcher| Conditions { if_none_match: matcher, ..Conditions::default() };
        assert_eq!(check(if_none_match(tags("a")), Some("a"), true), Err(FailedCondition::NotModified));
        assert_eq!(check(if_none_match(Some(EtagMatcher::Any)), Some("a"), false), Err(FailedCondition::Precondition));
        assert_eq!(check(if_none_match(Some(EtagMatcher::Any)), None, false), Ok(()));
        assert_eq!(check(if_none_match(tags("b")), Some("a"), true), Ok(()));
    }

    #[test]
    fn dates_compare_by_the_second_and_the_future_is_ignored() {
        let since = |since| Conditions { if_modified_since: Some(since), ..Conditions::default() };
        assert_eq!(check(since(100), Some("a"), true), Err(FailedCondition::NotModified));
        assert_eq!(check(since(99), Some("a"), true), Ok(()));
        assert_eq!(check(since(5000), Some("a"), true), Ok(()));
        let unmodified = Conditions { if_unmodified_since: Some(99), ..Conditions::default() };
        assert_eq!(check(unmodified, Some("a"), false), Err(FailedCondition::Precondition));
    }

    #[test]
    fn if_not_modified_fails_on_a_missing_value() {
        let seen = Conditions { if_not_modified: Some(Context::default()), ..Conditions::default() };
        assert_eq!(check(seen.clone(), None, false), Err(FailedCondition::Missing));
        assert_eq!(check(seen, Some("a"), false), Ok(()));
    }
}
