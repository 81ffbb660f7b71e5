//! A gateway's copy of the catalogue, kept fresh.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_model::address::BucketAddress;
use larder_model::rows::{Row, Stamp};
use larder_store::{ConsistencyLevel, Partition, ReadQuery, RowPage, micros_of};

use super::catalogue::{Catalogue, CatalogueEdit};
use crate::metrics::Event;
use crate::{Error, Gateway, Result};

/// Requests are served only from a catalogue whose last check is younger than this.
const FRESH: Duration = Duration::from_secs(5);
const PAGE_ROWS: usize = 1000;
const READS_MAX: usize = 10;

/// The last check of the catalogue.
#[derive(Debug)]
pub(crate) struct LastCheck {
    /// When it began, in microseconds of the monotonic clock; 0: there was none.
    begun: u64,
    outcome: Result<()>,
}

impl Default for LastCheck {
    fn default() -> Self {
        Self { begun: 0, outcome: Ok(()) }
    }
}

impl Gateway {
    /// Number of copies of a bucket's data. It never changes, so any catalogue that knows the type will do.
    pub(crate) fn copies(&self, bucket: &BucketAddress) -> u8 {
        self.copies_of_type(&bucket.bucket_type)
    }

    /// Number of copies of a type's data.
    pub(crate) fn copies_of_type(&self, bucket_type: &[u8]) -> u8 {
        self.catalogue.load().copies(bucket_type)
    }

    /// The catalogue to serve from: checked within the last five seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it cannot be checked now.
    pub(crate) async fn fresh_catalogue(&self) -> Result<Arc<Catalogue>> {
        let checked = self.catalogue_checked_at();
        if self.monotonic().saturating_sub(checked) < FRESH {
            return Ok(self.catalogue.load_full());
        }
        self.refresh_catalogue().await.map_err(|error| self.refuse_stale(checked, &error))?;
        Ok(self.catalogue.load_full())
    }

    /// The begin of the last successful check of the catalogue, in monotonic time.
    pub(crate) fn catalogue_checked_at(&self) -> Duration {
        Duration::from_micros(self.checked_at.load(Ordering::Acquire))
    }

    /// The refusal of a request, logged at a limited rate.
    fn refuse_stale(&self, checked: Duration, error: &Error) -> Error {
        let now = self.monotonic();
        if let Some(line) = self.stale_log.admit(now) {
            tracing::warn!(
                %error,
                seconds = now.saturating_sub(checked).as_secs(),
                left_out = line.left_out,
                "checking the catalogue of bucket types fails: requests are refused with 503 until a check succeeds"
            );
        }
        Error::NotReady(format!("the catalogue of bucket types cannot be checked: {error}"))
    }

    /// Checks the catalogue's number and reads the rows if it grew; never goes back to an older one. Callers that wait for
    /// another caller's check share its outcome, so their waits do not add up.
    pub(crate) async fn refresh_catalogue(&self) -> Result<()> {
        let asked = self.monotonic_micros();
        let mut last = self.refresh_lock.lock().await;
        // Only a check that began after this call may answer it: an earlier one may miss a change that the caller relies on.
        if last.begun <= asked {
            let begun = self.monotonic_micros();
            *last = LastCheck { begun, outcome: self.check_catalogue(begun).await };
        }
        last.outcome.clone()
    }

    async fn check_catalogue(&self, begun: u64) -> Result<()> {
        let number = self.catalogue_number().await?;
        if number > self.catalogue.load().number() {
            let rows = self.read_catalogue(number).await?;
            let read = Catalogue::of(rows, &self.catalogue.load())?;
            self.metrics.count_event(Event::CatalogueRefreshed);
            self.catalogue.store(Arc::new(read));
        }
        // The begin counts, not the end: a process suspended in between must not take the copy for fresh.
        self.checked_at.store(begun, Ordering::Release);
        Ok(())
    }

    /// Installs the result of this gateway's own change of `before` without reading it: the compare-and-set proves that state.
    pub(super) async fn install_change(&self, before: &Catalogue, number: Stamp, edit: &CatalogueEdit) -> Result<()> {
        let _one = self.refresh_lock.lock().await;
        // A refresh may have installed this state or a newer one in between.
        if self.catalogue.load().number() == before.number() {
            self.catalogue.store(Arc::new(before.changed(number, edit)?));
        }
        Ok(())
    }

    /// Monotonic time in microseconds, never 0.
    fn monotonic_micros(&self) -> u64 {
        micros_of(self.monotonic()).max(1)
    }

    /// The number of the catalogue, from the live replicas: with most of them down it may be an older one.
    async fn catalogue_number(&self) -> Result<Stamp> {
        let page = self.read_internal_table(&Partition::catalogue(), &ReadQuery::all(1)).await?;
        Ok(number_of(&page))
    }

    /// Reads all rows of one state. Pages are not isolated, so the number must be the same before and after. A quorum must
    /// answer: a single replica may have the head of a change and lack a row of an earlier one.
    async fn read_catalogue(&self, mut number: Stamp) -> Result<Vec<Row>> {
        for _ in 0..READS_MAX {
            let mut rows: Vec<Row> = Vec::new();
            loop {
                let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
                let page = self
                    .ports
                    .store
                    .read(&Partition::catalogue(), &query, &self.internal_options(ConsistencyLevel::Quorum))
                    .await?;
                let ended = page.stopped == larder_store::Stopped::End;
                rows.extend(page.rows);
                if ended {
                    break;
                }
            }
            let options = self.internal_options(ConsistencyLevel::Quorum);
            let head = self.ports.store.read(&Partition::catalogue(), &ReadQuery::all(1), &options).await?;
            let after = number_of(&head);
            if after == number && rows.first().is_some_and(|head| head.stamp == number) {
                return Ok(rows);
            }
            number = after;
        }
        Err(Error::NotReady("the catalogue of bucket types changes faster than it can be read".into()))
    }
}

fn number_of(page: &RowPage) -> Stamp {
    page.rows.first().filter(|row| row.name.is_empty()).map_or(0, |row| row.stamp)
}
