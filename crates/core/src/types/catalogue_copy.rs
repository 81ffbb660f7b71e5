//! A gateway's copy of the catalogue: kept fresh, changed by a compare-and-set on its number, and guarded by the writes that
//! rely on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::{BucketEpochs, Change, Row, Timestamp};
use larder_store::leases::HolderCounts;
use larder_store::{
    CallOptions, CasResult, ConsistencyLevel, Durability, Partition, RateLimitedLog, ReadQuery, RowPage, as_micros,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::catalogue::{Catalogue, CatalogueEdit};
use crate::metrics::Event;
use crate::node_context::{NodeContext, internal_options};
use crate::rules::catalogue_row::{CatalogueKey, CatalogueRow};
use crate::{Error, Result};

/// Requests are served only from a catalogue whose last check is younger than this.
const FRESH: Duration = Duration::from_secs(5);
const PAGE_ROWS: usize = 1000;
const READS_MAX: usize = 10;
const ATTEMPTS_MAX: usize = 200;
const FORMAT: &[u8] = b"\x01";

/// The last check of the catalogue.
#[derive(Debug)]
struct LastCheck {
    /// When it began, in microseconds of the monotonic clock; 0: there was none.
    begun: u64,
    outcome: Result<()>,
}

impl Default for LastCheck {
    fn default() -> Self {
        Self { begun: 0, outcome: Ok(()) }
    }
}

/// Guarded catalogue versions, each with its number of guards. A heartbeat must not pass the oldest.
#[derive(Debug, Default)]
pub struct CatalogueGuards(Mutex<HolderCounts<Timestamp>>);

impl CatalogueGuards {
    /// The oldest guarded version.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.0.lock().first().copied()
    }

    /// Guards the version that `load` returns.
    pub fn take(&self, load: impl FnOnce() -> Arc<Catalogue>) -> Arc<Catalogue> {
        // Race: a heartbeat between load and count would show a newer version; it takes this lock too [invariant 65].
        let mut open = self.0.lock();
        let catalogue = load();
        open.add(catalogue.number());
        catalogue
    }

    /// Releases one guard of this version.
    pub fn release(&self, number: Timestamp) {
        self.0.lock().remove(&number);
    }
}

/// A gateway's copy of the catalogue.
pub struct CatalogueCopy {
    context: Arc<NodeContext>,
    current: ArcSwap<Catalogue>,
    /// Whether the current catalogue switches security on.
    has_security: AtomicBool,
    /// Begin of the last catalogue check, in microseconds of the monotonic clock; 0: none yet.
    checked_at: AtomicU64,
    refresh_lock: tokio::sync::Mutex<LastCheck>,
    stale_log: RateLimitedLog,
    /// The guards of the writes that rely on the copy.
    pub guards: CatalogueGuards,
}

impl CatalogueCopy {
    /// An empty copy, never checked.
    pub(crate) fn new(context: Arc<NodeContext>) -> Arc<Self> {
        let empty = Catalogue::empty(Arc::clone(&context.ports.product));
        Arc::new(Self {
            context,
            current: ArcSwap::from_pointee(empty),
            has_security: AtomicBool::new(false),
            checked_at: AtomicU64::new(0),
            refresh_lock: tokio::sync::Mutex::default(),
            stale_log: RateLimitedLog::new(),
            guards: CatalogueGuards::default(),
        })
    }

    /// The catalogue as last read, however old.
    #[inline]
    pub fn current(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    /// Whether the copy switches security on, however old it is.
    pub(crate) fn has_security(&self) -> bool {
        self.has_security.load(Ordering::Acquire)
    }

    /// Serves from this state from now on.
    fn install(&self, catalogue: Catalogue) {
        let has_security = catalogue.security().settings().enabled;
        self.current.store(Arc::new(catalogue));
        // After the rules: a request that sees security on finds its users.
        self.has_security.store(has_security, Ordering::Release);
    }

    /// The catalogue number that a heartbeat may show: that of the copy, or of the oldest guard. Every guarded write relies on
    /// it or a newer one.
    pub(crate) fn advertisable_number(&self) -> Timestamp {
        // Race: copy before guards. A guard taken after this load is on this number or a newer one [invariant 65].
        let current = self.current.load().number();
        self.guards.oldest().map_or(current, |oldest| oldest.min(current))
    }

    /// Number of copies of a bucket's data. It never changes, so any catalogue that knows the type will do.
    #[inline]
    pub fn copies(&self, bucket: &BucketAddress) -> u8 {
        self.copies_of_type(&bucket.bucket_type)
    }

    /// The epochs of a bucket. Await [`Self::await_fresh`] before, and after everything that a write relies on.
    #[inline]
    pub fn epochs(&self, bucket: &BucketAddress) -> BucketEpochs {
        self.current.load().epochs(bucket)
    }

    /// Returns once the copy was checked within the last five seconds. A single gateway changes the catalogue itself.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: a write that waits for it has sent nothing yet, so that its blob need not outlive it.
    #[inline]
    pub async fn await_fresh(&self) -> Result<()> {
        if self.context.config.single_process || self.is_fresh(self.context.monotonic()) {
            return Ok(());
        }
        // Boxed: it is rare, and the future of every write would carry the room for it.
        Box::pin(self.fresh()).await.map(drop).map_err(|_| Error::Overloaded { retry_after: 1 })
    }

    /// Number of copies of a type's data.
    pub fn copies_of_type(&self, bucket_type: &[u8]) -> u8 {
        self.current.load().copies(bucket_type)
    }

    /// The catalogue to serve from: checked within the last five seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it cannot be checked now.
    #[inline]
    pub async fn fresh(&self) -> Result<Arc<Catalogue>> {
        if self.is_fresh(self.context.monotonic()) {
            return Ok(self.current.load_full());
        }
        let checked = self.checked_at();
        self.refresh().await.map_err(|error| self.refuse_stale(checked, &error))?;
        Ok(self.current.load_full())
    }

    /// As [`Self::fresh`], without a check and its wait; `None` when it was not checked within the last five seconds. `now` is
    /// monotonic time.
    #[inline]
    pub fn peek(&self, now: Duration) -> Option<arc_swap::Guard<Arc<Catalogue>>> {
        // Checked first: a catalogue loaded before could be older than the check that makes it fresh.
        self.is_fresh(now).then(|| self.current.load())
    }

    /// Whether it was checked a moment ago.
    pub(crate) fn is_fresh(&self, now: Duration) -> bool {
        // Race: a gateway suspended for an hour would serve from what the others changed since [invariant 68].
        now.saturating_sub(self.checked_at()) < FRESH
    }

    /// A fresh catalogue in which the type is active; an unknown type causes one refresh.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    #[inline]
    pub async fn for_type(&self, bucket_type: &Bytes) -> Result<Arc<Catalogue>> {
        let catalogue = self.fresh().await?;
        if catalogue.active(bucket_type).is_some() {
            return Ok(catalogue);
        }
        // Race: another gateway may have activated the type since the last check.
        self.refresh().await?;
        let catalogue = self.current();
        if catalogue.active(bucket_type).is_some() {
            Ok(catalogue)
        } else {
            Err(Error::UnknownType(bucket_type.clone()))
        }
    }

    /// The begin of the last successful check of the catalogue, in monotonic time.
    pub(crate) fn checked_at(&self) -> Duration {
        Duration::from_micros(self.checked_at.load(Ordering::Acquire))
    }

    /// The refusal of a request, logged at a limited rate.
    fn refuse_stale(&self, checked: Duration, error: &Error) -> Error {
        let now = self.context.monotonic();
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
    pub async fn refresh(&self) -> Result<()> {
        let asked = self.monotonic_micros();
        let mut last = self.refresh_lock.lock().await;
        // Race: a check that began before this call may miss a change that the caller relies on, so it does not count.
        if last.begun <= asked {
            let begun = self.monotonic_micros();
            *last = LastCheck { begun, outcome: self.check_catalogue(begun).await };
        }
        last.outcome.clone()
    }

    /// The catalogue after a check that begins now: no change answered before the call is missing in it. As [`Self::fresh`], it
    /// is checked again when the check took long.
    pub async fn refreshed(&self) -> Result<Arc<Catalogue>> {
        self.refresh().await?;
        self.fresh().await
    }

    async fn check_catalogue(&self, begun: u64) -> Result<()> {
        let number = self.catalogue_number().await?;
        // Race: a stale replica answers an older number, and the copy must not go back to it.
        if number > self.current.load().number() {
            let rows = self.read_catalogue(number).await?;
            let read = Catalogue::from_rows(rows, &self.current.load())?;
            self.context.metrics.count_event(Event::CatalogueRefreshed);
            self.install(read);
        }
        // Race: the begin counts; a process suspended in between must not take the copy for fresh [invariant 68].
        self.checked_at.store(begun, Ordering::Release);
        Ok(())
    }

    /// Changes a row of the catalogue, or several of security, by compare-and-set; returns the number of the catalogue with the change.
    pub async fn change<E: From<Error>>(
        &self,
        edit: impl Fn(&Catalogue) -> std::result::Result<CatalogueEdit, E>,
    ) -> std::result::Result<Timestamp, E> {
        let deadline = Instant::now() + self.context.config.timeout;
        let partition = Partition::catalogue();
        for conflicts in 0..ATTEMPTS_MAX {
            let writer = self.context.writer_queues.wait_for_turn(&partition, deadline).await?;
            self.refresh().await?;
            let catalogue = self.current();
            let number = self.context.now().max(catalogue.number() + 2);
            // Race: the compare-and-set below fails if another gateway changed this state in between [invariant 103].
            let edit = edit(&catalogue)?;
            let changes = match &edit {
                CatalogueEdit::Nothing => return Ok(catalogue.number()),
                CatalogueEdit::Remove(key) => vec![row_change(key, None, number)],
                CatalogueEdit::Write(key, json) => vec![row_change(key, Some(json), number)],
                CatalogueEdit::Security(edit) => {
                    let change = |(key, json): &(_, Option<Value>)| {
                        row_change(&CatalogueKey::Security(Clone::clone(key)), json.as_ref(), number)
                    };
                    edit.iter().map(change).collect()
                }
            };
            let head = Row { name: Bytes::new(), value: Bytes::from_static(FORMAT), stamp: number, expires: None };
            // Before the first change there is no head to expect.
            let expected = Some(catalogue.number()).filter(|&number| number != Timestamp::ZERO);
            // Crash: other gateways act on the change at once, and a power cut must not take it back.
            let options = CallOptions { durability: Durability::Disk, ..internal_options(ConsistencyLevel::Quorum) };
            let swapped = self.context.ports.store.apply_if(&partition, expected, head.into(), changes, &options).await;
            match swapped.map_err(Error::from)? {
                CasResult::Applied => {
                    // Installed before the answer, so that the next request through this gateway sees the change.
                    self.install_change(&catalogue, number, &edit).await?;
                    return Ok(number);
                }
                // The turn ends before the pause: other writers of this gateway need not wait for it.
                CasResult::Conflict(_) => drop(writer),
            }
            self.context.writer_queues.back_off(conflicts, deadline).await?;
        }
        Err(Error::Overloaded { retry_after: 1 }.into())
    }

    /// Installs the result of this gateway's own change of `before` without reading it: the compare-and-set proves that state.
    async fn install_change(&self, before: &Catalogue, number: Timestamp, edit: &CatalogueEdit) -> Result<()> {
        let _one = self.refresh_lock.lock().await;
        // Race: a refresh may have installed this state or a newer one in between.
        if self.current.load().number() == before.number() {
            self.install(before.changed(number, edit)?);
        }
        Ok(())
    }

    /// Monotonic time in microseconds, never 0.
    fn monotonic_micros(&self) -> u64 {
        as_micros(self.context.monotonic()).max(1)
    }

    /// The number of the catalogue, from the live replicas: with most of them down it may be an older one.
    async fn catalogue_number(&self) -> Result<Timestamp> {
        let page = self.context.read_internal_table(&Partition::catalogue(), &ReadQuery::all(1)).await?;
        Ok(page_number(&page))
    }

    /// Reads all rows of one state. Pages are not isolated, so the number must be the same before and after. A quorum must
    /// answer: a single replica may have the head of a change and lack a row of an earlier one.
    async fn read_catalogue(&self, mut number: Timestamp) -> Result<Vec<Row>> {
        for _ in 0..READS_MAX {
            let mut rows: Vec<Row> = Vec::new();
            loop {
                let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
                let page = self.context.read_at_quorum(&Partition::catalogue(), &query).await?;
                let ended = page.stopped == larder_store::Stopped::End;
                rows.extend(page.rows);
                if ended {
                    break;
                }
            }
            let head = self.context.read_at_quorum(&Partition::catalogue(), &ReadQuery::all(1)).await?;
            let after = page_number(&head);
            if after == number && rows.first().is_some_and(|head| head.stamp == number) {
                return Ok(rows);
            }
            // Race: a change came during the read, so these pages may mix two states.
            number = after;
        }
        Err(Error::NotReady("the catalogue of bucket types changes faster than it can be read".into()))
    }
}

fn row_change(key: &CatalogueKey, json: Option<&Value>, number: Timestamp) -> Change {
    match json {
        None => Change::Remove { name: key.encode(), stamp: number },
        Some(json) => {
            let value = CatalogueRow::encode(json);
            Change::Put(Row { name: key.encode(), value, stamp: number, expires: None })
        }
    }
}

fn page_number(page: &RowPage) -> Timestamp {
    page.rows.first().filter(|row| row.name.is_empty()).map_or(Timestamp::ZERO, |row| row.stamp)
}
