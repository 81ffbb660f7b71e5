//! A server under strace: every call that changes its files, and every answer to its clients.
//!
//! A record is a folder: `start` is the directory before, `calls-N` the trace of each life of the server, `ledger` the answers.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Home, LarderNode, SplitMix64, wait};

use crate::powercut::image::DirImage;
use crate::powercut::ledger::CutLedger;
use crate::powercut::replay::{DiskReplay, EXIT, steps};
use crate::powercut::trace::{self, CALLS, STRING_MAX, Syscall, TraceLine};
use crate::powercut::workload::{self, WorkloadPlan};

/// The end of a life of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LifeEnd {
    /// An orderly stop; then the machine is idle until the kernel has written all pages.
    StopAndRest,
    /// An orderly stop.
    Stop,
    /// A kill of the process; the machine runs on.
    Kill,
}

/// The lives of a record, by their ends.
const LIVES: &[LifeEnd] = &[LifeEnd::StopAndRest, LifeEnd::Stop, LifeEnd::Kill];
/// Changes of each writer in a life.
const CHANGES: usize = 35;
/// The longest time until strace has written its last line.
const TRACED: Duration = Duration::from_secs(30);
/// The interval of the sweepers, which run while the writers do.
const SWEEP: &str = "100ms";

/// The calls on a directory over several lives of a server.
#[derive(Debug)]
pub struct ServerRecord {
    /// The path of the directory.
    root: Vec<u8>,
    /// Its files before the first life.
    pub start: DirImage,
    /// The calls of the server in all its lives.
    pub calls: Vec<Syscall>,
    /// The changes of its clients with their answers.
    pub ledger: CutLedger,
    /// Whether it answers after a sync.
    pub durable: bool,
}

/// The path of strace, from the environment or `PATH`; `None` when it is missing or may not trace.
pub fn tracer() -> Option<PathBuf> {
    let path = std::env::var_os("LARDER_STRACE").map_or_else(|| PathBuf::from("strace"), PathBuf::from);
    let tried = strace_command(&path).args(["-f", "-o", "/dev/null", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Some(path),
        Ok(output) => {
            eprintln!("skipped: strace may not trace here: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            eprintln!("skipped: {} does not run: {error}", path.display());
            None
        }
    }
}

/// A command of strace. A strace that is unpacked but not installed has its libraries beside it.
fn strace_command(tracer: &Path) -> Command {
    let mut command = Command::new(tracer);
    let beside = tracer.parent().map(|bin| bin.join("../lib")).filter(|_| tracer.is_absolute());
    let folders = beside.and_then(|lib| fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    if let Some(folder) = folders.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
    {
        command.env("LD_LIBRARY_PATH", folder);
    }
    command
}

/// The arguments of a server of this durability.
pub fn args(durable: bool) -> [&'static str; 8] {
    let durability = if durable { "disk" } else { "buffered" };
    ["--s3", "127.0.0.1:0", "--durability", durability, "--threads", "2", "--log-level", "warn"]
}

impl ServerRecord {
    /// Makes a record in the folder `into`, of a server on the files and the ledger of `start`.
    pub fn make(
        tracer: &Path,
        into: &Path,
        durable: bool,
        start: (DirImage, CutLedger),
        random: &mut SplitMix64,
    ) -> Self {
        let (start, mut ledger) = start;
        let mut home =
            Home::inside(&std::env::temp_dir().canonicalize().expect("a temporary directory")).expect("a home");
        start.store(home.path()).expect("the directory can be made");
        let root = home.path().as_os_str().as_bytes().to_vec();
        let mut record = Self { root, start, calls: Vec::new(), ledger: CutLedger::default(), durable };
        let mut replay = record.replay();
        let mut lines = 0;
        for (life, end) in LIVES.iter().enumerate() {
            let log = into.join(format!("calls-{life}"));
            let plan = WorkloadPlan { durable, changes: CHANGES, two_parts: life == 1 };
            home = record_life(home, &command(tracer, &log, durable), (life, *end, plan), random, &mut ledger);
            let first = record.calls.len();
            lines = record.add(&log, lines, *end);
            for step in steps(&record.calls[first..]) {
                replay.step(&record.calls[first + step.call], step.is_end);
            }
            check(&replay, &home);
        }
        record.ledger = ledger;
        record.save(into);
        record
    }

    /// Reads a record that was kept.
    pub fn load(from: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(from.join(name)).expect("a record has this file");
        let ledger = text("ledger").parse().expect("a ledger");
        let start = DirImage::load(&from.join("start")).expect("a record has a start");
        let durable = text("durability") == "disk";
        let mut record = Self { root: text("root").into_bytes(), start, calls: Vec::new(), ledger, durable };
        let mut lines = 0;
        for (life, end) in LIVES.iter().enumerate() {
            lines = record.add(&from.join(format!("calls-{life}")), lines, *end);
        }
        record
    }

    fn save(&self, into: &Path) {
        let durability = if self.durable { "disk" } else { "buffered" };
        let files = [
            ("root", self.root.clone()),
            ("ledger", self.ledger.to_string().into()),
            ("durability", durability.into()),
        ];
        let saved = files.into_iter().try_for_each(|(name, bytes)| fs::write(into.join(name), bytes));
        saved.and_then(|()| self.start.store(&into.join("start"))).expect("the record can be kept");
    }

    /// The disk before the first call.
    pub fn replay(&self) -> DiskReplay {
        DiskReplay::new(&self.start, &self.root)
    }

    /// Adds the calls of a life that begins at this line; returns the line after it.
    fn add(&mut self, log: &Path, first: TraceLine, life: LifeEnd) -> TraceLine {
        let (calls, lines) = trace::read(log);
        let (at, end) = (calls.last().map_or(0, |call| call.until), first + lines);
        self.calls.extend(calls.into_iter().map(|call| Syscall {
            begun: first + call.begun,
            ended: first + call.ended,
            ..call
        }));
        let names = [EXIT].into_iter().chain((life == LifeEnd::StopAndRest).then_some("sync"));
        let call = |(line, name): (TraceLine, &str)| {
            let (name, args, strings) = (name.to_owned(), Vec::new(), Vec::new());
            Syscall { begun: line, ended: line, at, until: at, name, args, strings, result: 0 }
        };
        self.calls.extend((end..).zip(names).map(call));
        end + 2
    }
}

/// The command of a server under strace. The server is the child process (`-D`); strace ends with it.
fn command(tracer: &Path, log: &Path, durable: bool) -> impl Fn(&Home) -> Command {
    move |home| {
        let plain = home.command(&[&args(durable)[..], &["--sweep-interval", SWEEP]].concat());
        let mut traced = strace_command(tracer);
        traced.args(["-D", "-f", "--seccomp-bpf", "-ttt", "-xx", "-s", &STRING_MAX.to_string(), "-e"]);
        traced.arg(format!("trace={}", CALLS.replace(' ', ""))).arg("-o").arg(log);
        traced.arg(plain.get_program()).args(plain.get_args()).current_dir(home.path());
        for (name, value) in plain.get_envs() {
            value.map(|value| traced.env(name, value));
        }
        traced
    }
}

/// Runs a life of the server, from its start to its end.
fn record_life(
    home: Home,
    command: &impl Fn(&Home) -> Command,
    (life, end, plan): (usize, LifeEnd, WorkloadPlan),
    random: &mut SplitMix64,
    ledger: &mut CutLedger,
) -> Home {
    let mut command = command(&home);
    let started = LarderNode::start_command(home, &mut command);
    let mut node = started.unwrap_or_else(|ended| panic!("no start: {} {}", ended.stdout, ended.stderr));
    let process = node.id();
    if life == 0 {
        workload::prepare(&node);
        ledger.ready.get_or_insert(workload::now());
    }
    workload::run(&node, plan, random, ledger);
    match end {
        LifeEnd::StopAndRest | LifeEnd::Stop => {
            let ended = node.terminate();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            ledger.stops.push(workload::now());
        }
        LifeEnd::Kill => {
            // A call in flight at a kill may be done or not, and strace does not show which: so the process is paused first.
            node.stop();
            let mut times = 0; // A thread also looks stopped while strace writes a line.
            wait("the server is paused", TRACED, || {
                times = if is_stopped(process) { times + 1 } else { 0 };
                times == 3
            });
            node.kill();
        }
    }
    let log = command.get_args().skip_while(|arg| *arg != "-o").nth(1).map(PathBuf::from).expect("strace has a log");
    wait("strace has written its last line", TRACED, || trace::has_ended(&log, process));
    node.into_home()
}

/// Whether every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['t', 'T']));
    threads.flatten().all(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(is_stopped))
}

/// Checks that the model has the same files as the directory: the trace missed no change.
fn check(replay: &DiskReplay, home: &Home) {
    let found = DirImage::load(home.path()).expect("the directory can be read");
    let differences = replay.disk.whole().differences(&found);
    assert!(differences.is_empty(), "the record has missed changes (model, directory): {differences:#?}");
}
