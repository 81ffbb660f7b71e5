//! What the parts of one node share: ports, settings, metrics, admission, clocks and names.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use larder_rows::Timestamp;
use larder_store::{Batch, CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Row, RowPage, Stopped};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::adaptive_timeout::AdaptiveTimeout;
use crate::audit::AuditSink;
use crate::contention::WriterQueues;
use crate::metrics::{Event, InFlight, KvOp, Metrics, RequestOutcome};
use crate::ports::GatewayPorts;
use crate::{Config, Error, Result};

/// Timeout of calls that a gateway makes for itself.
pub const INTERNAL_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Rows of a key per page. A key has few: siblings are limited, and tombstones expire.
pub const PAGE_ROWS: usize = 1000;

/// Counts a request as admitted until dropped.
#[derive(Debug)]
#[must_use = "the request is admitted as long as this lives"]
pub struct AdmissionGuard(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// The context of one node: each part of the core and of the products holds it.
pub struct NodeContext {
    /// Everything outside of it.
    pub ports: GatewayPorts,
    /// The settings it was started with.
    pub config: Config,
    /// Counters and distributions.
    pub metrics: Arc<Metrics>,
    /// The writers of each key, in turn.
    pub writer_queues: WriterQueues,
    pub(crate) replica_timeout: AdaptiveTimeout,
    admission: Arc<Semaphore>,
    names_made: AtomicU64,
    stopping: AtomicBool,
}

impl NodeContext {
    /// The context over these ports.
    pub(crate) fn new(ports: GatewayPorts, config: Config) -> Arc<Self> {
        Arc::new(Self {
            metrics: Arc::new(Metrics::default()),
            writer_queues: WriterQueues::new(ports.random),
            replica_timeout: AdaptiveTimeout::default(),
            admission: Arc::new(Semaphore::new(config.requests_max)),
            names_made: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            ports,
            config,
        })
    }

    /// The engine of scripts.
    pub fn scripts(&self) -> Option<Arc<dyn crate::Scripts>> {
        self.ports.scripts.clone()
    }

    /// The audit log, if there is one.
    pub fn audit(&self) -> Option<&dyn AuditSink> {
        self.ports.audit.as_deref()
    }

    /// Counts an event of an edge, such as a caught panic.
    pub fn count_event(&self, event: Event) {
        self.metrics.count_event(event);
    }

    /// Logs and counts a panic of a request, which is a bug; the log names it so.
    pub fn report_panic(&self, request: &str, panic: &(dyn Any + Send)) {
        let reason = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(|text| &**text));
        let reason = reason.unwrap_or("unknown");
        tracing::error!(request, reason, "request panicked: the client gets an error of the server, this is a bug");
        self.metrics.count_event(Event::Panicked);
    }

    /// Counts a connection of protocol buffers as open until the guard is dropped.
    pub fn begin_pb_connection(&self) -> InFlight<'_> {
        self.metrics.begin_pb_connection(self.monotonic())
    }

    /// Notes that the server ends: probes say so from now on.
    pub fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server ends: answers that run without an end break off.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Wall clock in microseconds since 1970.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// Monotonic time since a fixed moment.
    #[inline]
    pub fn monotonic(&self) -> Duration {
        self.ports.clock.monotonic()
    }

    /// A unique name, for an object put without a key or for a request: 160 bits in base 62.
    pub fn new_unique_name(&self) -> String {
        // No other run has this actor, so the count need not survive a restart.
        let unique = self.names_made.fetch_add(1, Ordering::Relaxed);
        let word =
            |salt: u8| larder_rows::hash::id128(&[&self.ports.actor.0.to_be_bytes(), &unique.to_be_bytes(), &[salt]]);
        let head = larder_rows::hash::base62(word(0));
        let tail = larder_rows::hash::base62(word(1) >> 96);
        format!("{head}{tail}")
    }

    /// The id of a request, for its answer and log lines: 22 digits in base 62. No other has it, but a client could compute the
    /// next one from it.
    pub fn new_request_id(&self) -> String {
        let unique = u128::from(self.names_made.fetch_add(1, Ordering::Relaxed));
        let mixed = larder_rows::hash::fast128(&(u128::from(self.ports.actor.0) << 64 | unique).to_be_bytes());
        larder_rows::hash::base62_digits(mixed).iter().map(|digit| char::from(*digit)).collect()
    }

    /// Reads a page at a quorum, under the options of the gateway's own calls.
    pub async fn read_at_quorum(&self, partition: &Partition, query: &ReadQuery) -> Result<RowPage> {
        Ok(self.ports.store.read(partition, query, &internal_options(ConsistencyLevel::Quorum)).await?)
    }

    /// Reads all rows of a key's partition at one level.
    #[inline]
    pub async fn read_rows(&self, partition: &Partition, options: &CallOptions) -> larder_store::Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
            let page = self.ports.store.read(partition, &query, options).await?;
            rows.extend(page.rows);
            if page.stopped == Stopped::End {
                return Ok(rows);
            }
        }
    }

    /// Writes at a quorum, under the options of the gateway's own calls.
    pub async fn apply_at_quorum(&self, batch: Batch) -> Result<()> {
        Ok(self.ports.store.apply(batch, &internal_options(ConsistencyLevel::Quorum)).await?)
    }

    /// Admits a request of an edge that does not go through [`Self::begin`]: `requests_max` at once, over all edges.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    #[inline]
    pub fn admit(&self) -> Result<AdmissionGuard> {
        let permit = Arc::clone(&self.admission).try_acquire_owned();
        permit.map(AdmissionGuard).map_err(|_| Error::Overloaded { retry_after: 1 })
    }

    /// Whether `requests_max` requests run now, so that one more would be refused.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.admission.available_permits() == 0
    }

    /// Admits an operation, counts it as active, and begins to time it.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    #[inline]
    pub fn begin(&self, op: KvOp) -> Result<MeasuredRequest<'_>> {
        let Ok(admitted) = self.admission.try_acquire() else {
            return Err(Error::Overloaded { retry_after: 1 });
        };
        let active = self.metrics.begin_request(op);
        Ok(MeasuredRequest { context: self, op, begun: self.monotonic(), _admitted: admitted, active })
    }

    /// Runs one operation: admits, counts and times it. The future of the work is held twice; large ones use [`Self::begin`].
    pub async fn admit_and_measure<T>(&self, op: KvOp, work: impl Future<Output = Result<T>>) -> Result<T> {
        let request = self.begin(op)?;
        let result = work.await;
        request.end(result, |_| RequestOutcome::Ok)
    }
}

/// An admitted operation, active until it is dropped and timed until it is ended.
#[must_use = "an operation that is not ended counts in no histogram"]
pub struct MeasuredRequest<'a> {
    context: &'a NodeContext,
    op: KvOp,
    begun: Duration,
    _admitted: SemaphorePermit<'a>,
    active: InFlight<'a>,
}

impl MeasuredRequest<'_> {
    /// From now on it is an operation of this kind, which was not known when it began.
    #[inline]
    pub fn becomes(&mut self, op: KvOp) {
        self.active = self.context.metrics.begin_request(op);
        self.op = op;
    }

    /// Records the result and the time that it took; returns the result. `outcome` classes the successes.
    #[inline]
    pub fn end<T>(self, result: Result<T>, outcome: fn(&T) -> RequestOutcome) -> Result<T> {
        let now = self.context.monotonic();
        let outcome = result.as_ref().map_or_else(Error::outcome, outcome);
        self.context.metrics.record_request(self.op, now.saturating_sub(self.begun), outcome, now);
        result
    }
}

/// Options of calls that the gateway makes for itself: they free space or keep gateways running, so a full disk accepts them.
pub fn internal_options(level: ConsistencyLevel) -> CallOptions {
    CallOptions::new(level, Instant::now() + INTERNAL_CALL_TIMEOUT, Durability::Buffered).reclaiming()
}

/// Lets other requests run after a page of a long read. An engine in this process never waits: without this the read would hold its
/// thread to the end, and each page costs up to a millisecond. After the last page a part of the task's budget is enough.
pub async fn yield_after(stopped: Stopped) {
    match stopped {
        Stopped::Limit => tokio::task::yield_now().await,
        Stopped::End => tokio::task::consume_budget().await,
    }
}
