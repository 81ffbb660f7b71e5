//! One run of `kv-admin`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Ended, Process};

/// How long a command may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// The client of one server's admin socket.
#[derive(Debug, Clone)]
pub struct Admin {
    socket: PathBuf,
}

impl Admin {
    /// For the server that listens on `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Runs it with these arguments.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ended {
        Process::start(Command::new(Self::binary()).arg("--socket").arg(&self.socket).args(args)).ended(DEADLINE)
    }

    /// Runs it with these arguments and whatever else the command was given.
    pub fn run_command(command: &mut Command) -> Ended {
        Process::start(command).ended(DEADLINE)
    }

    /// What a successful run prints; fails the test when it does not succeed or complains.
    #[track_caller]
    pub fn says<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let ended = self.run(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{:?} printed {}", shown(args), ended.stdout);
        ended.stdout
    }

    /// Fails the test unless the run prints exactly this and ends well.
    #[track_caller]
    pub fn check(&self, args: &[&str], stdout: &str) {
        assert_eq!(self.says(args), stdout, "{args:?}");
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
        crate::node::binary("LARDER_KV_ADMIN_BIN", "kv-admin")
    }
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> Vec<String> {
    args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect()
}
