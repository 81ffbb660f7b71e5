//! Counts the calls of a store, their errors and their duration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;

use crate::{
    Batch, BlobOwner, BlobReader, BlobWriter, Blobs, CallOptions, CasResult, Change, Clock, EngineLimits, HeadWrite,
    ListedBlob, Partition, PartitionPage, ReadQuery, Result, Row, RowPage, Store, Table, Timestamp,
};

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident = $name:literal;)+) => {
        /// The calls of a store.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StoreVerb {
            $($(#[doc = $doc])+ $verb),+
        }

        impl StoreVerb {
            /// Every verb.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$verb),+];

            /// Name for metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$verb => $name),+
                }
            }

            /// Names of its metrics: calls, errors, and their time in seconds.
            #[must_use]
            pub fn metric_names(self) -> [&'static str; 3] {
                match self {
                    $(Self::$verb => [
                        concat!("larder_store_calls_total{verb=\"", $name, "\"}"),
                        concat!("larder_store_errors_total{verb=\"", $name, "\"}"),
                        concat!("larder_store_seconds_total{verb=\"", $name, "\"}"),
                    ]),+
                }
            }
        }
    };
}

verbs! {
    /// [`Store::read`].
    Read = "read";
    /// [`Store::apply`].
    Apply = "apply";
    /// [`Store::apply_if`].
    ApplyIf = "apply_if";
    /// [`Store::partitions`].
    Partitions = "partitions";
    /// [`Store::now`].
    Now = "now";
    /// [`Blobs::create`].
    BlobCreate = "blob_create";
    /// [`Blobs::open`].
    BlobOpen = "blob_open";
    /// [`Blobs::remove`].
    BlobRemove = "blob_remove";
    /// [`Blobs::list`].
    BlobList = "blob_list";
}

/// Counts of one verb since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerbCounts {
    /// Calls started.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Total duration of finished calls.
    pub time: Duration,
}

/// Counts of every verb. They are not a snapshot: calls go on while they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounts([VerbCounts; StoreVerb::ALL.len()]);

/// A store that counts its calls and passes them on unchanged.
pub struct Metered<S: ?Sized> {
    clock: Arc<dyn Clock>,
    meters: [Meter; StoreVerb::ALL.len()],
    /// Tries to read a single row at once, of which some are measured.
    single_reads: AtomicU64,
    /// The same for rows with a name.
    named_reads: AtomicU64,
    inner: Arc<S>,
}

#[derive(Default)]
struct Meter {
    calls: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

impl StoreCounts {
    /// Counts of one verb.
    #[must_use]
    pub fn verb(&self, verb: StoreVerb) -> VerbCounts {
        self.0[verb as usize]
    }

    /// Every verb with its counts.
    pub fn iter(&self) -> impl Iterator<Item = (StoreVerb, VerbCounts)> + '_ {
        StoreVerb::ALL.into_iter().zip(self.0)
    }
}

impl<S: ?Sized> Metered<S> {
    /// Counts the calls to `inner`; `clock` measures their duration.
    #[must_use]
    pub fn new(inner: Arc<S>, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            meters: Default::default(),
            single_reads: AtomicU64::new(0),
            named_reads: AtomicU64::new(0),
            inner,
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        StoreCounts(std::array::from_fn(|verb| self.meters[verb].count()))
    }

    async fn meter<T>(&self, verb: StoreVerb, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let meter = &self.meters[verb as usize];
        // Counted at the start: a call that hangs or is dropped shows as a call without time.
        meter.count_call();
        let start = self.clock.monotonic();
        let answer = call.await;
        meter.record(self.clock.monotonic().saturating_sub(start), answer.is_err());
        answer
    }

    fn meter_at_once(&self, tries: &AtomicU64, read: impl FnOnce() -> Option<Row>) -> Option<Row> {
        let meter = &self.meters[StoreVerb::Read as usize];
        // A count for each kind: other reads in between would decide which ones are measured.
        if !tries.fetch_add(1, Ordering::Relaxed).is_multiple_of(READS_PER_MEASURE) {
            return read().inspect(|_| meter.count_call());
        }
        let start = self.clock.monotonic();
        // A try without a row is no call: its caller reads again, and that read counts. It reads again, too, where the row is
        // of no use to it, such as that of a blob; then both count.
        let row = read()?;
        meter.count_call();
        let took = as_nanos(self.clock.monotonic().saturating_sub(start));
        meter.nanos.fetch_add(took.saturating_mul(READS_PER_MEASURE), Ordering::Relaxed);
        Some(row)
    }
}

/// Of so many reads at once one is measured, and counts for all: two looks at the clock cost a tenth of such a read.
const READS_PER_MEASURE: u64 = 16;

impl Meter {
    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, time: Duration, failed: bool) {
        self.nanos.fetch_add(as_nanos(time), Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    fn count(&self) -> VerbCounts {
        VerbCounts {
            calls: self.calls.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

fn as_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[async_trait]
impl<S: Store + ?Sized> Store for Metered<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        self.meter(StoreVerb::Read, self.inner.read(partition, query, options)).await
    }

    fn try_read_single_row(&self, partition: &Partition) -> Option<Row> {
        self.meter_at_once(&self.single_reads, || self.inner.try_read_single_row(partition))
    }

    fn try_read_row(&self, partition: &Partition, name: &Bytes) -> Option<Row> {
        self.meter_at_once(&self.named_reads, || self.inner.try_read_row(partition, name))
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        self.meter(StoreVerb::Apply, self.inner.apply(batch, options)).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        self.meter(StoreVerb::ApplyIf, self.inner.apply_if(partition, expected, head, changes, options)).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.meter(StoreVerb::Partitions, self.inner.partitions(table, after, limit, options)).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.meter(StoreVerb::Now, self.inner.now(options)).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl<S: Blobs + ?Sized> Blobs for Metered<S> {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        self.meter(StoreVerb::BlobCreate, self.inner.create(id, owner)).await
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.meter(StoreVerb::BlobOpen, self.inner.open(id)).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.meter(StoreVerb::BlobRemove, self.inner.remove(id)).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        self.meter(StoreVerb::BlobList, self.inner.list(after, limit)).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}
