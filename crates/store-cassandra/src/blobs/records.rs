//! Records: what there is of a blob, and what has become of it.
//!
//! ```text
//!            lease                      length                     removed
//! written ───────────> being written ───────────> readable ───────────────> gone, blocks stay a while ──> purged
//!                            └── no lease any more ──> abandoned ── still not readable later ──────────────┘
//! ```
//! Each of these is a column of its own that is written once, so no two gateways ever contend for one. All that a run writes
//! about itself has stamps counted from its birth: whoever forgets the record, at a stamp a day ahead of now, forgets
//! whatever may still arrive.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::{Clock, Error, Kind, Micros, Result};
use parking_lot::Mutex;
use scylla::response::query_result::QueryResult;

use super::cql::{Cql, Statements, unreadable};
use super::format::{self, Head, Run};

/// Partitions that records are spread over, by the first byte of the id. A hundred million blobs make partitions of some 80 MB.
pub(super) const SHARDS: i32 = 256;
/// Records read at once: each has the name of a row in it.
pub(super) const PAGE_RECORDS: usize = 100;
/// How far ahead of now whatever is removed for good is removed, in microseconds: beyond any clock that wrote it.
const AHEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// What all parts of [`super::CassandraBlobs`] share.
pub(super) struct Records {
    pub(super) cql: Statements,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a lease lasts that is not renewed.
    pub(super) lease: Duration,
    /// How long removed blocks stay.
    pub(super) grace: Duration,
    /// This process among those that write blobs.
    pub(super) process: u64,
    /// Runs of this process that are leased.
    pub(super) held: Mutex<HashSet<Run>>,
    /// Blocks that were missing or damaged when they were read.
    pub(super) damaged: AtomicU64,
    last_run: AtomicU64,
}

/// Names a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) id: BlobId,
    pub(super) run: Run,
}

/// One record as it was read.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) name: Name,
    /// What it said from its beginning; nothing for leavings of a record that was forgotten.
    pub(super) head: Option<Bytes>,
    /// Groups that may have blocks.
    pub(super) groups: i32,
    /// Length and time of its end, once there is one.
    pub(super) finished: Option<(u64, Micros)>,
    pub(super) removed: Option<Micros>,
    pub(super) abandoned: Option<Micros>,
    /// Whether its lease lasts.
    pub(super) is_held: bool,
}

type Columns =
    (Bytes, Bytes, Option<Bytes>, Option<i32>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<bool>);

impl Records {
    pub(super) fn new(cql: Statements, options: &super::BlobOptions) -> Self {
        Self {
            cql,
            clock: options.clock.clone(),
            lease: options.lease.max(Duration::from_secs(1)),
            grace: options.grace,
            process: options.process,
            held: Mutex::default(),
            damaged: AtomicU64::new(0),
            last_run: AtomicU64::new(0),
        }
    }

    /// A new run: later than all others of this process, whatever the clock does.
    pub(super) fn new_run(&self) -> Run {
        let now = self.clock.now();
        let next = |last: u64| now.max(last + 1);
        let last = self.last_run.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Run { born: next(last.unwrap_or_else(|last| last)), by: self.process }
    }

    /// Writes a record and takes its lease.
    pub(super) async fn begin(&self, name: Name, head: &Head) -> Result<()> {
        let (shard, id, run) = name.key();
        let record = (shard, id, run, head.encode(), name.stamp(0));
        self.cql.begin(record, self.lease_values(name, 0)).await
    }

    /// Renews a lease for the `count`th time.
    pub(super) async fn renew(&self, name: Name, count: u64) -> Result<()> {
        self.cql.run(Cql::Hold, self.lease_values(name, count)).await.map(|_| ())
    }

    fn lease_values(&self, name: Name, count: u64) -> (i32, i64, bool, i32, Bytes, Bytes) {
        let seconds = i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX);
        let (shard, id, run) = name.key();
        (seconds, name.stamp(count), true, shard, id, run)
    }

    /// Gives a lease up that was renewed less than `count` times.
    pub(super) async fn release(&self, name: Name, count: u64) -> Result<()> {
        let (shard, id, run) = name.key();
        self.cql.run(Cql::Release, (name.stamp(count), shard, id, run)).await.map(|_| ())
    }

    /// Announces that there may be blocks in this many groups.
    pub(super) async fn grow(&self, name: Name, groups: i32) -> Result<()> {
        let (shard, id, run) = name.key();
        self.cql.run(Cql::Grow, (name.stamp(groups as u64), groups, shard, id, run)).await.map(|_| ())
    }

    /// Makes a blob readable, unless it counted as abandoned before.
    ///
    /// # Errors
    /// `TimedOut` for one that did: its writer was silent for longer than its lease.
    pub(super) async fn finish(&self, name: Name, length: u64) -> Result<()> {
        let (shard, id, run) = name.key();
        let values = (name.stamp(0), length.cast_signed(), self.clock.now().cast_signed(), shard, id, run);
        self.cql.run(Cql::Finish, values).await?;
        // Whoever takes it for abandoned says so first and looks then. So one of the two sees the other.
        let records = self.find(name.id).await?;
        let own = records.iter().find(|record| record.name == name);
        match own {
            Some(record) if record.finished.is_some() && record.abandoned.is_none() => Ok(()),
            _ => Err(Error::new(Kind::TimedOut, format!("the writer of the blob {} was given up", name.id.hex()))),
        }
    }

    /// All records of a blob, the oldest first.
    pub(super) async fn find(&self, id: BlobId) -> Result<Vec<Record>> {
        read(self.cql.run(Cql::Find, (shard_of(&id), Bytes::copy_from_slice(&id.0))).await?)
    }

    /// As [`Self::find`], for readers: of one replica where too few are up.
    pub(super) async fn find_to_read(&self, id: BlobId) -> Result<Vec<Record>> {
        read(self.cql.read(Cql::Find, (shard_of(&id), Bytes::copy_from_slice(&id.0))).await?)
    }

    /// A page of the records behind an id in a shard, all records of each id in it; and whether there may be more.
    pub(super) async fn page(&self, shard: i32, after: &[u8]) -> Result<(Vec<Record>, bool)> {
        let values = (shard, Bytes::copy_from_slice(after), PAGE_RECORDS as i32);
        let mut records = read(self.cql.run(Cql::Page, values).await?)?;
        let is_full = records.len() >= PAGE_RECORDS;
        if let Some(last) = records.last().map(|record| record.name.id).filter(|_| is_full) {
            records.retain(|record| record.name.id != last);
            records.extend(self.find(last).await?);
        }
        Ok((records, is_full))
    }

    /// Notes in a column that something happened now.
    pub(super) async fn mark(&self, mark: Cql, name: Name) -> Result<()> {
        let now = self.clock.now().cast_signed();
        let (shard, id, run) = name.key();
        self.cql.run(mark, (now, now, shard, id, run)).await.map(|_| ())
    }

    /// Removes the blocks, then the record.
    pub(super) async fn forget(&self, name: Name, groups: i32) -> Result<()> {
        let stamp = self.clock.now().saturating_add(AHEAD_MICROS).cast_signed();
        let (shard, id, run) = name.key();
        for group in 0..groups {
            self.cql.run(Cql::DropGroup, (stamp, id.clone(), run.clone(), group)).await?;
        }
        self.cql.run(Cql::Forget, (stamp, shard, id, run)).await.map(|_| ())
    }

    /// Whether somebody may be writing this blob, or the row that names it.
    pub(super) fn is_leased(&self, record: &Record) -> bool {
        // What this process holds it knows better than the row, which is told later.
        match record.name.run.by == self.process {
            true => self.held.lock().contains(&record.name.run),
            false => record.is_held,
        }
    }
}

impl Name {
    /// The primary key.
    pub(super) fn key(&self) -> (i32, Bytes, Bytes) {
        (shard_of(&self.id), Bytes::copy_from_slice(&self.id.0), self.run.name())
    }

    /// The stamp of what the run writes for the `count`th time.
    pub(super) fn stamp(&self, count: u64) -> i64 {
        self.run.born.saturating_add(count).cast_signed()
    }
}

impl Record {
    /// Length and time of the end of a blob that can be read.
    pub(super) fn readable(&self) -> Option<(u64, Micros)> {
        self.finished.filter(|_| self.removed.is_none() && self.head.is_some())
    }

    fn of(columns: Columns) -> Result<Self> {
        let (id, run, head, groups, length, finished, removed, abandoned, lease) = columns;
        let micros = i64::cast_unsigned;
        Ok(Self {
            name: Name { id: format::id_of(&id)?, run: Run::of_name(run)? },
            head,
            groups: groups.unwrap_or(0),
            finished: length.map(micros).zip(finished.map(micros)),
            removed: removed.map(micros),
            abandoned: abandoned.map(micros),
            is_held: lease.is_some(),
        })
    }
}

/// Of the records of one blob the one that is read: that which ended last.
pub(super) fn current(records: &[Record]) -> Option<&Record> {
    let readable = records.iter().filter(|record| record.readable().is_some());
    readable.max_by_key(|record| (record.finished.map(|(_, at)| at), record.name.run))
}

fn shard_of(id: &BlobId) -> i32 {
    i32::from(id.0[0])
}

fn read(answer: QueryResult) -> Result<Vec<Record>> {
    let rows = answer.into_rows_result().map_err(unreadable)?;
    let rows = rows.rows::<Columns>().map_err(unreadable)?;
    rows.map(|row| Record::of(row.map_err(unreadable)?)).collect()
}
