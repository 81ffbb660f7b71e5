//! Numbered requests: loads of a bounded number of them, and cells that are measured in turns.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::cells::{self, Cell, CellResult, OperationLabel};
use crate::endpoint::Endpoint;
use crate::limits::{CELL_OPERATIONS_MAX, LOAD_WAIT_MAX};
use crate::procfs::Cpu;
use crate::report::{BenchReport, thousands};
use crate::turns::{ComparisonSide, Rounds, TurnRunner, in_turns};
use crate::value_requests::{ValueDriver, ValueRequest};
use crate::worker::{MeasureWindow, RepeatedOperation, UnexpectedAnswer, expect};

/// Connections of a cell, unless it says otherwise.
pub(crate) const CONNECTIONS: usize = 16;

/// Connections that load a server.
const LOAD_CONNECTIONS: u64 = 8;

/// The longest turn of a bounded number of requests.
const BOUNDED_TURN_MAX: Duration = Duration::from_secs(120);

/// Builds the request with a number.
pub(crate) type RequestBuilder = Arc<dyn Fn(u64, &mut ValueRequest) + Send + Sync>;

/// A server under test.
#[derive(Debug, Clone)]
pub(crate) struct ValueServer {
    /// Its address.
    pub(crate) endpoint: Endpoint,
    /// The id of its process.
    pub(crate) pid: u32,
}

/// The label of an operation, and its expected answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedOperation {
    /// The label of its cells.
    pub(crate) label: OperationLabel,
    /// The status of its expected answer.
    pub(crate) status: u16,
    /// Whether the report shows the bytes of its answers.
    pub(crate) moves_body: bool,
}

/// The expected body of an answer.
#[derive(Debug, Clone)]
pub(crate) enum ExpectedBody {
    /// Any body.
    Any,
    /// A body of this length.
    Length(u64),
    /// This body.
    Exactly(Arc<Vec<u8>>),
}

/// The requests of a cell, each with its own number.
#[derive(Clone)]
pub(crate) struct NumberedWork {
    /// The operation.
    pub(crate) operation: NumberedOperation,
    /// Elements or fields of each value, or another size.
    pub(crate) size: usize,
    /// Connections in a closed loop.
    pub(crate) connections: usize,
    /// Requests of a turn, when they use up something; otherwise a turn lasts as long as its round says.
    pub(crate) bound: Option<u64>,
    /// The body of the expected answer.
    pub(crate) body: ExpectedBody,
    /// Builds the requests.
    pub(crate) build: RequestBuilder,
    /// The first number that no turn has used.
    pub(crate) next: Arc<AtomicU64>,
}

impl NumberedWork {
    /// Work of [`CONNECTIONS`] connections without a bound.
    pub(crate) fn new(
        operation: impl Into<NumberedOperation>,
        size: usize,
        build: impl Fn(u64, &mut ValueRequest) + Send + Sync + 'static,
    ) -> Self {
        Self {
            operation: operation.into(),
            size,
            connections: CONNECTIONS,
            bound: None,
            body: ExpectedBody::Any,
            build: Arc::new(build),
            next: Arc::default(),
        }
    }

    /// Runs one turn.
    async fn turn(&self, server: &ValueServer, length: Duration) -> Result<CellResult> {
        let step = self.connections as u64;
        let first = self.next.fetch_add(self.bound.unwrap_or(CELL_OPERATIONS_MAX), Ordering::Relaxed);
        let mut workers = Vec::with_capacity(self.connections);
        for index in 0..step {
            let driver = ValueDriver::connect(&server.endpoint).await?;
            workers.push(NumberedWorker { driver, work: self.clone(), number: first + index, step });
        }
        let now = Instant::now();
        // A warm-up would use up what the requests need.
        let window = match self.bound {
            Some(_) => MeasureWindow::at_once(now, BOUNDED_TURN_MAX),
            None => MeasureWindow::after_warming_up(now, length),
        };
        let moved_bytes = match self.body.length() {
            Some(bytes) if self.operation.moves_body => usize::try_from(bytes)?,
            _ => 0,
        };
        let cell = Cell {
            operation: self.operation.label,
            value_bytes: self.size,
            connections: self.connections,
            moved_bytes,
        };
        let bound = self.bound.unwrap_or(CELL_OPERATIONS_MAX) / step;
        cells::measure(Some(server.pid), cell, workers, bound, window).await
    }
}

impl ExpectedBody {
    fn length(&self) -> Option<u64> {
        match self {
            Self::Any => None,
            Self::Length(bytes) => Some(*bytes),
            Self::Exactly(body) => Some(body.len() as u64),
        }
    }
}

/// A connection of a cell.
struct NumberedWorker {
    driver: ValueDriver,
    work: NumberedWork,
    number: u64,
    step: u64,
}

impl RepeatedOperation for NumberedWorker {
    async fn once(&mut self) -> Result<UnexpectedAnswer> {
        (self.work.build)(self.number, &mut self.driver.request);
        self.number += self.step;
        let (status, body) = (self.work.operation.status, &self.work.body);
        let ExpectedBody::Exactly(exactly) = body else {
            return Ok(expect(status, body.length(), self.driver.send().await?));
        };
        let unexpected = expect(status, body.length(), self.driver.send_keeping().await?);
        let differs = unexpected.is_none() && self.driver.body() != exactly.as_slice();
        Ok(if differs { Some(format!("status {status} with another body")) } else { unexpected })
    }
}

/// Measures works in turns and adds a cell for each to the report: that of all its turns.
///
/// # Errors
///
/// When a connection cannot be made. Wrong answers are part of the result.
pub(crate) async fn measure<const N: usize>(
    report: &mut BenchReport,
    server: &ValueServer,
    works: &[NumberedWork; N],
    rounds: Rounds,
) -> Result<[ComparisonSide; N]> {
    let kept: [RefCell<Option<CellResult>>; N] = std::array::from_fn(|_| RefCell::default());
    let runners = std::array::from_fn(|at| -> TurnRunner<'_> {
        let (work, kept) = (&works[at], &kept[at]);
        Box::new(move |_, length| {
            Box::pin(async move {
                let measured = work.turn(server, length).await?;
                let turn = (&measured).into();
                add_turn(&mut kept.borrow_mut(), measured)?;
                Ok(turn)
            })
        })
    });
    let sides = in_turns(runners, rounds).await?;
    for measured in kept.into_iter().filter_map(RefCell::into_inner) {
        let (cell, rate) = (measured.cell, thousands(measured.rate()));
        eprintln!("{}, {}: {rate}/s {}", cell.operation.name, thousands(cell.value_bytes as f64), measured.faults());
        report.cells.push(measured);
    }
    Ok(sides)
}

/// Adds a turn to the turns before it.
fn add_turn(all: &mut Option<CellResult>, turn: CellResult) -> Result<()> {
    let Some(all) = all else {
        *all = Some(turn);
        return Ok(());
    };
    let sum = |left: Cpu, right: Cpu| Cpu { user: left.user + right.user, system: left.system + right.system };
    all.seconds += turn.seconds;
    all.server_cpu = all.server_cpu.zip(turn.server_cpu).map(|(left, right)| sum(left, right));
    all.generator_cpu = sum(all.generator_cpu, turn.generator_cpu);
    all.resident_bytes = all.resident_bytes.max(turn.resident_bytes);
    all.tally.latencies_us.add(&turn.tally.latencies_us)?;
    for (text, times) in turn.tally.unexpected {
        *all.tally.unexpected.entry(text).or_default() += times;
    }
    all.tally.broken = all.tally.broken.take().or(turn.tally.broken);
    Ok(())
}

/// Sends the requests with the numbers below `count` on some connections; returns the time.
///
/// # Errors
///
/// Any answer but 204, a broken connection, or a timeout.
pub(crate) async fn load(endpoint: &Endpoint, count: u64, build: RequestBuilder) -> Result<Duration> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for first in 0..LOAD_CONNECTIONS.min(count) {
        let mut driver = ValueDriver::connect(endpoint).await?;
        let build = build.clone();
        tasks.spawn(async move {
            let mut number = first;
            while number < count {
                build(number, &mut driver.request);
                driver.send_checked(204).await?;
                number += LOAD_CONNECTIONS;
            }
            anyhow::Ok(())
        });
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LOAD_WAIT_MAX, all).await.context("the load took too long")??;
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare_http;

    const READ: NumberedOperation = NumberedOperation {
        label: OperationLabel { rank: 0, name: "read", has_size: true },
        status: 200,
        moves_body: false,
    };

    fn work(kind: &'static str) -> NumberedWork {
        NumberedWork::new(READ, 10, move |number, request| {
            request.get(format_args!("/buckets/larder-bench-100/keys/{kind}{number}"));
        })
    }

    #[tokio::test]
    async fn turns_add_up_to_one_cell() {
        let server = ValueServer { endpoint: bare_http::on_loopback().await.unwrap(), pid: std::process::id() };
        let bounded = NumberedWork { bound: Some(32), ..work("read") };
        let mut report = BenchReport::default();
        let rounds = Rounds { count: 3, length: Duration::from_millis(50) };
        let [side] = measure(&mut report, &server, std::array::from_ref(&bounded), rounds).await.unwrap();
        assert_eq!((side.rates.len(), report.cells.len()), (3, 1));
        assert_eq!(report.cells[0].tally.latencies_us.len(), 96, "{}", report.cells[0].faults());
        assert_eq!(bounded.next.load(Ordering::Relaxed), 96, "no number twice");
    }

    #[tokio::test]
    async fn a_wrong_answer_in_any_turn_fails_the_cell_and_the_load() {
        let endpoint = bare_http::on_loopback().await.unwrap();
        let server = ValueServer { endpoint, pid: std::process::id() };
        let missing = NumberedWork { bound: Some(16), ..work("miss") };
        let mut report = BenchReport::default();
        let rounds = Rounds { count: 2, length: Duration::from_millis(50) };
        let [side] = measure(&mut report, &server, std::array::from_ref(&missing), rounds).await.unwrap();
        assert_eq!(side.faults.len(), 2);
        assert!(!report.is_sound() && report.cells[0].faults().contains("status 404"), "{}", report.cells[0].faults());
        let another = ExpectedBody::Exactly(Arc::new(vec![0; 100]));
        let another = NumberedWork { bound: Some(16), body: another, ..work("read") };
        let [side] = measure(&mut report, &server, std::array::from_ref(&another), rounds).await.unwrap();
        assert!(side.faults[0].contains("with another body"), "{:?}", side.faults);
        let error = load(&server.endpoint, 1, missing.build).await.unwrap_err().to_string();
        assert!(error.contains("was answered by status 404"), "{error}");
    }
}
