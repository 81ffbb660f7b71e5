//! The trait every engine implements, and the values it takes and answers.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::{Batch, Change, Error, Kind, Micros, Partition, Result, Row, Stamp, Table};

/// How many replicas must agree. One machine is every replica at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For writes: a promise of one machine to deliver it once a replica is up. Reads take it for [`Self::One`].
    Any,
    /// One replica.
    One,
    /// Two replicas.
    Two,
    /// Three replicas.
    Three,
    /// More than half.
    Quorum,
    /// All of them.
    All,
}

/// When a write may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// As soon as readers see it.
    Buffered,
    /// Once it is on disk, and with it all that readers saw before. An engine that was opened to answer earlier takes this for
    /// [`Self::Buffered`].
    Disk,
    /// As [`Self::Disk`], however the engine was opened. An empty batch is a sync barrier: it waits for all that readers saw
    /// before, so bytes that a file system removes for good may go after it.
    Forced,
}

/// What a write is for. An engine that runs out of room refuses the purposes in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To keep what a client brings.
    #[default]
    Data,
    /// To remove something, now or later, or to keep the gateways running: what must pass for room to come back.
    Reclaim,
}

impl Purpose {
    /// Every purpose, the one refused first in front.
    pub const ALL: [Self; 2] = [Self::Data, Self::Reclaim];

    /// Name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Reclaim => "reclaim",
        }
    }
}

/// What comes with every call.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Replicas that must answer.
    pub level: Level,
    /// When to give up.
    pub deadline: Instant,
    /// For writes: when to answer.
    pub durability: Durability,
    /// For writes: what they are for.
    pub purpose: Purpose,
}

impl Options {
    /// Options of a read, or of a write that keeps what a client brings.
    #[must_use]
    pub fn new(level: Level, deadline: Instant, durability: Durability) -> Self {
        Self { level, deadline, durability, purpose: Purpose::Data }
    }

    /// The same call on behalf of a removal or of housekeeping.
    #[must_use]
    pub fn reclaiming(self) -> Self {
        Self { purpose: Purpose::Reclaim, ..self }
    }
}

/// Which rows of a partition, from and to their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First name wanted; `None` from the first row. Included.
    pub from: Option<Bytes>,
    /// First name not wanted any more; `None` to the last row.
    pub to: Option<Bytes>,
}

/// Direction of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Ascending names.
    #[default]
    Forward,
    /// Descending names.
    Reverse,
}

/// One read of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadQuery {
    /// Which rows.
    pub range: Range,
    /// Most rows in the page; at least 1.
    pub limit: usize,
    /// Direction.
    pub order: Order,
}

/// Why a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// There is nothing more in the range.
    End,
    /// The limit was reached; there may be more behind the last row.
    Limit,
}

/// Rows of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Live rows, in the order asked for.
    pub rows: Vec<Row>,
    /// Why it ended.
    pub stopped: Stopped,
}

/// Partitions of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPage {
    /// In the engine's own order. An engine on one machine does not know how many copies were asked for, and says
    /// [`Partition::N_VAL`].
    pub partitions: Vec<Partition>,
    /// Where to go on; `None` at the end.
    pub next: Option<Bytes>,
}

/// A head to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The row; its stamp is greater than the one it replaces, by two at least if it has a shadow: the one between is the
    /// engine's.
    pub row: Row,
    /// A row elsewhere that reads as the head says.
    pub shadow: Option<Shadow>,
}

/// One row of a table of shadows that belongs to a head: whatever fails in between, whoever reads it sees what the head last
/// written says, at the head's stamp. A head always names the same shadow, and nothing else writes that row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Its partition, in one of [`Self::TABLES`].
    pub partition: Partition,
    /// Its name.
    pub name: Bytes,
    /// Its value; `None`: it is not there.
    pub value: Option<Bytes>,
}

impl From<Row> for Head {
    fn from(row: Row) -> Self {
        Self { row, shadow: None }
    }
}

impl Head {
    /// Refuses a head that is not new enough to replace the one with the stamp `expected`, or whose shadow is out of place.
    ///
    /// # Errors
    /// `Misuse`.
    pub fn check(&self, expected: Option<Stamp>) -> Result<()> {
        let step = if self.shadow.is_some() { 2 } else { 1 };
        if self.row.stamp < expected.map_or(step, |expected| expected.saturating_add(step)) {
            return Err(Error::new(Kind::Misuse, "a head that is not newer than the one it replaces"));
        }
        match &self.shadow {
            Some(Shadow { partition, .. }) if !Shadow::TABLES.contains(&partition.table) => {
                Err(Error::new(Kind::Misuse, format!("a shadow in the table {}", partition.table.name())))
            }
            _ => Ok(()),
        }
    }

    /// The change that writes the shadow with the head.
    #[must_use]
    pub fn shadow_change(&self) -> Option<(Partition, Change)> {
        let Shadow { partition, name, value } = self.shadow.clone()?;
        let stamp = self.row.stamp;
        let change = match value {
            Some(value) => Change::Put(Row { name, value, stamp, expires: None }),
            None => Change::Remove { name, stamp },
        };
        Some((partition, change))
    }
}

impl Shadow {
    /// The tables that hold shadows: plain and wide.
    pub const TABLES: [Table; 2] = [Table::Entries, Table::UploadEntries];

    /// Its part of a batch's bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.partition.key.len() + self.name.len() + self.value.as_ref().map_or(0, Bytes::len) + 16
    }
}

/// Outcome of an [`Store::apply_if`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The head had the expected stamp; head and changes are written.
    Applied,
    /// It had not: this is the head now, if there is one. Nothing was written.
    Conflict(Option<Row>),
}

/// What an engine is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Bodies up to this many bytes are kept inside their row, larger ones as blobs.
    pub inline_max: usize,
    /// Largest batch in bytes.
    pub batch_max: usize,
    /// Machines that data is on.
    pub nodes: u32,
    /// Whether every copy is on a machine of its own, so that there are as many as there are `nodes` and some may be down.
    /// Otherwise one machine stands for all the copies anybody asks for.
    pub replicated: bool,
    /// Whether a write is on disk when it was answered [`Durability::Disk`].
    pub syncs: bool,
    /// Whether what was removed weighs on reads until the engine has compacted it, and a row limit costs a read: writers then
    /// overwrite their own rows rather than remove them, and set limits only where they expect to meet them.
    pub keeps_tombstones: bool,
}

impl Range {
    /// The only name in the range, where there can be but one.
    #[must_use]
    pub fn only(&self) -> Option<Bytes> {
        let from = self.from.clone().unwrap_or_default();
        let behind = self.to.as_ref()?.strip_suffix(&[0])?;
        (behind == from).then_some(from)
    }
}

impl ReadQuery {
    /// All rows, up to `limit`.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self { range: Range::default(), limit, order: Order::Forward }
    }

    /// Rows whose names begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: Bytes, limit: usize) -> Self {
        let to = prefix_end(&prefix);
        Self { range: Range { from: Some(prefix), to }, limit, order: Order::Forward }
    }

    /// The row of this name. Engines find it faster than a range.
    #[must_use]
    pub fn one(name: Bytes) -> Self {
        let to = Some(name_behind(&name));
        Self { range: Range { from: Some(name), to }, limit: 1, order: Order::Forward }
    }

    /// Rows behind `after`.
    #[must_use]
    pub fn after(after: Option<&Bytes>, limit: usize) -> Self {
        let from = after.map(|after| name_behind(after));
        Self { range: Range { from, to: None }, limit, order: Order::Forward }
    }
}

/// The name right behind this one.
pub(crate) fn name_behind(name: &[u8]) -> Bytes {
    [name, &[0]].concat().into()
}

/// The first name behind all names that begin with `prefix`; `None` when there is no such name.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end.into())
}

/// Partitions of ordered rows. Cheap to share; every call is bounded by its deadline.
#[async_trait]
pub trait Store: Send + Sync {
    /// One page of live rows of one moment. Pages of one read are not isolated from each other.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`, `Damaged`, `Io`.
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page>;

    /// Writes to plain tables. The newer stamp wins; a removal names a row and takes what is not newer. Changes that name the
    /// rows they were decided on (`seen`) are refused where others are there by now. One partition changes whole and is seen
    /// whole. Several: all or none once answered; of an unanswered call pure additions may remain.
    ///
    /// # Errors
    /// `TooManyRows`, `TooLarge` and `Changed` write nothing; `Misuse` for a guarded table; `Unavailable`, `TimedOut`, `Poisoned`,
    /// `Full`, `Io`.
    async fn apply(&self, batch: Batch, options: &Options) -> Result<()>;

    /// Linearizable compare-and-set on a partition of a guarded table: succeeds if the row of the head's name has the stamp
    /// `expected` (`None`: is not there), and then writes `head`, which has a greater stamp, and `changes` with it. Its shadow
    /// reads accordingly as soon as this is answered. An engine may give a head that has a shadow a greater stamp on its own,
    /// and nothing else: who swaps against the old one meets a conflict and looks again.
    ///
    /// # Errors
    /// `Misuse` for a plain table, or what [`Head::check`] refuses; otherwise as [`Self::apply`]. After `TimedOut` read the head
    /// through the same store: that decides, and what the read does not show will not come any more.
    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap>;

    /// All partitions of a table, in pages. Slow: for scrubbers and export.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage>;

    /// The engine's own clock, against which expiry is judged.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn now(&self, options: &Options) -> Result<Micros>;

    /// What the engine is made for.
    fn limits(&self) -> EngineLimits;

    /// Whether writes are taken: `false` once poisoned.
    fn is_ready(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_one_name_is_known() {
        let only = |from: Option<&'static str>, to: Option<&'static str>| {
            Range { from: from.map(Bytes::from), to: to.map(Bytes::from) }.only()
        };
        assert_eq!(only(Some("a"), Some("a\0")), Some("a".into()));
        assert_eq!(only(None, Some("\0")), Some(Bytes::new()));
        assert_eq!(ReadQuery::one("a\0".into()).range.only(), Some("a\0".into()));
        for (from, to) in [("a", "a"), ("a", "b"), ("a", "a\0\0"), ("a", "a\x01"), ("b", "a\0"), ("", "a\0")] {
            assert_eq!(only(Some(from), Some(to)), None, "{from:?} {to:?}");
        }
        assert_eq!(only(None, None), None);
        assert_eq!(only(Some("a"), None), None);
    }
}
