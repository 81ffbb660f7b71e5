//! What a read shows: the rows of a key become siblings and a context.

use super::context::Context;
use super::covers::{dead_until, newest};
use super::dot::{ANY_SLOT, Clock, Cover, Dot, Slot, vtag};
use super::write::Mode;
use crate::codec::DecodeError;
use crate::content::Content;
use crate::hash;
use crate::limits::{COVERS_MAX, SIBLINGS_MAX};
use crate::rows::{ObjectRow, Row};
use bytes::Bytes;

/// One live value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its row.
    pub name: Bytes,
    /// Its write.
    pub dot: Dot,
    /// The value.
    pub content: Content,
    replaced: u64,
}

/// All that is known of a key at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Versions {
    /// Live values, newest first. Empty when the key was never written or is deleted.
    pub siblings: Vec<Sibling>,
    /// What a writer that saw this may replace: every row read, shown or not, up to [`SIBLINGS_MAX`].
    pub context: Context,
    /// Whether a tombstone stands and nothing lives.
    pub deleted: bool,
}

/// How rows are reduced to what is shown.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The bucket's way of resolving.
    pub mode: Mode,
    /// Show rows of equal content that replaced the same non-empty context once: a retry is no second write.
    pub merge_retries: bool,
    /// Let the context name rows that are not shown.
    pub name_hidden: bool,
    /// Take a row that another one knows to be dead for a tombstone: it came back from a replica that missed its removal.
    pub hide_covered: bool,
}

impl Reading {
    /// Reading as the product does it.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        Self { mode, merge_retries: true, name_hidden: true, hide_covered: true }
    }
}

impl Sibling {
    /// Its entity tag, without quotes.
    #[must_use]
    pub fn vtag(&self) -> String {
        vtag(&self.name, self.dot.clock)
    }

    /// When it was written, in microseconds since 1970.
    #[must_use]
    pub fn modified(&self) -> Clock {
        self.dot.clock
    }
}

impl Versions {
    /// Reads the live rows of a key, in row order.
    ///
    /// # Errors
    /// [`DecodeError`] when a row is of an unknown version or damaged.
    pub fn of(rows: Vec<Row>, reading: Reading) -> Result<Self, DecodeError> {
        let mut rows = rows.into_iter().map(Read::decode).collect::<Result<Vec<_>, _>>()?;
        if reading.mode != Mode::WriteOnce && rows.len() > 1 {
            rows.sort_by(|a, b| (b.clock(), b.name()).cmp(&(a.clock(), a.name())));
        }
        let covers = newest(rows.iter().flat_map(Read::covers));
        if reading.hide_covered && !covers.is_empty() {
            rows.iter_mut().for_each(|row| row.hide_if_dead(&covers));
        }
        // What lives is named first: tombstones on their way out must not hide it.
        rows.sort_by_key(|row| row.tombstone);
        rows.truncate(SIBLINGS_MAX);
        let mut context = context_of(&rows, covers);
        let tombstones = rows.iter().any(|row| row.tombstone);
        let mut siblings: Vec<Sibling> = rows.into_iter().filter(|row| !row.tombstone).map(|row| row.sibling).collect();
        if reading.merge_retries {
            merge_retries(&mut siblings);
        }
        if reading.mode != Mode::Siblings {
            siblings.truncate(1);
        }
        if !reading.name_hidden {
            context.dots.retain(|dot| dot.flags.tombstone || siblings.iter().any(|one| one.dot == *dot));
        }
        Ok(Self { deleted: siblings.is_empty() && tombstones, siblings, context })
    }

    /// The entity tag of the whole: the one sibling's, or a hash of what is named when there are several.
    #[must_use]
    pub fn etag(&self) -> Option<String> {
        match self.siblings.as_slice() {
            [] => None,
            [one] => Some(one.vtag()),
            [first, ..] => {
                let hash = u128::from(self.context.dots_hash()) << 64;
                Some(hash::base62(hash | u128::from(hash::id64(&[&first.name]))))
            }
        }
    }

    /// When the newest live value was written.
    #[must_use]
    pub fn modified(&self) -> Option<Clock> {
        self.siblings.iter().map(Sibling::modified).max()
    }

    /// The greatest clock in what was read.
    #[must_use]
    pub fn latest(&self) -> Clock {
        self.context.latest()
    }
}

/// A row as it is read.
struct Read {
    sibling: Sibling,
    tombstone: bool,
    covers: Vec<Cover>,
}

impl Read {
    fn decode(row: Row) -> Result<Self, DecodeError> {
        let object = ObjectRow::decode(row.value)?;
        // A write_once row is named by its content: all a context can say of it is when it came.
        let slot = if row.name.len() == 16 { Slot::from_row_name(&row.name)? } else { ANY_SLOT };
        let dot = Dot { slot, clock: row.stamp, flags: object.flags() };
        let sibling = Sibling { name: row.name, dot, content: object.content, replaced: object.replaced };
        Ok(Self { sibling, tombstone: object.tombstone, covers: object.covers })
    }

    /// The slots it knows dead. Whoever wrote it had seen them so, and its clock had passed theirs: anything else is made up.
    fn covers(&self) -> impl Iterator<Item = Cover> {
        self.covers.iter().copied().filter(|cover| cover.clock < self.clock())
    }

    /// A row that is dead by what another one knows is named, so that the next write removes it, and lives no more.
    fn hide_if_dead(&mut self, covers: &[Cover]) {
        if dead_until(covers, self.sibling.dot.slot) >= self.clock() {
            self.tombstone = true;
            self.sibling.dot.flags.tombstone = true;
        }
    }

    fn clock(&self) -> Clock {
        self.sibling.dot.clock
    }

    fn name(&self) -> &Bytes {
        &self.sibling.name
    }
}

fn context_of(rows: &[Read], mut covers: Vec<Cover>) -> Context {
    let mut dots: Vec<_> = rows.iter().map(|row| row.sibling.dot).collect();
    dots.sort_unstable();
    // A dot says more than an older cover of its slot.
    covers.retain(|cover| !dots.iter().any(|dot| dot.slot == cover.slot && dot.clock >= cover.clock));
    covers.truncate(COVERS_MAX);
    Context { dots, covers }
}

fn merge_retries(siblings: &mut Vec<Sibling>) {
    let mut shown: Vec<Sibling> = Vec::with_capacity(siblings.len());
    for sibling in siblings.drain(..) {
        let is_retry = |other: &Sibling| {
            sibling.replaced != 0 && other.replaced == sibling.replaced && other.content.same_as(&sibling.content)
        };
        if !shown.iter().any(is_retry) {
            shown.push(sibling);
        }
    }
    *siblings = shown;
}
