//! A connection of a cell: its loop, and the tally that all loops of the cell share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::cells::{KvOperation, PIPELINE_DEPTH};
use crate::client::ReplySummary;
use crate::driver::KvDriver;
use crate::keys::{KEY_BYTES, key};
use crate::wire::WriteWait;

/// The longest latency of the histogram, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;

/// The shortest and the longest warm-up.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// The time in which a cell counts operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasureWindow {
    /// The end of the warm-up, which does not count.
    pub(crate) warm_until: Instant,
    /// The time after which no operation starts or counts.
    pub(crate) stop_at: Instant,
}

impl MeasureWindow {
    /// The window of `length` after a warm-up of a fifth of it.
    pub(crate) fn after_warming_up(now: Instant, length: Duration) -> Self {
        let warm_until = now + (length / 5).clamp(WARM_UP.0, WARM_UP.1);
        Self { warm_until, stop_at: warm_until + length }
    }

    /// The window that begins now, for work that a warm-up would use up.
    pub(crate) fn at_once(now: Instant, length: Duration) -> Self {
        Self { warm_until: now, stop_at: now + length }
    }

    /// Its length when the work ended at `ended`.
    pub(crate) fn seconds_until(self, ended: Instant) -> f64 {
        let seconds = ended.min(self.stop_at).saturating_duration_since(self.warm_until).as_secs_f64();
        seconds.max(0.001)
    }

    /// Whether an operation that ends at `moment` counts.
    pub(crate) fn holds(self, moment: Instant) -> bool {
        (self.warm_until..=self.stop_at).contains(&moment)
    }
}

/// The latencies and the failures of a cell's connections.
#[derive(Debug)]
pub(crate) struct CellTally {
    /// The latencies of expected answers in the window.
    pub(crate) latencies_us: Histogram<u64>,
    /// The counts of unexpected answers by their text, those of the warm-up included.
    pub(crate) unexpected: BTreeMap<String, u64>,
    /// The error of the first broken connection.
    pub(crate) broken: Option<String>,
    /// The time when the last connection ended.
    pub(crate) ended: Instant,
    /// The longest time in the window in which no connection got an answer.
    pub(crate) longest_silence: Duration,
    /// The time of the last answer in the window.
    last_answer: Option<Instant>,
}

impl CellTally {
    /// An empty tally.
    ///
    /// # Errors
    ///
    /// Never with these bounds; only the histogram's signature has an error.
    pub(crate) fn new(ended: Instant) -> Result<Self> {
        let latencies_us = Histogram::new_with_max(LATENCY_US_MAX, 3)?;
        Ok(Self {
            latencies_us,
            unexpected: BTreeMap::new(),
            broken: None,
            ended,
            longest_silence: Duration::ZERO,
            last_answer: None,
        })
    }

    /// Counts `operations` expected answers that ended together.
    fn count(&mut self, started: Instant, ended: Instant, operations: u64) {
        let micros = (ended - started).as_micros() as u64;
        self.latencies_us.saturating_record_n(micros.max(1), operations);
        let silence = self.last_answer.map_or(Duration::ZERO, |last| ended.saturating_duration_since(last));
        self.longest_silence = self.longest_silence.max(silence);
        self.last_answer = self.last_answer.max(Some(ended));
    }
}

/// The tally of a cell: one for all connections, so that it stays in the processor's cache.
#[derive(Clone)]
pub(crate) struct SharedCellTally(Arc<Mutex<CellTally>>);

impl SharedCellTally {
    /// An empty tally for `window`.
    ///
    /// # Errors
    ///
    /// As [`CellTally::new`].
    pub(crate) fn new(window: MeasureWindow) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(CellTally::new(window.warm_until)?))))
    }

    /// Records a broken connection; only the first is kept.
    pub(crate) fn record_broken(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
    }

    /// Takes the results so far.
    pub(crate) fn take(&self) -> CellTally {
        let mut tally = self.lock();
        CellTally {
            latencies_us: tally.latencies_us.clone(),
            unexpected: std::mem::take(&mut tally.unexpected),
            broken: tally.broken.take(),
            ended: tally.ended,
            longest_silence: tally.longest_silence,
            last_answer: tally.last_answer,
        }
    }

    fn lock(&self) -> MutexGuard<'_, CellTally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that repeats one operation.
pub(crate) struct KvWorker {
    /// Its connection.
    pub(crate) driver: KvDriver,
    /// The operation that it repeats.
    pub(crate) operation: KvOperation,
    /// The kind and the number of the keys that it reads.
    pub(crate) read_keys: (&'static str, u64),
    /// The number of its next new key.
    pub(crate) new_key: u64,
    /// The distance of its new keys: other connections take those between.
    pub(crate) step: u64,
}

/// The text of an unexpected answer; `None` for an expected one.
pub(crate) type UnexpectedAnswer = Option<String>;

/// The operation that a connection of a cell repeats.
pub(crate) trait RepeatedOperation: Send {
    /// Runs the operation once.
    ///
    /// # Errors
    ///
    /// A broken connection.
    fn once(&mut self) -> impl Future<Output = Result<UnexpectedAnswer>> + Send;

    /// The operations that count for one run: several when they are sent together.
    fn operations(&self) -> u64 {
        1
    }
}

/// Repeats an operation until the window ends, the bound is reached or the connection breaks.
pub(crate) async fn repeat(
    mut worker: impl RepeatedOperation,
    bound: u64,
    window: MeasureWindow,
    tally: SharedCellTally,
) {
    let mut started = Instant::now();
    for _ in 0..bound {
        if started >= window.stop_at {
            break;
        }
        let outcome = worker.once().await;
        let ended = Instant::now();
        match outcome {
            Ok(None) if window.holds(ended) => tally.lock().count(started, ended, worker.operations()),
            Ok(None) => {}
            Ok(Some(unexpected)) => *tally.lock().unexpected.entry(unexpected).or_default() += 1,
            Err(error) => {
                tally.record_broken(&format!("{error:#}"));
                break;
            }
        }
        started = ended;
    }
    let mut tally = tally.lock();
    tally.ended = tally.ended.max(started);
}

impl RepeatedOperation for KvWorker {
    async fn once(&mut self) -> Result<UnexpectedAnswer> {
        match self.operation {
            KvOperation::Get => self.get().await,
            KvOperation::PipelinedGet => self.get_pipelined().await,
            KvOperation::MissingGet => {
                let missing = self.driver.random().next();
                Ok(expect(404, None, self.driver.get(&key("miss", missing)).await?))
            }
            KvOperation::PutDurable => self.put_new(WriteWait::Disk).await,
            KvOperation::PutExisting => self.put_existing().await,
            KvOperation::PutBuffered => self.put_new(WriteWait::Memory).await,
            KvOperation::ReadModifyWrite => self.read_modify_write().await,
            KvOperation::Mix if self.driver.random().below(5) == 0 => self.put_existing().await,
            KvOperation::Mix => self.get().await,
        }
    }

    fn operations(&self) -> u64 {
        self.operation.depth() as u64
    }
}

impl KvWorker {
    async fn get(&mut self) -> Result<UnexpectedAnswer> {
        let name = self.read_key();
        let value_bytes = self.driver.value_bytes() as u64;
        Ok(expect(200, Some(value_bytes), self.driver.get(&name).await?))
    }

    async fn get_pipelined(&mut self) -> Result<UnexpectedAnswer> {
        let expected = ReplySummary { status: 200, body_bytes: self.driver.value_bytes() as u64 };
        let names = [(); PIPELINE_DEPTH].map(|()| self.read_key());
        let reply = self.driver.get_pipelined(names.into_iter(), expected).await?;
        Ok(expect(expected.status, Some(expected.body_bytes), reply))
    }

    async fn put_existing(&mut self) -> Result<UnexpectedAnswer> {
        let name = self.read_key();
        Ok(expect(204, Some(0), self.driver.put(&name, WriteWait::Disk).await?))
    }

    async fn put_new(&mut self, wait: WriteWait) -> Result<UnexpectedAnswer> {
        let name = key("made", self.new_key);
        self.new_key += self.step;
        Ok(expect(204, Some(0), self.driver.put(&name, wait).await?))
    }

    async fn read_modify_write(&mut self) -> Result<UnexpectedAnswer> {
        let name = self.read_key();
        let value_bytes = self.driver.value_bytes() as u64;
        let unexpected = expect(200, Some(value_bytes), self.driver.get(&name).await?);
        if unexpected.is_some() {
            return Ok(unexpected);
        }
        if !self.driver.has_context() {
            return Ok(Some("status 200 without X-Riak-Vclock".to_owned()));
        }
        Ok(expect(204, Some(0), self.driver.put_with_context(&name, WriteWait::Disk).await?))
    }

    fn read_key(&mut self) -> [u8; KEY_BYTES] {
        let (kind, count) = self.read_keys;
        key(kind, self.driver.random().below(count))
    }
}

/// `None` when the answer is the expected one.
pub(crate) fn expect(status: u16, body_bytes: Option<u64>, reply: ReplySummary) -> UnexpectedAnswer {
    let fits = reply.status == status && body_bytes.is_none_or(|bytes| bytes == reply.body_bytes);
    (!fits).then(|| format!("status {} with {} B", reply.status, reply.body_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_status_or_another_length_is_unexpected() {
        let reply = ReplySummary { status: 200, body_bytes: 5 };
        assert_eq!(expect(200, Some(5), reply), None);
        assert_eq!(expect(200, None, reply), None);
        assert_eq!(expect(204, None, reply).unwrap(), "status 200 with 5 B");
        assert_eq!(expect(200, Some(6), reply).unwrap(), "status 200 with 5 B");
    }

    #[test]
    fn a_window_that_ends_early_is_shorter() {
        let now = Instant::now();
        let window = MeasureWindow::after_warming_up(now, Duration::from_secs(5));
        assert_eq!(window.warm_until, now + Duration::from_secs(1));
        assert!((window.seconds_until(now + Duration::from_secs(3)) - 2.0).abs() < 1e-9);
        assert!((window.seconds_until(now + Duration::from_secs(60)) - 5.0).abs() < 1e-9);
        assert!(window.seconds_until(now) > 0.0);
    }
}
