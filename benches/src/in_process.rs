//! Durable puts without a socket: 64 tasks and a bare group commit, or as many and Larder's gateway, in this process.
//!
//! Each measurement is a process of its own, so that its CPU time is its own, on data that earlier ones left.

mod embedded_gateway;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::child::ChildProcess;
use crate::commit_queue::{BareCommitQueue, stored_value};
use crate::keys::{BenchRandom, KEY_BYTES, ValuePool, key};
use crate::limits::{ANSWER_WAIT_MAX, CELL_OPERATIONS_MAX};
use crate::procfs::{self, Cpu};
use crate::turns::TurnResult;
use crate::worker::MeasureWindow;
use embedded_gateway::EmbeddedGateway;

/// The keys that are written before the window of a run that writes existing keys.
const EXISTING_KEYS: u64 = 10_000;

/// The code that stores a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InProcessSide {
    /// A bare group commit.
    Bare,
    /// Larder's gateway over its embedded engine.
    Gateway,
}

/// The arguments of `in-process`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InProcessArgs {
    /// The code that stores a put.
    #[arg(long, value_enum)]
    pub(crate) side: InProcessSide,
    /// The folder of the data, which is made when missing.
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// The length of the measured window, in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// The number of tasks, each waiting for its own put.
    #[arg(long, default_value_t = 64)]
    pub(crate) writers: usize,
    /// Bytes of each value.
    #[arg(long, default_value_t = 1_024)]
    pub(crate) value_bytes: usize,
    /// The number of this run on the data: each run has its own new keys.
    #[arg(long, default_value_t = 0)]
    pub(crate) round: u64,
    /// Write keys that exist instead of new ones.
    #[arg(long)]
    pub(crate) existing: bool,
}

/// Runs this binary as [`serve`] does and reads its output.
///
/// # Errors
///
/// When it fails, or prints another line.
pub(crate) fn run(options: &InProcessArgs) -> Result<TurnResult> {
    let mut command = Command::new(std::env::current_exe()?);
    let side = if options.side == InProcessSide::Bare { "bare" } else { "gateway" };
    command.args(["in-process", "--side", side]).arg("--data").arg(&options.data);
    command.arg("--seconds").arg(options.seconds.to_string());
    command.arg("--writers").arg(options.writers.to_string());
    command.arg("--value-bytes").arg(options.value_bytes.to_string());
    command.arg("--round").arg(options.round.to_string());
    if options.existing {
        command.arg("--existing");
    }
    let mut child = ChildProcess::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let status = child.wait(Duration::from_secs_f64(options.seconds * 2.0) + ANSWER_WAIT_MAX)?;
    if !status.success() {
        bail!("the process of the puts ended with {status}");
    }
    let mut text = String::new();
    child.process().stdout.take().context("no pipe")?.read_to_string(&mut text)?;
    parse(&text).with_context(|| format!("the process of the puts printed {text:?}"))
}

/// Stores until the window ends, and prints one line for [`run`].
///
/// # Errors
///
/// When the data cannot be opened, or a put fails.
pub(crate) fn serve(options: &InProcessArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (count, cpu) = match options.side {
        InProcessSide::Bare => {
            let (queue, thread) = BareCommitQueue::start(&options.data)?;
            let measured = runtime.block_on(measure(options, InProcessTarget::Bare(queue)))?;
            thread.join()?;
            measured
        }
        InProcessSide::Gateway => runtime.block_on(async {
            let gateway = EmbeddedGateway::open(&options.data).await?;
            let measured = measure(options, InProcessTarget::Gateway(gateway.clone())).await?;
            gateway.close().await?;
            anyhow::Ok(measured)
        })?,
    };
    println!("{} {} {} {}", count, options.seconds, cpu.user, cpu.system);
    Ok(())
}

/// An opened side.
#[derive(Clone)]
enum InProcessTarget {
    Bare(BareCommitQueue),
    Gateway(EmbeddedGateway),
}

impl InProcessTarget {
    async fn put(&self, name: [u8; KEY_BYTES], value: &[u8]) -> Result<()> {
        match self {
            Self::Bare(queue) => queue.put(name.to_vec(), stored_value(value)).await,
            Self::Gateway(gateway) => gateway.put(&name, value).await,
        }
    }
}

/// Runs the writers; returns the number of puts that ended in the window, and the CPU time of the window.
async fn measure(options: &InProcessArgs, target: InProcessTarget) -> Result<(u64, Cpu)> {
    let values = Arc::new(ValuePool::new(options.value_bytes));
    let writer = |index: u64| InProcessWriter {
        target: target.clone(),
        values: values.clone(),
        value_bytes: options.value_bytes,
        existing: options.existing,
        number: options.round * CELL_OPERATIONS_MAX + index,
        step: options.writers as u64,
    };
    let writers: Vec<_> = (0..options.writers as u64).map(writer).collect();
    drop(target);
    if options.existing {
        join(writers.iter().cloned().map(InProcessWriter::fill)).await?;
    }
    let window = MeasureWindow::after_warming_up(Instant::now(), Duration::from_secs_f64(options.seconds));
    let writing = tokio::spawn(join(writers.into_iter().map(move |writer| writer.run(window))));
    tokio::time::sleep_until(window.warm_until.into()).await;
    let before = procfs::cpu(std::process::id())?;
    tokio::time::sleep_until(window.stop_at.into()).await;
    let cpu = procfs::cpu(std::process::id())?.since(before);
    Ok((writing.await??, cpu))
}

/// Runs all tasks; returns the sum of their results.
async fn join<W: Future<Output = Result<u64>> + Send + 'static>(tasks: impl Iterator<Item = W>) -> Result<u64> {
    let mut running: JoinSet<Result<u64>> = tasks.collect();
    let mut count = 0;
    while let Some(ended) = running.join_next().await {
        count += ended??;
    }
    Ok(count)
}

#[derive(Clone)]
struct InProcessWriter {
    target: InProcessTarget,
    values: Arc<ValuePool>,
    value_bytes: usize,
    existing: bool,
    number: u64,
    step: u64,
}

impl InProcessWriter {
    /// Writes its share of the keys that exist.
    async fn fill(self) -> Result<u64> {
        let mut random = BenchRandom::new(self.number);
        for number in (self.number % self.step..EXISTING_KEYS).step_by(self.step as usize) {
            self.target.put(key("read", number), self.values.cut(&mut random, self.value_bytes)).await?;
        }
        Ok(0)
    }

    /// Puts until the window ends; returns the number of those that ended in it.
    async fn run(mut self, window: MeasureWindow) -> Result<u64> {
        let mut random = BenchRandom::new(self.number);
        let mut count = 0;
        while Instant::now() < window.stop_at {
            let name = match self.existing {
                true => key("read", random.below(EXISTING_KEYS)),
                false => key("made", self.number),
            };
            self.number += self.step;
            self.target.put(name, self.values.cut(&mut random, self.value_bytes)).await?;
            count += u64::from(window.holds(Instant::now()));
        }
        Ok(count)
    }
}

/// Reads the line of [`serve`]: count, seconds, CPU in user and system mode.
fn parse(text: &str) -> Option<TurnResult> {
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [count, seconds, user, system] = numbers[..] else {
        return None;
    };
    let per_thousand = 1_000.0 / count.max(1.0);
    let cpu = Cpu { user: user * per_thousand, system: system * per_thousand };
    (seconds > 0.0).then_some(TurnResult { rate: count / seconds, cpu: Some(cpu), generator: None, fault: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_line_is_read_back() {
        let stored = parse("50000 5 1.5 2.5\n").unwrap();
        assert!((stored.rate - 10_000.0).abs() < 1e-9);
        assert!((stored.cpu.unwrap().seconds() - 0.08).abs() < 1e-9);
        for text in ["", "1 2 3", "a 5 1 1", "1 0 1 1"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_sides_store_new_and_existing_keys() {
        let scratch = tempfile::tempdir().unwrap();
        for existing in [false, true] {
            let options = |side| InProcessArgs {
                side,
                data: scratch.path().join(format!("{side:?}-{existing}")),
                seconds: 0.1,
                writers: 4,
                value_bytes: 100,
                round: 0,
                existing,
            };
            let bare = options(InProcessSide::Bare);
            let (queue, thread) = BareCommitQueue::start(&bare.data).unwrap();
            let (count, _) = measure(&bare, InProcessTarget::Bare(queue)).await.unwrap();
            tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
            assert!(count > 0);
            let ours = options(InProcessSide::Gateway);
            let gateway = EmbeddedGateway::open(&ours.data).await.unwrap();
            let (count, _) = measure(&ours, InProcessTarget::Gateway(gateway.clone())).await.unwrap();
            assert!(count > 0);
            let kind = if existing { "read" } else { "made" };
            assert_eq!(gateway.get(&key(kind, 0)).await.unwrap(), 100);
            gateway.close().await.unwrap();
        }
    }
}
