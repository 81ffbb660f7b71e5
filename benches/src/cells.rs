//! A cell of the table: an operation, a number of connections and a value size, measured in a closed loop.
//!
//! [`measure`] does not depend on the protocol; the operations here are those of `kv`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::driver::KvDriver;
use crate::endpoint::Endpoint;
use crate::keys::ValuePool;
use crate::kv_location::{KvLocation, KvProtocol};
use crate::limits::{ANSWER_WAIT_MAX, CELL_OPERATIONS_MAX, CELL_WRITTEN_BYTES_MAX};
use crate::procfs::{self, Cpu};
use crate::worker::{CellTally, KvWorker, MeasureWindow, RepeatedOperation, SharedCellTally, repeat};

/// The numbers of connections of the cells.
pub(crate) const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// The value sizes of the cells.
pub(crate) const VALUE_BYTES: [usize; 3] = [100, 1_024, 102_400];

/// The requests that a pipelined operation sends together.
pub(crate) const PIPELINE_DEPTH: usize = 16;

/// The operation that a connection repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KvOperation {
    /// GET of a key that was loaded.
    Get,
    /// [`PIPELINE_DEPTH`] such GETs, sent together.
    PipelinedGet,
    /// GET of a key that was never written.
    MissingGet,
    /// PUT of a new key, answered after a sync.
    PutDurable,
    /// PUT of a key that exists, without a context, answered after a sync.
    PutExisting,
    /// PUT of a new key with `dw=0`.
    PutBuffered,
    /// GET, then PUT with its context, counted as one operation.
    ReadModifyWrite,
    /// Four GETs to one durable PUT over the loaded keys.
    Mix,
}

impl KvOperation {
    /// The operations over HTTP, in the order of the report.
    pub(crate) const HTTP: [Self; 7] = [
        Self::Get,
        Self::MissingGet,
        Self::PutDurable,
        Self::PutExisting,
        Self::PutBuffered,
        Self::ReadModifyWrite,
        Self::Mix,
    ];

    /// The operations over protocol buffers, in the order of the report.
    pub(crate) const PB: [Self; 8] = [
        Self::Get,
        Self::PipelinedGet,
        Self::MissingGet,
        Self::PutDurable,
        Self::PutExisting,
        Self::PutBuffered,
        Self::ReadModifyWrite,
        Self::Mix,
    ];

    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::PipelinedGet => "get, pipelined ×16",
            Self::MissingGet => "missing get",
            Self::PutDurable => "put durable",
            Self::PutExisting => "put durable, existing key",
            Self::PutBuffered => "put buffered",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Mix => "80/20 mix",
        }
    }

    /// The label of its cells.
    pub(crate) fn label(self) -> OperationLabel {
        OperationLabel { rank: self as u8, name: self.name(), has_size: self != Self::MissingGet }
    }

    /// The requests that it sends together.
    pub(crate) fn depth(self) -> usize {
        if self == Self::PipelinedGet { PIPELINE_DEPTH } else { 1 }
    }

    /// The most operations of a cell, so that its writes fit on the disk.
    fn bound(self, value_bytes: usize) -> u64 {
        match self {
            Self::Get | Self::PipelinedGet | Self::MissingGet => CELL_OPERATIONS_MAX,
            _ => CELL_OPERATIONS_MAX.min(CELL_WRITTEN_BYTES_MAX / value_bytes as u64),
        }
    }
}

/// The server under test: its location, its keys, its process.
#[derive(Debug, Clone)]
pub(crate) struct KvSubject {
    /// The server and the bucket of its objects.
    pub(crate) place: KvLocation,
    /// The bytes of the writes.
    pub(crate) values: Arc<ValuePool>,
    /// The id of its process, when this program has started it.
    pub(crate) pid: Option<u32>,
    /// The kind and the number of the keys that reads choose from.
    pub(crate) read_keys: (&'static str, u64),
    /// The first number of new keys that no cell has used.
    pub(crate) new_keys: Arc<AtomicU64>,
}

impl KvSubject {
    /// The same keys at another address: of the same server over another protocol, or of another server.
    pub(crate) fn at(&self, endpoint: &Endpoint, protocol: KvProtocol, pid: Option<u32>) -> Self {
        let place = KvLocation { endpoint: endpoint.clone(), protocol, value_bytes: self.place.value_bytes };
        Self { place, pid, ..self.clone() }
    }
}

/// The operation of a cell, as the report shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationLabel {
    /// Its rank in the report.
    pub(crate) rank: u8,
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether the operation depends on the value size.
    pub(crate) has_size: bool,
}

/// A cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    /// The operation of each connection.
    pub(crate) operation: OperationLabel,
    /// The size of each value.
    pub(crate) value_bytes: usize,
    /// Connections in a closed loop.
    pub(crate) connections: usize,
    /// The bytes of bodies that one operation moves.
    pub(crate) moved_bytes: usize,
}

/// The result of a cell.
#[derive(Debug)]
pub(crate) struct CellResult {
    /// The cell.
    pub(crate) cell: Cell,
    /// The length of the measured window, after the warm-up.
    pub(crate) seconds: f64,
    /// The latencies and the failures of the connections.
    pub(crate) tally: CellTally,
    /// The CPU time of the server in the window.
    pub(crate) server_cpu: Option<Cpu>,
    /// The CPU time of the generator in the window.
    pub(crate) generator_cpu: Cpu,
    /// The resident memory of the server at the end of the window.
    pub(crate) resident_bytes: Option<u64>,
}

impl CellResult {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.tally.latencies_us.len() as f64 / self.seconds
    }

    /// Whether every answer was the expected one.
    pub(crate) fn is_sound(&self) -> bool {
        self.tally.unexpected.is_empty() && self.tally.broken.is_none() && !self.tally.latencies_us.is_empty()
    }

    /// The failures, in one line.
    pub(crate) fn faults(&self) -> String {
        let mut faults: Vec<String> = self.tally.broken.iter().cloned().collect();
        faults.extend(self.tally.unexpected.iter().map(|(what, times)| format!("{what} ({times} times)")));
        if faults.is_empty() && self.tally.latencies_us.is_empty() {
            faults.push("no operation ended in the window".to_owned());
        }
        faults.join(", ")
    }

    /// `cpu_seconds` per thousand operations.
    pub(crate) fn per_thousand(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1_000.0 / self.tally.latencies_us.len().max(1) as f64
    }
}

/// Runs one cell for `length` after the warm-up.
///
/// # Errors
///
/// When a connection cannot be made. Later failures are part of the result.
pub(crate) async fn run(
    subject: &KvSubject,
    operation: KvOperation,
    connections: usize,
    length: Duration,
) -> Result<CellResult> {
    let first_new_key = subject.new_keys.fetch_add(CELL_OPERATIONS_MAX, Ordering::Relaxed);
    let step = connections as u64;
    let bound = operation.bound(subject.place.value_bytes) / step;
    let mut workers = Vec::with_capacity(connections);
    for index in 0..step {
        let new_key = first_new_key + index;
        let driver = KvDriver::connect(&subject.place, subject.values.clone(), new_key).await?;
        workers.push(KvWorker { driver, operation, read_keys: subject.read_keys, new_key, step });
    }
    let window = MeasureWindow::after_warming_up(Instant::now(), length);
    let value_bytes = subject.place.value_bytes;
    let cell = Cell { operation: operation.label(), value_bytes, connections, moved_bytes: value_bytes };
    measure(subject.pid, cell, workers, bound, window).await
}

/// Runs all workers, each at most `bound` times, and measures them.
///
/// # Errors
///
/// When the kernel does not report the usage of a process. Failures of a connection are part of the result.
pub(crate) async fn measure<R: RepeatedOperation + 'static>(
    pid: Option<u32>,
    cell: Cell,
    workers: Vec<R>,
    bound: u64,
    window: MeasureWindow,
) -> Result<CellResult> {
    let tally = SharedCellTally::new(window)?;
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(repeat(worker, bound, window, tally.clone()));
    }
    let (before, after) = watch(pid, window, &tally, tasks).await?;
    let tally = tally.take();
    Ok(CellResult {
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
    window: MeasureWindow,
    tally: &SharedCellTally,
    mut tasks: JoinSet<()>,
) -> Result<(ProcessSample, ProcessSample)> {
    sleep_until(window.warm_until.into()).await;
    let before = ProcessSample::take(pid)?;
    let mut after = None;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended?,
                None => break,
            },
            () = sleep_until(window.stop_at.into()), if after.is_none() => {
                after = Some(ProcessSample::take(pid)?);
            }
            () = sleep_until((window.stop_at + ANSWER_WAIT_MAX).into()) => {
                tally.record_broken(&format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()));
                break;
            }
        }
    }
    let after = after.map_or_else(|| ProcessSample::take(pid), Ok)?;
    Ok((before, after))
}

/// The usage of server and generator at one time.
struct ProcessSample {
    server: Option<Cpu>,
    generator: Cpu,
    resident_bytes: Option<u64>,
}

impl ProcessSample {
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

    fn subject(endpoint: Endpoint, value_bytes: usize) -> KvSubject {
        KvSubject {
            place: KvLocation { endpoint, protocol: KvProtocol::Http, value_bytes },
            values: Arc::new(ValuePool::new(102_400)),
            pid: Some(std::process::id()),
            read_keys: (crate::load::READ, 100),
            new_keys: Arc::default(),
        }
    }

    #[tokio::test]
    async fn every_operation_runs() {
        let endpoint = bare_http::on_loopback().await.unwrap();
        let subject = subject(endpoint, 102_400);
        for operation in KvOperation::HTTP {
            let measured = run(&subject, operation, 4, Duration::from_millis(100)).await.unwrap();
            assert!(measured.is_sound(), "{operation:?}: {}", measured.faults());
            assert!(measured.rate() > 0.0);
        }
    }

    #[tokio::test]
    async fn every_operation_over_frames_runs() {
        let endpoint = crate::bare_pb::on_loopback(102_400).await.unwrap();
        let subject = subject(endpoint.clone(), 102_400).at(&endpoint, KvProtocol::PB, None);
        // The bare server knows no missing keys.
        for operation in KvOperation::PB.into_iter().filter(|operation| *operation != KvOperation::MissingGet) {
            let measured = run(&subject, operation, 4, Duration::from_millis(100)).await.unwrap();
            assert!(measured.is_sound(), "{operation:?}: {}", measured.faults());
            assert!(measured.tally.latencies_us.len() >= operation.depth() as u64);
        }
        let wrong = KvSubject { place: KvLocation { value_bytes: 100, ..subject.place.clone() }, ..subject };
        let measured = run(&wrong, KvOperation::PipelinedGet, 2, Duration::from_millis(50)).await.unwrap();
        assert!(measured.faults().starts_with("status 200 with 102400 B ("), "{}", measured.faults());
    }

    #[tokio::test]
    async fn a_wrong_answer_fails_the_cell() {
        let endpoint = bare_http::on_loopback().await.unwrap();
        let mut subject = subject(endpoint, 100);
        subject.read_keys = ("miss", 100);
        let measured = run(&subject, KvOperation::Get, 2, Duration::from_millis(50)).await.unwrap();
        assert!(!measured.is_sound());
        assert!(measured.faults().starts_with("status 404 with 10 B ("), "{}", measured.faults());
    }

    #[tokio::test]
    async fn a_server_that_closes_connections_fails_the_cell() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::at(listener.local_addr().unwrap());
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let subject = subject(endpoint, 100);
        let measured = run(&subject, KvOperation::Get, 2, Duration::from_millis(50)).await.unwrap();
        assert!(!measured.is_sound());
        assert!(measured.tally.broken.is_some());
    }
}
