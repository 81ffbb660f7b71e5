//! One cell of the table: an operation, a number of connections and a value size, run for a while in a closed loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::Reply;
use crate::driver::{Driver, Place, Wait};
use crate::keys::{Values, key};
use crate::limits::{ANSWER_WAIT_MAX, CELL_OPERATIONS_MAX, CELL_WRITTEN_BYTES_MAX};
use crate::procfs::{self, Cpu};

/// Connections that cells are run with.
pub(crate) const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// Value sizes that cells are run with.
pub(crate) const VALUE_BYTES: [usize; 3] = [100, 1_024, 102_400];

/// Longest latency the histogram holds, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;

/// What one connection does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// GET of a key that was loaded.
    Get,
    /// GET of a key that was never written.
    MissingGet,
    /// PUT of a new key, answered from the disk.
    PutDurable,
    /// PUT of a new key with `?dw=0`.
    PutBuffered,
    /// GET, then PUT with its context; the two are one operation.
    ReadModifyWrite,
    /// Four GETs to one durable PUT over the loaded keys.
    Mix,
}

impl Operation {
    /// All of them, in the order of the report.
    pub(crate) const ALL: [Self; 6] =
        [Self::Get, Self::MissingGet, Self::PutDurable, Self::PutBuffered, Self::ReadModifyWrite, Self::Mix];

    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::MissingGet => "missing get",
            Self::PutDurable => "put durable",
            Self::PutBuffered => "put buffered",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Mix => "80/20 mix",
        }
    }

    /// Operations a cell may do before it has written its share of the disk.
    fn bound(self, value_bytes: usize) -> u64 {
        match self {
            Self::Get | Self::MissingGet => CELL_OPERATIONS_MAX,
            _ => CELL_OPERATIONS_MAX.min(CELL_WRITTEN_BYTES_MAX / value_bytes as u64),
        }
    }
}

/// The server under test, and what of it can be seen.
pub(crate) struct Subject {
    /// Where its objects are.
    pub(crate) place: Place,
    /// Bytes for the writes.
    pub(crate) values: Arc<Values>,
    /// Its process, where that is ours to look at.
    pub(crate) pid: Option<u32>,
    /// How many keys of kind `read` the reads choose from.
    pub(crate) read_keys: u64,
    /// The first number that no cell has used for a new key.
    pub(crate) new_keys: AtomicU64,
}

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    /// What each connection does.
    pub(crate) operation: Operation,
    /// Bytes of each value.
    pub(crate) value_bytes: usize,
    /// Connections in a closed loop.
    pub(crate) connections: usize,
}

/// What a cell gave.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// What was run.
    pub(crate) cell: Cell,
    /// Length of the window that was measured, after warming up.
    pub(crate) seconds: f64,
    /// Operations that ended in the window as they should.
    pub(crate) latencies_us: Histogram<u64>,
    /// Answers that were not expected, warming up included, by what they were.
    pub(crate) unexpected: BTreeMap<String, u64>,
    /// The first broken connection.
    pub(crate) broken: Option<String>,
    /// CPU time of the server in the window.
    pub(crate) server_cpu: Option<Cpu>,
    /// CPU time of the generator in the window.
    pub(crate) generator_cpu: Cpu,
    /// Resident memory of the server at the end of the window.
    pub(crate) resident_bytes: Option<u64>,
}

impl Measured {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies_us.len() as f64 / self.seconds
    }

    /// True when every answer was the expected one.
    pub(crate) fn is_sound(&self) -> bool {
        self.unexpected.is_empty() && self.broken.is_none() && !self.latencies_us.is_empty()
    }

    /// Seconds of `cpu` for a thousand operations.
    pub(crate) fn per_thousand(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1_000.0 / self.latencies_us.len().max(1) as f64
    }
}

/// When a cell measures.
#[derive(Clone, Copy)]
struct Window {
    warm_until: Instant,
    stop_at: Instant,
}

/// Runs one cell for `length` after warming up.
///
/// # Errors
///
/// When a connection cannot be made; what breaks later is told in the result.
pub(crate) async fn run(subject: &Subject, operation: Operation, connections: usize, length: Duration) -> Result<Measured> {
    let first_new_key = subject.new_keys.fetch_add(CELL_OPERATIONS_MAX, Ordering::Relaxed);
    let bound = operation.bound(subject.place.value_bytes) / connections as u64;
    let mut workers = Vec::with_capacity(connections);
    for index in 0..connections as u64 {
        let driver = Driver::connect(&subject.place, subject.values.clone(), first_new_key + index).await?;
        let (read_keys, step) = (subject.read_keys, connections as u64);
        workers.push(Worker { driver, operation, read_keys, new_key: first_new_key + index, step, bound });
    }
    let warm_until = Instant::now() + (length / 5).clamp(Duration::from_millis(200), Duration::from_secs(2));
    let window = Window { warm_until, stop_at: warm_until + length };
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(worker.run(window));
    }
    let cell = Cell { operation, value_bytes: subject.place.value_bytes, connections };
    collect(cell, subject.pid, window, tasks).await
}

async fn collect(cell: Cell, pid: Option<u32>, window: Window, mut tasks: JoinSet<Tally>) -> Result<Measured> {
    let mut all = Tally::new(window.warm_until);
    sleep_until(window.warm_until.into()).await;
    let before = Sample::take(pid)?;
    let mut after = None;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(tally) => all.merge(tally?),
                None => break,
            },
            () = sleep_until(window.stop_at.into()), if after.is_none() => after = Some(Sample::take(pid)?),
            () = sleep_until((window.stop_at + ANSWER_WAIT_MAX).into()) => {
                all.broken.get_or_insert(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()));
                break;
            }
        }
    }
    let after = match after {
        Some(sample) => sample,
        None => Sample::take(pid)?,
    };
    let seconds = all.ended.min(window.stop_at).saturating_duration_since(window.warm_until).as_secs_f64();
    Ok(Measured {
        cell,
        seconds: seconds.max(0.001),
        latencies_us: all.latencies_us,
        unexpected: all.unexpected,
        broken: all.broken,
        server_cpu: after.server.zip(before.server).map(|(after, before)| after.since(before)),
        generator_cpu: after.generator.since(before.generator),
        resident_bytes: after.resident_bytes,
    })
}

/// What the kernel says at one moment.
struct Sample {
    server: Option<Cpu>,
    generator: Cpu,
    resident_bytes: Option<u64>,
}

impl Sample {
    fn take(pid: Option<u32>) -> Result<Self> {
        Ok(Self {
            server: pid.map(procfs::cpu).transpose()?,
            generator: procfs::cpu(std::process::id())?,
            resident_bytes: pid.map(procfs::resident_bytes).transpose()?,
        })
    }
}

/// What one connection saw.
struct Tally {
    latencies_us: Histogram<u64>,
    unexpected: BTreeMap<String, u64>,
    broken: Option<String>,
    ended: Instant,
}

impl Tally {
    fn new(ended: Instant) -> Self {
        let mut latencies_us = Histogram::new_with_max(LATENCY_US_MAX, 3).unwrap_or_else(|_| Histogram::from(&EMPTY()));
        latencies_us.auto(true);
        Self { latencies_us, unexpected: BTreeMap::new(), broken: None, ended }
    }
}
