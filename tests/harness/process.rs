//! A child process whose output is collected. It ends with its value.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// The pause between two checks of a condition.
const STEP: Duration = Duration::from_millis(5);

/// The exit code and the output of a process.
#[derive(Debug, Clone)]
pub struct ProcessEnd {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Everything on stdout.
    pub stdout: String,
    /// Everything on stderr.
    pub stderr: String,
}

/// A running child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `command` and begins to read its output.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LARDER_") && !is_set(command, &name) {
                command.env_remove(&name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{:?} does not start: {error}", command.get_program()),
        };
        let stdout = Arc::default();
        let stderr = Arc::default();
        let readers = vec![
            collect(child.stdout.take().expect("stdout is piped"), Arc::clone(&stdout)),
            collect(child.stderr.take().expect("stderr is piped"), Arc::clone(&stderr)),
        ];
        Self { child, stdout, stderr, readers }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output on stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("no reader panics").clone()
    }

    /// Its output on stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("no reader panics").clone()
    }

    /// Waits until `found` returns a value for its stdout; `None` when it ended first or the time is up.
    pub fn wait_for<T>(&mut self, within: Duration, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(value) = found(&self.stdout()) {
                return Some(value);
            }
            if self.status().is_some() {
                self.drain();
                return found(&self.stdout());
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(STEP);
        }
    }

    /// Its exit status, after it ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the status of a child can be read")
    }

    /// Sends SIGTERM, as an operator does.
    pub fn terminate(&self) {
        self.send(Signal::TERM);
    }

    /// Pauses it with SIGSTOP.
    pub fn stop(&self) {
        self.send(Signal::STOP);
    }

    /// Continues it with SIGCONT.
    pub fn cont(&self) {
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).expect("a child has an id");
        let _ = kill_process(pid, signal);
    }

    /// Ends it at once with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end; kills it and fails the test after the deadline.
    #[must_use]
    pub fn wait_for_end(mut self, within: Duration) -> ProcessEnd {
        let deadline = Instant::now() + within;
        while self.status().is_none() {
            if Instant::now() > deadline {
                self.kill();
                panic!("still running after {within:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
            }
            thread::sleep(STEP);
        }
        self.drain();
        let code = self.status().and_then(|status| status.code());
        ProcessEnd { code, stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Waits for the rest of its output.
    fn drain(&mut self) {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_set(command: &Command, name: &std::ffi::OsStr) -> bool {
    command.get_envs().any(|(key, value)| key == name && value.is_some())
}

fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            into.lock().expect("no reader panics").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

/// Raises the soft limit of open files to the hard one, and returns it.
///
/// # Panics
/// When the system refuses.
pub fn raise_own_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the soft limit may be raised");
    limit.maximum.unwrap_or(u64::MAX)
}
