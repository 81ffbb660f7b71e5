//! One cell of the table: an operation, a number of connections and a value size, run for a while in a closed loop.
//!
//! [`measure`] knows nothing of the protocol; the operations here are those of `kv`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::driver::{Driver, Place};
use crate::keys::Values;
use crate::limits::{ANSWER_WAIT_MAX, CELL_OPERATIONS_MAX, CELL_WRITTEN_BYTES_MAX};
use crate::procfs::{self, Cpu};
use crate::worker::{Repeat, SharedTally, Tally, Window, Worker, repeat};

/// Connections that cells are run with.
pub(crate) const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// Value sizes that cells are run with.
pub(crate) const VALUE_BYTES: [usize; 3] = [100, 1_024, 102_400];

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

    /// What its cells are called.
    pub(crate) fn label(self) -> Label {
        Label { rank: self as u8, name: self.name(), has_size: self != Self::MissingGet }
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
    /// The kind of the keys that reads choose from, and how many there are.
    pub(crate) read_keys: (&'static str, u64),
    /// The first number that no cell has used for a new key.
    pub(crate) new_keys: AtomicU64,
}

/// What is done in a cell, as the report shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    /// Its place among the others.
    pub(crate) rank: u8,
    /// Its name.
    pub(crate) name: &'static str,
    /// False for what has nothing to do with a value.
    pub(crate) has_size: bool,
}

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    /// What each connection does.
    pub(crate) operation: Label,
    /// Bytes of each value.
    pub(crate) value_bytes: usize,
    /// Connections in a closed loop.
    pub(crate) connections: usize,
    /// Bytes of bodies that one operation moves.
    pub(crate) moved_bytes: usize,
}

/// What a cell gave.
#[derive(Debug)]
pub(crate) struct Measured {
    /// What was run.
    pub(crate) cell: Cell,
    /// Length of the window that was measured, after warming up.
    pub(crate) seconds: f64,
    /// What the connections saw.
    pub(crate) tally: Tally,
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
        self.tally.latencies_us.len() as f64 / self.seconds
    }

    /// True when every answer was the expected one.
    pub(crate) fn is_sound(&self) -> bool {
        self.tally.unexpected.is_empty() && self.tally.broken.is_none() && !self.tally.latencies_us.is_empty()
    }

    /// What was wrong, in one line.
    pub(crate) fn faults(&self) -> String {
        let mut faults: Vec<String> = self.tally.broken.iter().cloned().collect();
        faults.extend(self.tally.unexpected.iter().map(|(what, times)| format!("{what} ({times} times)")));
        if faults.is_empty() && self.tally.latencies_us.is_empty() {
            faults.push("no operation ended in the window".to_owned());
        }
        faults.join(", ")
    }

    /// `cpu_seconds` for a thousand operations.
    pub(crate) fn per_thousand(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1_000.0 / self.tally.latencies_us.len().max(1) as f64
    }
}

/// Runs one cell for `length` after warming up.
///
/// # Errors
///
/// When a connection cannot be made; what breaks later is told in the result.
pub(crate) async fn run(
    subject: &Subject,
    operation: Operation,
    connections: usize,
    length: Duration,
) -> Result<Measured> {
    let first_new_key = subject.new_keys.fetch_add(CELL_OPERATIONS_MAX, Ordering::Relaxed);
    let step = connections as u64;
    let bound = operation.bound(subject.place.value_bytes) / step;
    let mut workers = Vec::with_capacity(connections);
    for index in 0..step {
        let new_key = first_new_key + index;
        let driver = Driver::connect(&subject.place, subject.values.clone(), new_key).await?;
        workers.push(Worker { driver, operation, read_keys: subject.read_keys, new_key, step });
    }
    let window = Window::after_warming_up(Instant::now(), length);
    let value_bytes = subject.place.value_bytes;
    let cell = Cell { operation: operation.label(), value_bytes, connections, moved_bytes: value_bytes };
    measure(subject.pid, cell, workers, bound, window).await
}

/// Lets each worker repeat what it does, at most `bound` times, and measures that.
///
/// # Errors
///
/// When the kernel does not tell what a process used; what a connection meets is told in the result.
pub(crate) async fn measure<R: Repeat + 'static>(
    pid: Option<u32>,
    cell: Cell,
    workers: Vec<R>,
    bound: u64,
    window: Window,
) -> Result<Measured> {
    let tally = SharedTally::new(window)?;
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(repeat(worker, bound, window, tally.clone()));
    }
    let (before, after) = watch(pid, window, &tally, tasks).await?;
    let tally = tally.take();
    Ok(Measured {
        cell,
        seconds: window.seconds_until(tally.ended),
        tally,
        server_cpu: after.server.zip(before.server).map(|(after, before)| after.since(before)),
        generator_cpu: after.generator.since(before.generator),
        resident_bytes: after.resident_bytes,
    })
}

/// Waits for the workers and samples both ends of the window.
async fn watch(
    pid: Option<u32>,
    window: Window,
    tally: &SharedTally,
    mut tasks: JoinSet<()>,
) -> Result<(Sample, Sample)> {
    sleep_until(window.warm_until.into()).await;
    let before = Sample::take(pid)?;
    let mut after = None;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended?,
                None => break,
            },
            () = sleep_until(window.stop_at.into()), if after.is_none() => {
                after = Some(Sample::take(pid)?);
            }
            () = sleep_until((window.stop_at + ANSWER_WAIT_MAX).into()) => {
                tally.broke(&format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()));
                break;
            }
        }
    }
    let after = after.map_or_else(|| Sample::take(pid), Ok)?;
    Ok((before, after))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare_http;
    use crate::endpoint::Endpoint;

    fn subject(endpoint: Endpoint, value_bytes: usize) -> Subject {
        Subject {
            place: Place { endpoint, value_bytes },
            values: Arc::new(Values::new(102_400)),
            pid: Some(std::process::id()),
            read_keys: (crate::load::READ, 100),
            new_keys: AtomicU64::new(0),
        }
    }

    #[tokio::test]
    async fn every_operation_runs() {
        let endpoint = bare_http::on_loopback().await.unwrap();
        let subject = subject(endpoint, 102_400);
        for operation in Operation::ALL {
            let measured = run(&subject, operation, 4, Duration::from_millis(100)).await.unwrap();
            assert!(measured.is_sound(), "{operation:?}: {}", measured.faults());
            assert!(measured.rate() > 0.0);
        }
    }

    #[tokio::test]
    async fn a_wrong_answer_fails_the_cell() {
        let endpoint = bare_http::on_loopback().await.unwrap();
        let mut subject = subject(endpoint, 100);
        subject.read_keys = ("miss", 100);
        let measured = run(&subject, Operation::Get, 2, Duration::from_millis(50)).await.unwrap();
        assert!(!measured.is_sound());
        assert!(measured.faults().starts_with("status 404 with 10 B ("), "{}", measured.faults());
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_fails_the_cell() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::at(listener.local_addr().unwrap());
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let subject = subject(endpoint, 100);
        let measured = run(&subject, Operation::Get, 2, Duration::from_millis(50)).await.unwrap();
        assert!(!measured.is_sound());
        assert!(measured.tally.broken.is_some());
    }
}
