//! One worker as the server sees it: a child process with two pipes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::frame::{self, Frame, FrameKind};

/// The program of a worker and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A worker. Dropping it kills the process.
pub(crate) struct WorkerProcess {
    child: Child,
    id: Pid,
    calls: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The generation of the modules that it has.
    pub(crate) generation: u64,
    /// Most bytes of an answer.
    answer_max: usize,
    /// Whether its frame [`FrameKind::Ready`] is still to come.
    is_resting: bool,
}

impl WorkerProcess {
    /// Starts a process; it loads the modules of `setup`, an encoded frame. Its answers have at most `answer_max` bytes.
    pub(crate) async fn start(
        command: &WorkerCommand,
        setup: &[u8],
        generation: u64,
        answer_max: usize,
    ) -> io::Result<Self> {
        let mut child = Command::new(&command.program)
            .arg0("larder-script-worker")
            .args(&command.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal of the terminal is for the server, which lets running requests end.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(calls), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the worker has no pipes"));
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(io::ErrorKind::BrokenPipe)?;
        let answers = BufReader::new(answers);
        let mut worker =
            Self { child, id: Pid::from_raw(id), calls, answers, generation, answer_max, is_resting: true };
        frame::send(&mut worker.calls, setup).await?;
        Ok(worker)
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Waits until it is ready for a call; returns the payload of the frame that says so.
    pub(crate) async fn ready(&mut self) -> io::Result<Vec<u8>> {
        // It may have died after its last frame.
        if self.child.try_wait()?.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !self.is_resting {
            return Ok(Vec::new());
        }
        match frame::receive(&mut self.answers, self.answer_max).await? {
            (FrameKind::Ready, payload) => {
                self.is_resting = false;
                Ok(payload)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Makes a call, an encoded frame, and returns the frame that answers it. Lines of the script's log go to `log`.
    pub(crate) async fn call(&mut self, call: &[u8], log: impl Fn(&[u8])) -> io::Result<Frame> {
        self.is_resting = true;
        frame::send(&mut self.calls, call).await?;
        loop {
            match frame::receive(&mut self.answers, self.answer_max).await? {
                (FrameKind::Log, line) => log(&line),
                answer => return Ok(answer),
            }
        }
    }

    /// Kills the process and waits for its end.
    pub(crate) async fn kill(mut self) {
        // It fails for a process that has ended by itself alone.
        let _ = self.child.kill().await;
    }
}

/// Bounds of each call, and of the worker that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Longest call, from the moment that it has a worker.
    pub call: Duration,
    /// Most memory of one JavaScript heap, in bytes. A worker has two: one for modules, one for the source of a call.
    pub heap: usize,
    /// Most bytes of the JavaScript stack.
    pub stack: usize,
    /// Most bytes of a call's arguments, as JSON.
    pub arguments: usize,
    /// Most bytes of a result, as JSON.
    pub result: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { call: Duration::from_secs(5), heap: 128 << 20, stack: 512 << 10, arguments: 16 << 20, result: 16 << 20 }
    }
}

/// Most bytes of the text of an error, such as the message of an exception.
pub(crate) const ERROR_BYTES_MAX: usize = 4 << 10;
/// Most lines that one call may log.
pub(crate) const LOG_LINES_MAX: usize = 100;
/// Most bytes of a logged line, and of its file name.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 1 << 10;
/// Most bytes of all modules together.
pub(crate) const MODULE_BYTES_MAX: u64 = 16 << 20;
/// Most modules.
pub(crate) const MODULES_MAX: usize = 1000;
/// Most functions that a worker names after it loaded the modules.
pub(crate) const FUNCTIONS_MAX: usize = 20_000;
/// Calls with the modules of one context. Global variables that they leave behind then go with it.
pub(crate) const CALLS_PER_CONTEXT: u32 = 1000;
/// How long a worker may take to start and to load the modules.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a worker may take after a call until it is ready for the next one.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Most values of a result: each takes up to a hundred bytes of the server's memory.
pub(crate) const VALUES_MAX: usize = 1 << 20;
/// Bytes of arguments that may wait for workers, of all calls together. A client has no more of them than are free.
pub(crate) const WAITING_BYTES_MAX: usize = 256 << 20;
/// Calls of one client that may wait for the workers of a lane.
pub(crate) const CLIENT_CALLS_MAX: usize = 128;
/// Stack of the thread that runs JavaScript: native functions need more than JavaScript may use.
pub(crate) const THREAD_STACK: usize = 8 << 20;
/// Address space of a worker beyond its heaps: buffers of frames, stacks, tables of the allocators.
pub(crate) const ADDRESS_SPACE_EXTRA: u64 = 256 << 20;
/// Processor time after which a call runs long. A call of 256 map functions needs some 4 ms.
pub(crate) const FREE_RUN: Duration = Duration::from_millis(10);
/// One turn of a call that runs long, while the server serves requests.
pub(crate) const TIME_SLICE: Duration = Duration::from_micros(250);
/// From one turn to the next, whichever worker has it, on a machine with one processor; with more it is as many times shorter. Slices
/// delay requests: this is 0.6 % of the processors, so that fewer than one request in a hundred meets one.
pub(crate) const SLICE_PERIOD: Duration = Duration::from_millis(40);
/// From one look at an idle server to the next, while long calls run freely.
pub(crate) const IDLE_LOOK: Duration = Duration::from_millis(2);
/// Most processor time of an idle server between two looks; one durable put needs more.
pub(crate) const IDLE_SERVER_CPU: Duration = Duration::from_micros(30);
