//! A gateway's copy of the catalogue, and how it is kept fresh.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_model::address::BucketAddress;
use larder_model::rows::{Row, Stamp};
use larder_store::{Level, Page, Partition, ReadQuery, micros_of};

use super::catalogue::{Catalogue, Edit};
use crate::metrics::Event;
use crate::{Error, Gateway, Result, Rule};

/// Nothing is served from a catalogue that was not checked for this long.
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
    /// Copies of what is in a bucket. They never change, so any catalogue that knows the type will do.
    pub(crate) fn copies(&self, bucket: &BucketAddress) -> u8 {
        self.copies_of_type(&bucket.bucket_type)
    }

    /// Copies of what is in the buckets of a type.
    pub(crate) fn copies_of_type(&self, bucket_type: &[u8]) -> u8 {
        self.catalogue.load().copies(bucket_type)
    }

    /// The catalogue to serve from: checked within the last five seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it cannot be checked now.
    pub(crate) async fn fresh(&self) -> Result<Arc<Catalogue>> {
        let checked = Duration::from_micros(self.checked_at.load(Ordering::Acquire));
        if self.monotonic().saturating_sub(checked) < FRESH || !self.rule(Rule::FreshCatalogue) {
            return Ok(self.catalogue.load_full());
        }
        self.refresh().await.map_err(|error| self.stale(checked, &error))?;
        Ok(self.catalogue.load_full())
    }

    /// The refusal of a request, which the log tells once in a while.
    fn stale(&self, checked: Duration, error: &Error) -> Error {
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

    /// Checks the catalogue's number and reads it anew if it changed. Never goes back to an older one. Callers that wait
    /// while another one checks take over its outcome: their waits do not add up.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let asked = self.micros();
        let mut last = self.refreshing.lock().await;
        if last.begun <= asked {
            let begun = self.micros();
            *last = LastCheck { begun, outcome: self.check_catalogue(begun).await };
        }
        last.outcome.clone()
    }

    async fn check_catalogue(&self, begun: u64) -> Result<()> {
        let number = self.catalogue_number().await?;
        if number > self.catalogue.load().number() {
            let rows = self.read_catalogue(number).await?;
            let read = Catalogue::of(rows, &self.catalogue.load())?;
            self.metrics.event(Event::CatalogueRefreshed);
            self.catalogue.store(Arc::new(read));
        }
        self.checked_at.store(begun, Ordering::Release);
        Ok(())
    }

    /// Takes over what an own change made of `before`, without reading it: the change was made on that state or not at all.
    pub(super) async fn take_over(&self, before: &Catalogue, number: Stamp, edit: &Edit) -> Result<()> {
        let _one = self.refreshing.lock().await;
        // Somebody else may have read it meanwhile, or a newer one.
        if self.catalogue.load().number() == before.number() {
            self.catalogue.store(Arc::new(before.changed(number, edit)?));
        }
        Ok(())
    }

    /// Monotonic time in microseconds, never 0.
    fn micros(&self) -> u64 {
        micros_of(self.monotonic()).max(1)
    }

    /// The number of the catalogue, by the replicas that are up: with most of them down that may be an older one.
    async fn catalogue_number(&self) -> Result<Stamp> {
        let page = self.read_own(&Partition::catalogue(), &ReadQuery::all(1)).await?;
        Ok(number_of(&page))
    }

    /// All rows of one state: pages are not isolated from each other, so the number must be the same before and after. A
    /// quorum has to answer: a single replica may have the head of a change and lack a row of the one before.
    async fn read_catalogue(&self, mut number: Stamp) -> Result<Vec<Row>> {
        for _ in 0..READS_MAX {
            let mut rows: Vec<Row> = Vec::new();
            loop {
                let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
                let page = self.ports.store.read(&Partition::catalogue(), &query, &self.own(Level::Quorum)).await?;
                let ended = page.stopped == larder_store::Stopped::End;
                rows.extend(page.rows);
                if ended {
                    break;
                }
            }
            let options = self.own(Level::Quorum);
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

fn number_of(page: &Page) -> Stamp {
    page.rows.first().filter(|row| row.name.is_empty()).map_or(0, |row| row.stamp)
}
