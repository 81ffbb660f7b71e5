//! The trait that every engine implements, with its arguments and results.

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::codec::{name_after, prefix_successor};
use tokio::time::Instant;

use crate::{Batch, Change, Error, Kind, Partition, PartitionChanges, Result, Row, Table, Timestamp};

/// How many replicas must answer, as in Cassandra. On one machine every level is met by that machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsistencyLevel {
    /// For writes: a hint on one node is enough; that node delivers it when a replica is up. Reads treat it as
    /// [`Self::One`].
    Any,
    /// One replica.
    One,
    /// Two replicas.
    Two,
    /// Three replicas.
    Three,
    /// More than half.
    Quorum,
    /// Every replica.
    All,
}

/// When the engine may answer a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// As soon as readers see the write.
    Buffered,
    /// Once the write is on disk, with everything that readers saw before it. An engine opened with a weaker setting
    /// treats this as [`Self::Buffered`].
    Disk,
    /// As [`Self::Disk`], whatever the engine's setting. An empty batch is a sync barrier for an engine that syncs
    /// itself: it waits for all that readers saw before, and a file may be removed for good afterwards. Over a cluster
    /// it returns at once: its nodes sync by their own settings.
    Forced,
}

/// Why a write is made. An engine that runs out of disk refuses the purposes in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Stores data of a client.
    #[default]
    Data,
    /// Removes data now or later, or keeps the gateways running. Such writes must succeed for space to come back.
    Reclaim,
}

impl Purpose {
    /// Every purpose; the engine refuses the first one first.
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

/// Options of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallOptions {
    /// Replicas that must answer.
    pub level: ConsistencyLevel,
    /// The call fails with `TimedOut` at this moment.
    pub deadline: Instant,
    /// For writes: when the engine may answer.
    pub durability: Durability,
    /// For writes: why the write is made.
    pub purpose: Purpose,
}

impl CallOptions {
    /// Options of a read, or of a write of client data.
    #[must_use]
    pub fn new(level: ConsistencyLevel, deadline: Instant, durability: Durability) -> Self {
        Self { level, deadline, durability, purpose: Purpose::Data }
    }

    /// The same options for a removal or for housekeeping.
    #[must_use]
    pub fn reclaiming(self) -> Self {
        Self { purpose: Purpose::Reclaim, ..self }
    }
}

/// A half-open range of row names in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First name of the range, included; `None` starts at the first row.
    pub from: Option<Bytes>,
    /// First name past the range, excluded; `None` ends after the last row.
    pub to: Option<Bytes>,
}

/// Order of the rows of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadOrder {
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
    pub order: ReadOrder,
}

/// Why a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The range has no more rows.
    End,
    /// The page reached its limit; more rows may follow the last one.
    Limit,
}

/// One page of a partition: an isolated read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPage {
    /// Live rows, in the order of the query.
    pub rows: Vec<Row>,
    /// Why the page ended.
    pub stopped: Stopped,
}

/// One page of the partitions of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPage {
    /// The partitions, in the engine's own order. An engine on one machine does not store the number of copies and
    /// returns [`Partition::DEFAULT_COPIES`].
    pub partitions: Vec<Partition>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<Bytes>,
}

/// A head row to write, with the row derived from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadWrite {
    /// The row. Its stamp is greater than the one it replaces; with a derived row by at least two, since the engine
    /// uses the stamp between.
    pub row: Row,
    /// A row in another partition that follows this head.
    pub derived: Option<DerivedRow>,
    /// Rows of a plain table that are there once the head is: an engine with one commit writes them with the head or not at
    /// all. Another one writes them before, so a refused head may leave them, and so may one of unknown outcome.
    pub beside: Option<PartitionChanges>,
}

/// A row whose value a head decides, like an index entry. If one of the two writes fails, a reader still sees the
/// value and the stamp of the last head. A head always names the same derived row, and no other writer changes that
/// row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedRow {
    /// Partition of the row, in one of [`Self::TABLES`].
    pub partition: Partition,
    /// Name of the row.
    pub name: Bytes,
    /// Value of the row; `None` when the row is absent.
    pub value: Option<Bytes>,
}

impl From<Row> for HeadWrite {
    fn from(row: Row) -> Self {
        Self { row, derived: None, beside: None }
    }
}

impl HeadWrite {
    /// Checks that the head is newer than the stamp `expected`, that its derived row is in one of [`DerivedRow::TABLES`], and the
    /// rows beside it in a plain table.
    ///
    /// # Errors
    /// `Misuse`.
    pub fn check(&self, expected: Option<Timestamp>) -> Result<()> {
        let step = if self.derived.is_some() { 2 } else { 1 };
        if self.row.stamp < expected.map_or(Timestamp(step), |expected| expected.saturating_add(step)) {
            return Err(Error::new(Kind::Misuse, "a head that is not newer than the one it replaces"));
        }
        match &self.derived {
            Some(DerivedRow { partition, .. }) if !DerivedRow::TABLES.contains(&partition.table) => {
                Err(Error::new(Kind::Misuse, format!("a derived row in the table {}", partition.table.name())))
            }
            _ => match &self.beside {
                Some(beside) if beside.partition.table.is_guarded() => {
                    let table = beside.partition.table.name();
                    Err(Error::new(Kind::Misuse, format!("rows beside a head in the guarded table {table}")))
                }
                _ => Ok(()),
            },
        }
    }

    /// The change that writes the derived row in the same commit.
    #[must_use]
    pub fn derived_change(&self) -> Option<(Partition, Change)> {
        let DerivedRow { partition, name, value } = self.derived.clone()?;
        let stamp = self.row.stamp;
        let change = match value {
            Some(value) => Change::Put(Row { name, value, stamp, expires: None }),
            None => Change::Remove { name, stamp },
        };
        Some((partition, change))
    }
}

impl DerivedRow {
    /// The tables of derived rows, plain and wide.
    pub const TABLES: [Table; 2] = [Table::Entries, Table::UploadEntries];

    /// Bytes of the row, as a batch counts them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.partition.key.len() + self.name.len() + self.value.as_ref().map_or(0, Bytes::len) + 16
    }
}

/// Result of a [`Store::apply_if`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CasResult {
    /// The head had the expected stamp. The engine wrote the new head and the changes.
    Applied,
    /// The head had another stamp. The engine wrote nothing; this is the current head, if there is one.
    Conflict(Option<Row>),
}

/// Capabilities of an engine, its limits, and how many nodes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Bodies up to this many bytes are stored inside their row, larger ones as blobs.
    pub inline_max: usize,
    /// Largest batch in bytes.
    pub batch_max: usize,
    /// Nodes that hold data, up or down.
    pub nodes: u32,
    /// Whether each copy is on a node of its own. Then there are at most `nodes` copies, and some may be down.
    /// Otherwise one machine stands for every copy.
    pub replicated: bool,
    /// Whether an answer to [`Durability::Disk`] means that the write is on disk.
    pub syncs: bool,
    /// Whether tombstones slow reads down until compaction, and a row limit costs a read. Writers then overwrite their
    /// own rows instead of removing them, and set a row limit only where they expect to reach it.
    pub tombstones_slow_reads: bool,
    /// Whether a partition lies whole on each of its nodes, so that one of very many rows is a burden. An engine with one tree
    /// for all partitions has no such bound.
    pub large_partitions_burden: bool,
}

impl Range {
    /// The single name that the range can hold; `None` for wider ranges.
    #[must_use]
    pub fn single_name(&self) -> Option<Bytes> {
        let from = self.from.clone().unwrap_or_default();
        let next = self.to.as_ref()?.strip_suffix(&[0])?;
        (next == from).then_some(from)
    }
}

impl ReadQuery {
    /// All rows, up to `limit`.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self { range: Range::default(), limit, order: ReadOrder::Forward }
    }

    /// Rows whose names begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: Bytes, limit: usize) -> Self {
        let to = prefix_successor(&prefix);
        Self { range: Range { from: Some(prefix), to }, limit, order: ReadOrder::Forward }
    }

    /// The row of this name. Engines find it faster than a range.
    #[must_use]
    pub fn one(name: Bytes) -> Self {
        let to = Some(name_after(&name));
        Self { range: Range { from: Some(name), to }, limit: 1, order: ReadOrder::Forward }
    }

    /// Rows that follow the name `after`.
    #[must_use]
    pub fn after(after: Option<&Bytes>, limit: usize) -> Self {
        let from = after.map(|after| name_after(after));
        Self { range: Range { from, to: None }, limit, order: ReadOrder::Forward }
    }

    /// Moves the query past the last row read.
    pub fn continue_after(&mut self, last: &Bytes) {
        match self.order {
            ReadOrder::Forward => self.range.from = Some(name_after(last)),
            ReadOrder::Reverse => self.range.to = Some(last.clone()),
        }
    }
}

/// Partitions of ordered rows. Every call ends at its deadline.
#[async_trait]
pub trait Store: Send + Sync {
    /// Reads one page of live rows. A page is isolated; several pages of one read are not isolated from each other.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`, `Damaged`, `Io`.
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage>;

    /// The only live row of a partition of a packed table, read at once on the caller's thread; as [`Self::read`] would
    /// show it. `None` says nothing: the partition has other rows or none, the read failed, or the engine cannot read
    /// without waiting. The caller then uses [`Self::read`].
    fn try_read_single_row(&self, _partition: &Partition) -> Option<Row> {
        None
    }

    /// The live row of this name, read at once on the caller's thread; as [`Self::read`] would show it. `None` says nothing, as
    /// above.
    fn try_read_row(&self, _partition: &Partition, _name: &Bytes) -> Option<Row> {
        None
    }

    /// Writes to plain tables. The newer stamp wins; a removal names a row and removes every version that is not newer.
    /// A change that names the rows it was decided on (`seen`) is refused when the partition holds other rows. Each
    /// partition changes whole, and readers see it whole. Several partitions change all or none once the call is
    /// answered; of an unanswered call pure additions may remain.
    ///
    /// # Errors
    /// `TooManyRows`, `TooLarge` and `Changed` write nothing; `Misuse` for a guarded table; `Unavailable`, `TimedOut`,
    /// `Poisoned`, `Full`, `Io`.
    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()>;

    /// Linearizable compare-and-set on a partition of a guarded table. It succeeds if the row named like the head has
    /// the stamp `expected` (`None`: the row is absent). Then it writes `head`, which has a greater stamp, together
    /// with `changes`. A reader sees the derived row accordingly as soon as the call is answered. An engine may raise
    /// the stamp of a head with a derived row on its own; a writer that expects the old stamp gets a conflict and reads
    /// again.
    ///
    /// # Errors
    /// `Misuse` for a plain table or for a head that [`HeadWrite::check`] refuses; otherwise as [`Self::apply`]. After
    /// `TimedOut` read the head through the same store. That read decides: a write that it does not show never happens
    /// later.
    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult>;

    /// Lists the partitions of a table in pages. Slow: for scrubbers and export.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage>;

    /// The engine's clock, which decides whether a row has expired.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn now(&self, options: &CallOptions) -> Result<Timestamp>;

    /// Limits and properties of the engine.
    fn limits(&self) -> EngineLimits;

    /// Whether the engine accepts writes; `false` once poisoned.
    fn is_ready(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_range_of_one_name_has_a_single_name() {
        let single = |from: Option<&'static str>, to: Option<&'static str>| {
            Range { from: from.map(Bytes::from), to: to.map(Bytes::from) }.single_name()
        };
        assert_eq!(single(Some("a"), Some("a\0")), Some("a".into()));
        assert_eq!(single(None, Some("\0")), Some(Bytes::new()));
        assert_eq!(ReadQuery::one("a\0".into()).range.single_name(), Some("a\0".into()));
        for (from, to) in [("a", "a"), ("a", "b"), ("a", "a\0\0"), ("a", "a\x01"), ("b", "a\0"), ("", "a\0")] {
            assert_eq!(single(Some(from), Some(to)), None, "{from:?} {to:?}");
        }
        assert_eq!(single(None, None), None);
        assert_eq!(single(Some("a"), None), None);
    }

    #[test]
    fn a_further_read_begins_after_the_last_row() {
        for (order, from, to) in [(ReadOrder::Forward, "m\0", "z"), (ReadOrder::Reverse, "a", "m")] {
            let range = Range { from: Some("a".into()), to: Some("z".into()) };
            let mut query = ReadQuery { range, limit: 1, order };
            query.continue_after(&"m".into());
            assert_eq!(query.range, Range { from: Some(from.into()), to: Some(to.into()) });
        }
    }
}
