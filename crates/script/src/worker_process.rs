//! One worker as the server sees it: a child process with two pipes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

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
