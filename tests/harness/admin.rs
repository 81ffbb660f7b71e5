//! One run of `kv-admin`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::process::{Process, ProcessEnd};

/// The longest time of a command.
const DEADLINE: Duration = Duration::from_secs(30);

/// The client of one server's admin socket.
#[derive(Debug, Clone)]
pub struct KvAdmin {
    socket: PathBuf,
}

impl KvAdmin {
    /// A client of the server that listens on `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Runs `kv-admin` with these arguments.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessEnd {
        Process::start(Command::new(Self::binary()).arg("--socket").arg(&self.socket).args(args)).wait_for_end(DEADLINE)
    }

    /// Runs a command that the caller has made of [`Self::binary`].
    pub fn run_command(command: &mut Command) -> ProcessEnd {
        Process::start(command).wait_for_end(DEADLINE)
    }

    /// The stdout of a successful run; fails the test when the run fails or prints to stderr.
    #[track_caller]
    pub fn output<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let ended = self.run(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{:?} printed {}", shown(args), ended.stdout);
        ended.stdout
    }

    /// Fails the test unless the run succeeds and prints exactly this.
    #[track_caller]
    pub fn check(&self, args: &[&str], stdout: &str) {
        assert_eq!(self.output(args), stdout, "{args:?}");
    }

    /// Fails the test unless the run is refused with exactly this on stderr, nothing on stdout, and exit code 1.
    #[track_caller]
    pub fn refused(&self, args: &[&str], stderr: &str) {
        let ended = self.run(args);
        let got = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
        assert_eq!(got, (Some(1), "", stderr), "{args:?}");
    }

    /// Creates a type and activates it.
    #[track_caller]
    pub fn active_type(&self, name: &str, json: &str) {
        self.check(&["bucket-type", "create", name, json], &format!("{name} created\n"));
        self.check(&["bucket-type", "activate", name], &format!("{name} has been activated\n"));
    }

    /// The program under test.
    #[must_use]
    pub fn binary() -> PathBuf {
        crate::harness::node::binary("LARDER_KV_ADMIN_BIN", "kv-admin")
    }
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> Vec<String> {
    args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect()
}
