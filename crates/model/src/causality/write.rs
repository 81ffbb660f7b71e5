//! What a put or a delete writes: one row, and the removal of the rows it names.

use bytes::Bytes;

use super::context::Context;
use super::covers::newest;
use super::dot::{ANY_SLOT, Clock, Cover, DotFlags, Slot};
use super::versions::Versions;
use crate::content::BlobId;
use crate::keyspace::Partition;
use crate::rows::{Change, Micros, ObjectRow, Row, view_row_name};

/// How the writes of a bucket meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `allow_mult`: concurrent writes are all kept and all shown.
    Siblings,
    /// Neither: kept alike, the newest is shown.
    Newest,
    /// `last_write_wins`: one fixed row, the greatest clock stays.
    LastWriteWins,
    /// `write_once`: a row per content, the smallest SHA-1 is shown.
    WriteOnce,
}

impl Mode {
    /// Whether every write has a row of its own, named by its slot.
    #[must_use]
    pub fn names_slots(self) -> bool {
        matches!(self, Self::Siblings | Self::Newest)
    }
}

/// A row that a write removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its name.
    pub name: Bytes,
    /// Its clock.
    pub clock: Clock,
    /// What is known of it.
    pub flags: DotFlags,
}

/// Which entries of views a write takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unlisted {
    /// Those of the rows it removes.
    Removed,
    /// Those of these slots, whether their rows go now or went before: others stay while the key lives, and covers name them.
    Slots(Vec<Cover>),
}

/// A write ready to become a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// How the bucket resolves.
    pub mode: Mode,
    /// The row to write.
    pub row: Option<Row>,
    /// Whether the row is a tombstone, which no view lists.
    pub tombstone: bool,
    /// The rows it replaces: they are removed, but for one of its own name, which it overwrites.
    pub removed: Vec<Removed>,
    /// The entries to remove.
    pub unlisted: Unlisted,
    /// The write's clock.
    pub clock: Clock,
}

impl Removed {
    /// The rows a context names.
    #[must_use]
    pub fn named_by(context: &Context) -> Vec<Self> {
        let mut dots = context.dots.clone();
        // A batch names a row once, whatever a client put together.
        dots.sort_unstable_by_key(|dot| (dot.slot, std::cmp::Reverse(dot.clock)));
        dots.dedup_by_key(|dot| dot.slot);
        dots.iter().map(|dot| Self { name: dot.slot.row_name(), clock: dot.clock, flags: dot.flags }).collect()
    }

    /// The rows of what was read, under the names they really have.
    #[must_use]
    pub fn seen(versions: &Versions) -> Vec<Self> {
        let mut removed = Self::named_by(&versions.context);
        for sibling in versions.siblings.iter().filter(|sibling| sibling.name.len() != 16) {
            removed.push(Self { name: sibling.name.clone(), clock: sibling.dot.clock, flags: sibling.dot.flags });
        }
        removed
    }

    /// The blob of the row, if it had one and its name says which. A row that every write shares does not: the sweeper
    /// removes what it replaced.
    #[must_use]
    pub fn blob(&self, partition: &Partition) -> Option<BlobId> {
        let is_slot = self.name.len() == ANY_SLOT.row_name().len() && self.name != ANY_SLOT.row_name();
        (self.flags.blob && is_slot).then(|| BlobId::of(&partition.key, &self.name, self.clock))
    }
}

impl Write {
    /// A put of `row` into `slot` at `clock`. Modes that name no slots name the row their own way.
    #[must_use]
    pub fn put(mode: Mode, slot: Slot, clock: Clock, row: &ObjectRow, removed: Vec<Removed>) -> Self {
        let row = Row { name: Self::row_name(mode, slot, row), value: row.encode(), stamp: clock, expires: None };
        Self { mode, row: Some(row), tombstone: false, removed, unlisted: Unlisted::Removed, clock }
    }

    fn row_name(mode: Mode, slot: Slot, row: &ObjectRow) -> Bytes {
        match mode {
            Mode::Siblings | Mode::Newest => slot.row_name(),
            Mode::LastWriteWins => ANY_SLOT.row_name(),
            // A tombstone has no content: all deletions of a key share a row.
            Mode::WriteOnce if row.tombstone => ANY_SLOT.row_name(),
            Mode::WriteOnce => Bytes::copy_from_slice(&row.content.sha1()),
        }
    }

    /// A deletion: a tombstone in `slot` that knows `covers` and expires at `expires` (`None`: never), in place of what it saw.
    #[must_use]
    pub fn delete(
        mode: Mode,
        slot: Slot,
        clock: Clock,
        expires: Option<Micros>,
        covers: Vec<Cover>,
        removed: Vec<Removed>,
    ) -> Self {
        let tombstone = ObjectRow { tombstone: true, replaced: 0, covers, content: Default::default() };
        let name = Self::row_name(mode, slot, &tombstone);
        let row = Some(Row { name, value: tombstone.encode(), stamp: clock, expires });
        Self { mode, row, tombstone: true, removed, unlisted: Unlisted::Removed, clock }
    }

    /// Removes more rows, found when there were too many, and their entries with them; those who wrote them had known of
    /// `covers`.
    pub fn remove_more(&mut self, more: Vec<Removed>, covers: Vec<Cover>) {
        if let Unlisted::Slots(slots) = &mut self.unlisted {
            let gone = more.iter().filter_map(Removed::cover).chain(covers);
            *slots = newest(slots.iter().copied().chain(gone));
        }
        self.removed.extend(more);
    }

    /// The changes to the object's own partition.
    #[must_use]
    pub fn object_changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.removed.len() + 2);
        match self.mode {
            // Not what is written with it.
            Mode::LastWriteWins => changes.push(Change::Clear { stamp: self.clock - 1 }),
            Mode::WriteOnce if self.tombstone => changes.push(Change::Clear { stamp: self.clock - 1 }),
            Mode::WriteOnce => {}
            Mode::Siblings | Mode::Newest => changes.extend(
                self.removed
                    .iter()
                    .filter(|gone| !self.writes(&gone.name))
                    .map(|gone| Change::Remove { name: gone.name.clone(), stamp: gone.clock }),
            ),
        }
        changes.extend(self.row.clone().map(Change::Put));
        changes
    }

    /// The changes to the key's shard of the `$key` view: the new row's entry, and no more entries of what is unlisted.
    /// Where writes name no slots, a deletion removes every entry of the key: the caller has to find them.
    #[must_use]
    pub fn key_view_changes(&self, key: &[u8]) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.removed.len() + 1);
        let lists = |name: &Bytes| !self.tombstone && self.writes(name);
        let mut remove = |name: &Bytes, stamp| {
            if !lists(name) {
                changes.push(Change::Remove { name: view_row_name(key, name), stamp });
            }
        };
        match &self.unlisted {
            Unlisted::Removed if self.mode.names_slots() || !self.tombstone => {
                let listed = self.removed.iter().filter(|gone| !gone.flags.tombstone);
                listed.for_each(|gone| remove(&gone.name, gone.clock));
            }
            Unlisted::Removed => {}
            Unlisted::Slots(slots) => slots.iter().for_each(|gone| remove(&gone.slot.row_name(), gone.clock)),
        }
        if let Some(row) = self.row.as_ref().filter(|_| !self.tombstone) {
            let name = view_row_name(key, &row.name);
            changes.push(Change::Put(Row { name, value: Bytes::new(), stamp: row.stamp, expires: row.expires }));
        }
        changes
    }

    fn writes(&self, name: &Bytes) -> bool {
        self.row.as_ref().is_some_and(|row| row.name == *name)
    }
}
