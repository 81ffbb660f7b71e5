//! One connection of a cell: the loop, and the tally that all loops of the cell share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::cells::Operation;
use crate::client::Reply;
use crate::driver::{Driver, Wait};
use crate::keys::key;

/// Longest latency the histogram holds, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;

/// Shortest and longest time of warming up.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// When a cell measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Before this nothing counts.
    pub(crate) warm_until: Instant,
    /// After this nothing counts and nothing starts.
    pub(crate) stop_at: Instant,
}

impl Window {
    /// The window of `length` that follows warming up, which takes a fifth of it.
    pub(crate) fn after_warming_up(now: Instant, length: Duration) -> Self {
        let warm_until = now + (length / 5).clamp(WARM_UP.0, WARM_UP.1);
        Self { warm_until, stop_at: warm_until + length }
    }

    /// The window that begins now: for work that is used up by warming up.
    pub(crate) fn at_once(now: Instant, length: Duration) -> Self {
        Self { warm_until: now, stop_at: now + length }
    }

    /// Its length when the work ended at `ended`.
    pub(crate) fn seconds_until(self, ended: Instant) -> f64 {
        let seconds = ended.min(self.stop_at).saturating_duration_since(self.warm_until).as_secs_f64();
        seconds.max(0.001)
    }

    /// True when `moment` counts.
    pub(crate) fn holds(self, moment: Instant) -> bool {
        (self.warm_until..=self.stop_at).contains(&moment)
    }
}

/// What the connections of a cell saw.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Operations that ended in the window as they should.
    pub(crate) latencies_us: Histogram<u64>,
    /// Answers that were not expected, warming up included, by what they were.
    pub(crate) unexpected: BTreeMap<String, u64>,
    /// The first broken connection.
    pub(crate) broken: Option<String>,
    /// When the last connection ended.
    pub(crate) ended: Instant,
}

impl Tally {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// Never with these bounds; the histogram's constructor says it may.
    pub(crate) fn new(ended: Instant) -> Result<Self> {
        let latencies_us = Histogram::new_with_max(LATENCY_US_MAX, 3)?;
        Ok(Self { latencies_us, unexpected: BTreeMap::new(), broken: None, ended })
    }
}

/// The tally of a cell: one for all connections, so that it stays in the processor's cache.
#[derive(Clone)]
pub(crate) struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    /// An empty one for `window`.
    ///
    /// # Errors
    ///
    /// As [`Tally::new`].
    pub(crate) fn new(window: Window) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Tally::new(window.warm_until)?))))
    }

    /// Notes a connection that broke; the first one is kept.
    pub(crate) fn broke(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
    }

    /// Takes what was seen so far out.
    pub(crate) fn take(&self) -> Tally {
        let mut tally = self.lock();
        Tally {
            latencies_us: tally.latencies_us.clone(),
            unexpected: std::mem::take(&mut tally.unexpected),
            broken: tally.broken.take(),
            ended: tally.ended,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection that repeats one operation.
pub(crate) struct Worker {
    /// Its connection.
    pub(crate) driver: Driver,
    /// What it repeats.
    pub(crate) operation: Operation,
    /// The kind of the keys it reads, and how many there are.
    pub(crate) read_keys: (&'static str, u64),
    /// The number of its next new key.
    pub(crate) new_key: u64,
    /// From one new key to the next: other connections take those between.
    pub(crate) step: u64,
}

/// An answer that was not the expected one, in words.
pub(crate) type Surprise = Option<String>;

/// What one connection of a cell does again and again.
pub(crate) trait Repeat: Send {
    /// Does it once.
    ///
    /// # Errors
    ///
    /// Whatever makes the connection useless.
    fn once(&mut self) -> impl Future<Output = Result<Surprise>> + Send;
}

/// Repeats it until the window ends, the bound is reached or the connection breaks.
pub(crate) async fn repeat(mut worker: impl Repeat, bound: u64, window: Window, tally: SharedTally) {
    let mut started = Instant::now();
    for _ in 0..bound {
        if started >= window.stop_at {
            break;
        }
        let outcome = worker.once().await;
        let ended = Instant::now();
        match outcome {
            Ok(None) if window.holds(ended) => {
                let micros = (ended - started).as_micros() as u64;
                tally.lock().latencies_us.saturating_record(micros.max(1));
            }
            Ok(None) => {}
            Ok(Some(surprise)) => *tally.lock().unexpected.entry(surprise).or_default() += 1,
            Err(error) => {
                tally.broke(&format!("{error:#}"));
                break;
            }
        }
        started = ended;
    }
    let mut tally = tally.lock();
    tally.ended = tally.ended.max(started);
}

impl Repeat for Worker {
    async fn once(&mut self) -> Result<Surprise> {
        match self.operation {
            Operation::Get => self.get().await,
            Operation::MissingGet => {
                let missing = self.driver.random.next();
                Ok(expect(404, None, self.driver.get(&key("miss", missing)).await?))
            }
            Operation::PutDurable => self.put_new(Wait::Disk).await,
            Operation::PutBuffered => self.put_new(Wait::Memory).await,
            Operation::ReadModifyWrite => self.read_modify_write().await,
            Operation::Mix if self.driver.random.below(5) == 0 => {
                let name = self.read_key();
                Ok(expect(204, Some(0), self.driver.put(&name, Wait::Disk).await?))
            }
            Operation::Mix => self.get().await,
        }
    }
}

impl Worker {
    async fn get(&mut self) -> Result<Surprise> {
        let name = self.read_key();
        let value_bytes = self.driver.value_bytes() as u64;
        Ok(expect(200, Some(value_bytes), self.driver.get(&name).await?))
    }

    async fn put_new(&mut self, wait: Wait) -> Result<Surprise> {
        let name = key("made", self.new_key);
        self.new_key += self.step;
        Ok(expect(204, Some(0), self.driver.put(&name, wait).await?))
    }

    async fn read_modify_write(&mut self) -> Result<Surprise> {
        let name = self.read_key();
        let value_bytes = self.driver.value_bytes() as u64;
        let surprise = expect(200, Some(value_bytes), self.driver.get(&name).await?);
        if surprise.is_some() {
            return Ok(surprise);
        }
        if !self.driver.has_context() {
            return Ok(Some("status 200 without X-Riak-Vclock".to_owned()));
        }
        Ok(expect(204, Some(0), self.driver.put_with_context(&name, Wait::Disk).await?))
    }

    fn read_key(&mut self) -> [u8; crate::keys::KEY_BYTES] {
        let (kind, count) = self.read_keys;
        key(kind, self.driver.random.below(count))
    }
}

/// `None` when the answer is the expected one.
pub(crate) fn expect(status: u16, body_bytes: Option<u64>, reply: Reply) -> Surprise {
    let fits = reply.status == status && body_bytes.is_none_or(|bytes| bytes == reply.body_bytes);
    (!fits).then(|| format!("status {} with {} B", reply.status, reply.body_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_status_or_another_length_is_a_surprise() {
        let reply = Reply { status: 200, body_bytes: 5 };
        assert_eq!(expect(200, Some(5), reply), None);
        assert_eq!(expect(200, None, reply), None);
        assert_eq!(expect(204, None, reply).unwrap(), "status 200 with 5 B");
        assert_eq!(expect(200, Some(6), reply).unwrap(), "status 200 with 5 B");
    }

    #[test]
    fn a_window_that_ends_early_is_shorter() {
        let now = Instant::now();
        let window = Window::after_warming_up(now, Duration::from_secs(5));
        assert_eq!(window.warm_until, now + Duration::from_secs(1));
        assert!((window.seconds_until(now + Duration::from_secs(3)) - 2.0).abs() < 1e-9);
        assert!((window.seconds_until(now + Duration::from_secs(60)) - 5.0).abs() < 1e-9);
        assert!(window.seconds_until(now) > 0.0);
    }
}
