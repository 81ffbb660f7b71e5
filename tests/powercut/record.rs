//! A server at work under strace: every call that changes its files, and every answer its clients had.
//!
//! A record is a folder: `start` is the directory as it was, `calls` has every life of the server, `ledger` the answers.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use larder_tests::{Home, Node, Random, wait};

use crate::image::Image;
use crate::ledger::Ledger;
use crate::replay::{EXIT, Replay, steps};
use crate::trace::{self, CALLS, Call, Line, STRING_MAX};
use crate::workload::{self, Plan};

/// How a life of the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// In order; after it the machine is idle for so long that the kernel writes everything out by itself.
    StopAndRest,
    /// In order.
    Stop,
    /// At once; the machine goes on.
    Kill,
}

/// The lives of a record.
const LIVES: &[End] = &[End::StopAndRest, End::Stop, End::Kill];
/// Changes of each writer in a life.
const CHANGES: usize = 35;
/// How long strace may take to write its last line.
const TRACED: Duration = Duration::from_secs(30);
/// Sweepers run while the writers do.
const SWEEP: &str = "100ms";

/// What happened to a directory.
#[derive(Debug)]
pub struct Record {
    /// Where the directory was.
    root: Vec<u8>,
    /// What was in it before.
    pub start: Image,
    /// What the server called, in all its lives.
    pub calls: Vec<Call>,
    /// What its clients were answered.
    pub ledger: Ledger,
    /// Whether it answered from the disk.
    pub durable: bool,
}

/// strace, where the environment says or in the path; none where it is missing or may not trace.
pub fn tracer() -> Option<PathBuf> {
    let path = std::env::var_os("LARDER_STRACE").map_or_else(|| PathBuf::from("strace"), PathBuf::from);
    let tried = under(&path).args(["-f", "-o", "/dev/null", "true"]).output();
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

/// The beginning of a command under strace. One that is unpacked but not installed has its libraries beside it.
fn under(tracer: &Path) -> Command {
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

impl Record {
    /// Makes one in the folder `into`: a server on what `start` and `ledger` say, or on an empty directory.
    pub fn make(tracer: &Path, into: &Path, durable: bool, start: (Image, Ledger), random: &mut Random) -> Self {
        let (start, mut ledger) = start;
        let mut home =
            Home::inside(&std::env::temp_dir().canonicalize().expect("a temporary directory")).expect("a home");
        start.store(home.path()).expect("the directory can be made");
        let root = home.path().as_os_str().as_bytes().to_vec();
        let mut record = Self { root, start, calls: Vec::new(), ledger: Ledger::default(), durable };
        let mut replay = record.replay();
        let mut lines = 0;
        for (life, end) in LIVES.iter().enumerate() {
            let log = into.join(format!("calls-{life}"));
            let plan = Plan { durable, changes: CHANGES, two_parts: life == 1 };
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

    /// Reads one that was kept.
    pub fn load(from: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(from.join(name)).expect("a record has this file");
        let ledger = text("ledger").parse().expect("a ledger");
        let start = Image::load(&from.join("start")).expect("a record has a start");
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
    pub fn replay(&self) -> Replay {
        Replay::new(&self.start, &self.root)
    }

    /// Adds the calls of a life that begins at this line; answers the line after it.
    fn add(&mut self, log: &Path, first: Line, life: End) -> Line {
        let (calls, lines) = trace::read(log);
        let (at, end) = (calls.last().map_or(0, |call| call.until), first + lines);
        self.calls.extend(calls.into_iter().map(|call| Call {
            begun: first + call.begun,
            ended: first + call.ended,
            ..call
        }));
        let names = [EXIT].into_iter().chain((life == End::StopAndRest).then_some("sync"));
        let call = |(line, name): (Line, &str)| {
            let (name, args, strings) = (name.to_owned(), Vec::new(), Vec::new());
            Call { begun: line, ended: line, at, until: at, name, args, strings, result: 0 }
        };
        self.calls.extend((end..).zip(names).map(call));
        end + 2
    }
}

/// Makes the command that starts a server under strace from one that starts it without. The server is the child; strace
/// ends with it.
fn command(tracer: &Path, log: &Path, durable: bool) -> impl Fn(&Home) -> Command {
    move |home| {
        let plain = home.command(&[&args(durable)[..], &["--sweep-interval", SWEEP]].concat());
        let mut traced = under(tracer);
        traced.args(["-D", "-f", "--seccomp-bpf", "-ttt", "-xx", "-s", &STRING_MAX.to_string(), "-e"]);
        traced.arg(format!("trace={}", CALLS.replace(' ', ""))).arg("-o").arg(log);
        traced.arg(plain.get_program()).args(plain.get_args()).current_dir(home.path());
        for (name, value) in plain.get_envs() {
            value.map(|value| traced.env(name, value));
        }
        traced
    }
}

/// A life of the server, from its start to its end.
fn record_life(
    home: Home,
    command: &impl Fn(&Home) -> Command,
    (life, end, plan): (usize, End, Plan),
    random: &mut Random,
    ledger: &mut Ledger,
) -> Home {
    let mut command = command(&home);
    let started = Node::start_command(home, &mut command);
    let mut node = started.unwrap_or_else(|ended| panic!("no start: {} {}", ended.stdout, ended.stderr));
    let process = node.id();
    if life == 0 {
        workload::prepare(&node);
        ledger.ready.get_or_insert(workload::now());
    }
    workload::run(&node, plan, random, ledger);
    match end {
        End::StopAndRest | End::Stop => {
            let ended = node.terminate();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            ledger.stops.push(workload::now());
        }
        End::Kill => {
            // What is under way when a process is killed may be done or not, and strace does not tell. So it is held first.
            node.stop();
            let mut times = 0; // A thread also looks held in the moment in which strace writes a line.
            wait("the server is held", TRACED, || {
                times = if is_held(process) { times + 1 } else { 0 };
                times == 3
            });
            node.kill();
        }
    }
    let log = command.get_args().skip_while(|arg| *arg != "-o").nth(1).map(PathBuf::from).expect("strace has a log");
    wait("strace has written everything", TRACED, || trace::has_ended(&log, process));
    node.into_home()
}

/// Whether every thread of a process is stopped.
fn is_held(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let is_held = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['t', 'T']));
    threads.flatten().all(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(is_held))
}

/// The model says what the directory has: nothing was missed.
fn check(replay: &Replay, home: &Home) {
    let found = Image::load(home.path()).expect("the directory can be read");
    let differences = replay.disk.whole().differences(&found);
    assert!(differences.is_empty(), "the record has missed changes (model, directory): {differences:#?}");
}
