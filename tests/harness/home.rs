//! The place of one server's data, and the commands that start servers there.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use crate::harness::account::FreshAccount;
use crate::harness::admin::KvAdmin;
use crate::harness::engine::{KeyspaceLease, TestEngine, gateway_args};
use crate::harness::node::{LarderNode, S3_KEY, S3_SECRET, START};
use crate::harness::process::{Process, ProcessEnd};

/// The default name of a server.
const NAME: &str = "larder@127.0.0.1";

/// The place of one server's data: a directory, removed at the end, and keyspaces when the engine is a cluster.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    /// Taken when the first server starts here.
    keyspaces: OnceLock<Arc<KeyspaceLease>>,
    /// Whether a gateway here has the default name; gateways beside it have names of their own.
    has_usual_name: bool,
    /// The arguments of `ulimit` before a server starts here.
    limit: Option<String>,
    /// The account of the servers here, instead of the one of the tests.
    account: Option<FreshAccount>,
}

impl Home {
    /// A new, empty home.
    #[must_use]
    pub fn new() -> Self {
        keep_private();
        let dir = tempfile::Builder::new().prefix("larder-").tempdir().expect("a temporary directory");
        Self { dir, keyspaces: OnceLock::new(), has_usual_name: true, limit: None, account: None }
    }

    /// A home whose servers start below a limit of the system: the arguments of the shell's `ulimit`, such as `-n 1024`.
    #[must_use]
    pub fn limited(limit: &str) -> Self {
        Self { limit: Some(limit.to_owned()), ..Self::new() }
    }

    /// A home of a fresh account, whose servers run as that; of this process's own where it cannot make another.
    #[must_use]
    pub fn of_fresh_account() -> Self {
        let home = Self { account: FreshAccount::new(), ..Self::new() };
        if let Some(account) = home.account {
            account.takes(home.path());
        }
        // The folder of a build may be closed to others.
        home.take_in(&LarderNode::binary());
        home.take_in(&KvAdmin::binary());
        home
    }

    /// Copies a file or a folder into this home, and returns its place there.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn take_in(&self, from: &Path) -> PathBuf {
        let to = self.path().join(from.file_name().expect("a name"));
        match from.is_dir() {
            true => copy_directory(from, &to),
            false => fs::copy(from, &to).map(drop),
        }
        .expect("a file of the working copy");
        if let Some(account) = self.account {
            account.takes(&to);
        }
        to
    }

    /// A shell that runs a script as the account of this home, and may run these programs.
    #[must_use]
    pub fn shell(&self, script: &str, programs: &[PathBuf]) -> Command {
        let Some(account) = self.account else {
            let mut shell = Command::new("bash");
            shell.args(["-c", script]);
            return shell;
        };
        account.shell(script, programs)
    }

    /// Whether the account of this home may run a program.
    #[must_use]
    pub fn can_run(&self, program: &Path) -> bool {
        let script = format!("test -x '{}'", program.display());
        let probe = self.shell(&script, &[program.to_owned()]).current_dir("/").output();
        probe.is_ok_and(|ended| ended.status.success())
    }

    /// A new home in this directory, such as one in memory.
    ///
    /// # Errors
    /// When no directory can be made there.
    pub fn inside(parent: &Path) -> std::io::Result<Self> {
        keep_private();
        let dir = tempfile::Builder::new().prefix("larder-").tempdir_in(parent)?;
        Ok(Self { dir, keyspaces: OnceLock::new(), has_usual_name: true, limit: None, account: None })
    }

    /// A home for another gateway over the same keyspaces.
    ///
    /// # Panics
    /// When the engine is no cluster.
    #[must_use]
    pub fn beside(&self) -> Self {
        let keyspaces = self.keyspaces().expect("the engine is a cluster").1;
        Self { keyspaces: OnceLock::from(keyspaces), has_usual_name: false, ..Self::new() }
    }

    /// A home with a copy of this data of the embedded engine; no server may run on it.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        copy_directory(&self.data(), &copy.data()).expect("the data can be copied");
        copy
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The admin socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.data().join("admin.sock")
    }

    /// The directory of this home, for a test's own files beside the data.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The command that starts a server here on any free port.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program();
        command.current_dir(self.path()).arg("--data-dir").arg(self.data());
        if !args.contains(&"--http") {
            command.args(["--http", "127.0.0.1:0"]);
        }
        for listener in ["--pb", "--s3", "--console", "--metrics"] {
            if !args.contains(&listener) {
                command.args([listener, "off"]);
            }
        }
        if !args.contains(&"--engine")
            && let Some((node, keyspaces)) = self.keyspaces()
        {
            if self.has_usual_name && !args.contains(&"--config") {
                command.env("LARDER_NODE_NAME", NAME);
            }
            command.args(gateway_args(&node.to_string(), &keyspaces.prefix));
        }
        command.args(args);
        command.env("LARDER_S3_ADMIN_KEY", S3_KEY).env("LARDER_S3_ADMIN_SECRET", S3_SECRET);
        command
    }

    fn program(&self) -> Command {
        let larder = LarderNode::binary();
        if let Some(account) = self.account {
            let own = larder.file_name().map_or_else(|| larder.clone(), |name| self.path().join(name));
            let mut command = Command::new(own);
            account.runs(&mut command);
            return command;
        }
        let Some(limit) = &self.limit else { return Command::new(larder) };
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\"")).arg(larder);
        command
    }

    /// The first contact point of the cluster, and this home's keyspaces in it.
    fn keyspaces(&self) -> Option<(SocketAddr, Arc<KeyspaceLease>)> {
        let TestEngine::Cassandra(node) = TestEngine::current() else { return None };
        let keyspaces = self.keyspaces.get_or_init(|| Arc::new(KeyspaceLease::take(node)));
        Some((node, Arc::clone(keyspaces)))
    }

    /// Starts a server that is expected to refuse, and returns its end.
    #[must_use]
    pub fn fails_to_start(&self, args: &[&str]) -> ProcessEnd {
        Process::start(&mut self.command(args)).wait_for_end(START)
    }
}

/// Makes files of this process private: a server does not start over data that other users may read.
fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
