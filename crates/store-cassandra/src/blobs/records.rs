//! Records of blobs: each is the state of one run.
//!
//! ```text
//!            lease                      length                     removed
//! created ───────────> being written ───────────> readable ───────────────> removed, blocks stay ──> purged
//!                            └── lease ended ──> abandoned ── still not readable a grace period later ──┘
//! ```
//! Each state is a column of its own that is written once, so two gateways never compete for one. A run writes all its
//! columns with stamps counted from its start. A purge removes the record with a stamp a day in the future, so a write
//! that arrives late does not bring it back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{Clock, Error, Kind, Result, Timestamp};
use parking_lot::Mutex;
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;

use super::cql::{BlobStatement, PreparedBlobStatements, unreadable};
use super::format::{self, BlobRun, RecordHeader};

/// Partitions of records, by the first byte of the id. A hundred million blobs make partitions of about 80 MB.
pub(super) const SHARDS: i32 = 256;
/// Records of one page; each holds a row name.
pub(super) const PAGE_RECORDS: usize = 100;
/// How far in the future a record is removed for good, in microseconds: beyond the clock of any writer.
const FORGET_AHEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// State that all parts of [`super::CassandraBlobs`] share.
pub(super) struct BlobRecords {
    pub(super) cql: PreparedBlobStatements,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a lease lasts without a renewal.
    pub(super) lease: Duration,
    /// How long removed blocks stay.
    pub(super) grace: Duration,
    /// The number of this process among all writers of blobs.
    pub(super) process: u64,
    /// Runs of this process with a lease.
    pub(super) leased_runs: Mutex<HashSet<BlobRun>>,
    /// Blocks that readers found missing or damaged.
    pub(super) damaged: AtomicU64,
    last_run: AtomicU64,
}

/// The key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordName {
    pub(super) id: BlobId,
    pub(super) run: BlobRun,
}

/// One record as it was read.
#[derive(Debug, Clone)]
pub(super) struct BlobRecord {
    pub(super) name: RecordName,
    /// The encoded header; `None` for remains of a record that was removed for good.
    pub(super) head: Option<Bytes>,
    /// Groups that may have blocks.
    pub(super) groups: i32,
    /// Length and time of the finish, once finished.
    pub(super) finished: Option<(u64, Timestamp)>,
    pub(super) removed: Option<Timestamp>,
    pub(super) abandoned: Option<Timestamp>,
    /// Whether the record has a lease.
    pub(super) has_lease: bool,
}

type Columns =
    (Bytes, Bytes, Option<Bytes>, Option<i32>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<bool>);

impl BlobRecords {
    pub(super) fn new(cql: PreparedBlobStatements, options: &super::BlobOptions) -> Self {
        Self {
            cql,
            clock: options.clock.clone(),
            lease: options.lease.max(Duration::from_secs(1)),
            grace: options.grace,
            process: options.process,
            leased_runs: Mutex::default(),
            damaged: AtomicU64::new(0),
            last_run: AtomicU64::new(0),
        }
    }

    /// A new run, later than all others of this process, even if the clock goes back.
    pub(super) fn new_run(&self) -> BlobRun {
        let now = self.clock.now();
        let next = |last: u64| now.0.max(last + 1);
        let last = self.last_run.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        BlobRun { began: next(last.unwrap_or_else(|last| last)), process: self.process }
    }

    /// Writes a record and takes its lease.
    pub(super) async fn begin(&self, name: RecordName, head: &RecordHeader) -> Result<()> {
        let (shard, id, run) = name.key();
        let record = (shard, id, run, head.encode(), name.stamp(0));
        self.cql.begin(record, self.lease_values(name, 0)).await
    }

    /// Renews a lease for the `count`th time.
    pub(super) async fn renew(&self, name: RecordName, count: u64) -> Result<()> {
        self.cql.run(BlobStatement::Hold, self.lease_values(name, count)).await.map(|_| ())
    }

    fn lease_values(&self, name: RecordName, count: u64) -> (i32, i64, bool, i32, Bytes, Bytes) {
        let seconds = i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX);
        let (shard, id, run) = name.key();
        (seconds, name.stamp(count), true, shard, id, run)
    }

    /// Releases a lease that was renewed less than `count` times.
    pub(super) async fn release(&self, name: RecordName, count: u64) -> Result<()> {
        let (shard, id, run) = name.key();
        self.cql.run(BlobStatement::Release, (name.stamp(count), shard, id, run)).await.map(|_| ())
    }

    /// Announces that up to this number of groups may have blocks.
    pub(super) async fn grow(&self, name: RecordName, groups: i32) -> Result<()> {
        let (shard, id, run) = name.key();
        self.cql.run(BlobStatement::Grow, (name.stamp(groups as u64), groups, shard, id, run)).await.map(|_| ())
    }

    /// Makes a blob readable, unless a purge has marked it as abandoned.
    ///
    /// # Errors
    /// `TimedOut` for an abandoned run: its writer was silent for longer than its lease.
    pub(super) async fn finish(&self, name: RecordName, length: u64) -> Result<()> {
        let (shard, id, run) = name.key();
        let values = (name.stamp(0), length.cast_signed(), self.clock.now().0.cast_signed(), shard, id, run);
        self.cql.run(BlobStatement::Finish, values).await?;
        // The writer writes `finished` and then reads `abandoned`; a purge writes `abandoned` and then reads
        // `finished`. So one of the two sees the other.
        let records = self.find(name.id).await?;
        let own_record = records.iter().find(|record| record.name == name);
        match own_record {
            Some(record) if record.finished.is_some() && record.abandoned.is_none() => Ok(()),
            _ => Err(Error::new(
                Kind::TimedOut,
                format!("the writer of the blob {} was silent for too long", name.id.hex()),
            )),
        }
    }

    /// All records of a blob, the oldest first.
    pub(super) async fn find(&self, id: BlobId) -> Result<Vec<BlobRecord>> {
        read(self.cql.run(BlobStatement::Find, (id_shard(&id), Bytes::copy_from_slice(&id.0))).await?)
    }

    /// As [`Self::find`], for readers: from one replica if too few answer.
    pub(super) async fn find_to_read(&self, id: BlobId) -> Result<Vec<BlobRecord>> {
        let values = (id_shard(&id), Bytes::copy_from_slice(&id.0));
        let order = [Consistency::LocalQuorum, Consistency::LocalOne];
        let has_rows = |answer: &QueryResult| {
            answer.is_rows() && answer.clone().into_rows_result().is_ok_and(|rows| rows.rows_num() > 0)
        };
        read(self.cql.read(BlobStatement::Find, values, order, has_rows).await?)
    }

    /// A page of the records of a shard after an id, with all records of each id; also returns whether more may follow.
    pub(super) async fn page(&self, shard: i32, after: &[u8]) -> Result<(Vec<BlobRecord>, bool)> {
        let values = (shard, Bytes::copy_from_slice(after), PAGE_RECORDS as i32);
        let mut records = read(self.cql.run(BlobStatement::Page, values).await?)?;
        let is_full = records.len() >= PAGE_RECORDS;
        if let Some(last) = records.last().map(|record| record.name.id).filter(|_| is_full) {
            // The limit may cut the last id in the middle of its runs, so all its records are read again.
            records.retain(|record| record.name.id != last);
            records.extend(self.find(last).await?);
        }
        Ok((records, is_full))
    }

    /// Sets a column to the current time.
    pub(super) async fn mark(&self, mark: BlobStatement, name: RecordName) -> Result<()> {
        let now = self.clock.now().0.cast_signed();
        let (shard, id, run) = name.key();
        self.cql.run(mark, (now, now, shard, id, run)).await.map(|_| ())
    }

    /// Removes the blocks, then the record: without its record no purge would find the blocks.
    pub(super) async fn forget(&self, name: RecordName, groups: i32) -> Result<()> {
        // A write of this run may arrive late: a stamp ahead of every clock keeps the record removed.
        let stamp = self.clock.now().saturating_add(FORGET_AHEAD_MICROS).0.cast_signed();
        let (shard, id, run) = name.key();
        // Blocks before the record: a crash in between leaves the record, and the next purge removes the rest.
        for group in 0..groups {
            self.cql.run(BlobStatement::DropGroup, (stamp, id.clone(), run.clone(), group)).await?;
        }
        self.cql.run(BlobStatement::Forget, (stamp, shard, id, run)).await.map(|_| ())
    }

    /// Whether a writer may be writing this blob, or the row that names it.
    pub(super) fn is_leased(&self, record: &BlobRecord) -> bool {
        // For its own runs the process knows more than the row, which is updated later.
        match record.name.run.process == self.process {
            true => self.leased_runs.lock().contains(&record.name.run),
            false => record.has_lease,
        }
    }
}

impl RecordName {
    /// The primary key.
    pub(super) fn key(&self) -> (i32, Bytes, Bytes) {
        (id_shard(&self.id), Bytes::copy_from_slice(&self.id.0), self.run.name())
    }

    /// The stamp of the `count`th write of the run.
    pub(super) fn stamp(&self, count: u64) -> i64 {
        self.run.began.saturating_add(count).cast_signed()
    }
}

impl BlobRecord {
    /// Length and time of the finish, if the run is readable.
    pub(super) fn readable(&self) -> Option<(u64, Timestamp)> {
        self.finished.filter(|_| self.removed.is_none() && self.head.is_some())
    }

    fn from_columns(columns: Columns) -> Result<Self> {
        let (id, run, head, groups, length, finished, removed, abandoned, lease) = columns;
        let time = |stored: i64| Timestamp(stored.cast_unsigned());
        Ok(Self {
            name: RecordName { id: format::decode_id(&id)?, run: BlobRun::decode(run)? },
            head,
            groups: groups.unwrap_or(0),
            finished: length.map(i64::cast_unsigned).zip(finished.map(time)),
            removed: removed.map(time),
            abandoned: abandoned.map(time),
            has_lease: lease.is_some(),
        })
    }
}

/// The record of a blob that readers use: the one that finished last.
pub(super) fn current_record(records: &[BlobRecord]) -> Option<&BlobRecord> {
    let readable = records.iter().filter(|record| record.readable().is_some());
    readable.max_by_key(|record| (record.finished.map(|(_, at)| at), record.name.run))
}

fn id_shard(id: &BlobId) -> i32 {
    i32::from(id.0[0])
}

fn read(answer: QueryResult) -> Result<Vec<BlobRecord>> {
    let rows = answer.into_rows_result().map_err(unreadable)?;
    let rows = rows.rows::<Columns>().map_err(unreadable)?;
    rows.map(|row| BlobRecord::from_columns(row.map_err(unreadable)?)).collect()
}
