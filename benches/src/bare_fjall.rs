//! Bare fjall: the cost of the same durable writes when only the commit is done.
//!
//! Writers queue a key and a value and wait. One thread takes the queue, commits it as one batch with one sync, and answers.
//! There is no HTTP, no context, no view: this is the least cost of a durable PUT.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::io::Read;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::child::ChildProcess;
use crate::keys::{BenchRandom, ValuePool, key};
use crate::limits::{ANSWER_WAIT_MAX, CELL_OPERATIONS_MAX, GROUP_WRITES_MAX};
use crate::procfs::{self, Cpu};
use crate::worker::MeasureWindow;

/// The arguments of `bare-fjall`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BareFjallArgs {
    /// The folder of the database, which is made when missing.
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// The length of the measured window, in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// The number of writers, each waiting for its own write.
    #[arg(long, default_value_t = 64)]
    pub(crate) writers: usize,
    /// Bytes of each value.
    #[arg(long, default_value_t = 1_124)]
    pub(crate) value_bytes: usize,
    /// The number of this run on the data: each run has its own keys.
    #[arg(long, default_value_t = 0)]
    pub(crate) round: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CommitRate {
    /// Writes per second.
    pub(crate) rate: f64,
    /// CPU seconds per thousand writes, writers included.
    pub(crate) cpu_per_thousand: Cpu,
}

/// Runs this binary as a bare committer and reads its output.
///
/// # Errors
///
/// When it fails, or prints another line.
pub(crate) fn run(options: &BareFjallArgs) -> Result<CommitRate> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare-fjall").arg("--data").arg(&options.data);
    command.arg("--seconds").arg(options.seconds.to_string());
    command.arg("--writers").arg(options.writers.to_string());
    command.arg("--value-bytes").arg(options.value_bytes.to_string());
    command.arg("--round").arg(options.round.to_string());
    let mut child = ChildProcess::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let status = child.wait(Duration::from_secs_f64(options.seconds * 2.0) + ANSWER_WAIT_MAX)?;
    if !status.success() {
        bail!("the bare committer ended with {status}");
    }
    let mut text = String::new();
    child.process().stdout.take().context("no pipe")?.read_to_string(&mut text)?;
    parse(&text).with_context(|| format!("the bare committer printed {text:?}"))
}

/// Commits until the window ends, and prints one line for [`run`].
///
/// # Errors
///
/// When the database fails.
pub(crate) fn commit(options: &BareFjallArgs) -> Result<()> {
    let database = Database::builder(&options.data).open()?;
    let table = database.keyspace("bare", KeyspaceCreateOptions::default)?;
    let (queue, queued) = mpsc::channel(GROUP_WRITES_MAX);
    let committer = std::thread::spawn(move || commit_groups(&database, &table, queued));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let window = MeasureWindow::after_warming_up(Instant::now(), Duration::from_secs_f64(options.seconds));
    let (count, cpu) = runtime.block_on(write(options, queue, window))?;
    match committer.join() {
        Ok(result) => result?,
        Err(_) => bail!("the committer panicked"),
    }
    println!("{} {} {} {}", count, options.seconds, cpu.user, cpu.system);
    Ok(())
}

/// A write in the queue, whose writer waits.
struct QueuedWrite {
    key: Vec<u8>,
    value: Vec<u8>,
    answer: oneshot::Sender<()>,
}

/// Commits groups until all writers have ended.
fn commit_groups(database: &Database, table: &Keyspace, mut queued: mpsc::Receiver<QueuedWrite>) -> Result<()> {
    let mut group = Vec::with_capacity(GROUP_WRITES_MAX);
    while queued.blocking_recv_many(&mut group, GROUP_WRITES_MAX) > 0 {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        let mut answers = Vec::with_capacity(group.len());
        for write in group.drain(..) {
            batch.insert(table, write.key, write.value);
            answers.push(write.answer);
        }
        batch.commit()?;
        for answer in answers {
            // A writer that has ended needs no answer.
            let _ = answer.send(());
        }
    }
    Ok(())
}

/// Runs the writers; returns the number of writes that ended in the window, and the CPU time of the window.
async fn write(options: &BareFjallArgs, queue: mpsc::Sender<QueuedWrite>, window: MeasureWindow) -> Result<(u64, Cpu)> {
    let values = Arc::new(ValuePool::new(options.value_bytes));
    let mut writers = JoinSet::new();
    for index in 0..options.writers as u64 {
        let writer = BareWriter {
            queue: queue.clone(),
            values: values.clone(),
            value_bytes: options.value_bytes,
            number: options.round * CELL_OPERATIONS_MAX + index,
            step: options.writers as u64,
        };
        writers.spawn(writer.run(window));
    }
    drop(queue);
    tokio::time::sleep_until(window.warm_until.into()).await;
    let before = procfs::cpu(std::process::id())?;
    tokio::time::sleep_until(window.stop_at.into()).await;
    let cpu = procfs::cpu(std::process::id())?.since(before);
    let mut count = 0;
    while let Some(ended) = writers.join_next().await {
        count += ended??;
    }
    Ok((count, cpu))
}

struct BareWriter {
    queue: mpsc::Sender<QueuedWrite>,
    values: Arc<ValuePool>,
    value_bytes: usize,
    number: u64,
    step: u64,
}

impl BareWriter {
    async fn run(mut self, window: MeasureWindow) -> Result<u64> {
        let mut random = BenchRandom::new(self.number);
        let mut count = 0;
        while Instant::now() < window.stop_at {
            let value = self.values.cut(&mut random, self.value_bytes).to_vec();
            let (answer, answered) = oneshot::channel();
            let key = key("made", self.number).to_vec();
            self.number += self.step;
            self.queue.send(QueuedWrite { key, value, answer }).await.ok().context("the committer is gone")?;
            answered.await.context("the committer is gone")?;
            count += u64::from(window.holds(Instant::now()));
        }
        Ok(count)
    }
}

/// Reads the line of [`commit`]: count, seconds, CPU in user and system mode.
fn parse(text: &str) -> Option<CommitRate> {
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [count, seconds, user, system] = numbers[..] else {
        return None;
    };
    let per_thousand = 1_000.0 / count.max(1.0);
    let cpu_per_thousand = Cpu { user: user * per_thousand, system: system * per_thousand };
    (seconds > 0.0).then_some(CommitRate { rate: count / seconds, cpu_per_thousand })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_line_is_read_back() {
        let committed = parse("50000 5 1.5 2.5\n").unwrap();
        assert!((committed.rate - 10_000.0).abs() < 1e-9);
        assert!((committed.cpu_per_thousand.seconds() - 0.08).abs() < 1e-9);
        for text in ["", "1 2 3", "a 5 1 1", "1 0 1 1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_committer_counts_only_what_is_committed() {
        let scratch = tempfile::tempdir().unwrap();
        let options =
            BareFjallArgs { data: scratch.path().join("bare"), seconds: 0.2, writers: 4, value_bytes: 100, round: 0 };
        commit(&options).unwrap();
        let database = Database::builder(&options.data).open().unwrap();
        let table = database.keyspace("bare", KeyspaceCreateOptions::default).unwrap();
        assert!(table.get(key("made", 0)).unwrap().is_some());
    }
}
