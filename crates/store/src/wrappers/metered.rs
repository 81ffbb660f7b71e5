//! Counts what a store is asked, how often it fails and how long it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use larder_model::content::BlobId;

use crate::{
    Batch, BlobOwner, BlobReader, BlobWriter, Blobs, Change, Clock, EngineLimits, Head, ListedBlob, Micros, Options,
    Page, Partition, PartitionPage, ReadQuery, Result, Stamp, Store, Swap, Table,
};

/// What a store can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// [`Store::read`].
    Read,
    /// [`Store::apply`].
    Apply,
    /// [`Store::apply_if`].
    ApplyIf,
    /// [`Store::partitions`].
    Partitions,
    /// [`Store::now`].
    Now,
    /// [`Blobs::create`].
    BlobCreate,
    /// [`Blobs::open`].
    BlobOpen,
    /// [`Blobs::remove`].
    BlobRemove,
    /// [`Blobs::list`].
    BlobList,
}

/// Numbers of one verb since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Calls begun.
    pub calls: u64,
    /// Calls answered with an error.
    pub errors: u64,
    /// Time that answered calls took together.
    pub time: Duration,
}

/// Numbers of every verb. Not of one moment: calls go on while they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([Count; Verb::ALL.len()]);

/// A store that counts its calls and changes nothing about them.
pub struct Metered<S: ?Sized> {
    clock: Arc<dyn Clock>,
    meters: [Meter; Verb::ALL.len()],
    inner: Arc<S>,
}

#[derive(Default)]
struct Meter {
    calls: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Apply,
        Self::ApplyIf,
        Self::Partitions,
        Self::Now,
        Self::BlobCreate,
        Self::BlobOpen,
        Self::BlobRemove,
        Self::BlobList,
    ];

    /// Name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Apply => "apply",
            Self::ApplyIf => "apply_if",
            Self::Partitions => "partitions",
            Self::Now => "now",
            Self::BlobCreate => "blob_create",
            Self::BlobOpen => "blob_open",
            Self::BlobRemove => "blob_remove",
            Self::BlobList => "blob_list",
        }
    }
}

impl Counts {
    /// The numbers of one verb.
    #[must_use]
    pub fn of(&self, verb: Verb) -> Count {
        self.0[verb as usize]
    }

    /// Every verb with its numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Verb, Count)> + '_ {
        Verb::ALL.into_iter().zip(self.0)
    }
}

impl<S: ?Sized> Metered<S> {
    /// Counts the calls to `inner`, timed by `clock`.
    #[must_use]
    pub fn new(inner: Arc<S>, clock: Arc<dyn Clock>) -> Self {
        Self { clock, meters: Default::default(), inner }
    }

    /// The numbers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|verb| self.meters[verb].count()))
    }

    async fn meter<T>(&self, verb: Verb, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let meter = &self.meters[verb as usize];
        meter.calls.fetch_add(1, Ordering::Relaxed);
        let start = self.clock.monotonic();
        let answer = call.await;
        meter.answered(self.clock.monotonic().saturating_sub(start), answer.is_err());
        answer
    }
}

impl Meter {
    fn answered(&self, time: Duration, failed: bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    fn count(&self) -> Count {
        Count {
            calls: self.calls.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Metered<S> {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        self.meter(Verb::Read, self.inner.read(partition, query, options)).await
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        self.meter(Verb::Apply, self.inner.apply(batch, options)).await
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        self.meter(Verb::ApplyIf, self.inner.apply_if(partition, expected, head, changes, options)).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.meter(Verb::Partitions, self.inner.partitions(table, after, limit, options)).await
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        self.meter(Verb::Now, self.inner.now(options)).await
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
        self.meter(Verb::BlobCreate, self.inner.create(id, owner)).await
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        self.meter(Verb::BlobOpen, self.inner.open(id)).await
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.meter(Verb::BlobRemove, self.inner.remove(id)).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        self.meter(Verb::BlobList, self.inner.list(after, limit)).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[cfg(test)]
mod tests;
