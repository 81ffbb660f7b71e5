//! The test executable of a mutated tree, and how a test in it ends.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::mutation::{TestTarget, VARIABLE};
use super::{MutatedTree, Mutation};
use crate::shell::{Result, Shell};

/// The longest time of one test. A mutation may make a writer wait for ever.
const TEST_TIME_MAX: Duration = Duration::from_secs(180);
/// The variable with the number of random schedules.
const SCHEDULES: &str = "LARDER_SCHEDULES";
const POLL: Duration = Duration::from_millis(20);

/// A built test target.
pub(super) struct Executable {
    path: PathBuf,
    /// The directory that cargo would run it in.
    directory: PathBuf,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Passed,
    Failed,
    Hung,
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Passed => "passes",
            Self::Failed => "fails",
            Self::Hung => "does not end",
        })
    }
}

impl Executable {
    /// Builds a target with all mutations in it, each switched off.
    ///
    /// # Errors
    /// The build fails, or makes no executable.
    pub(super) fn build(shell: &Shell, tree: &MutatedTree, target: &TestTarget) -> Result<Self> {
        let TestTarget { package, target } = target;
        let manifest = tree.root.join("Cargo.toml").display().to_string();
        // A test target is built for the whole workspace: with the features of the unit stage, whose dependencies serve then.
        let which = if target == "lib" { vec!["-p", package, "--lib"] } else { vec!["--workspace", "--test", target] };
        let args = ["test", "--manifest-path", &manifest, "--no-run", "--message-format", "json"];
        let args = [&args[..], &which].concat();
        println!("$ cargo {}", args.join(" "));
        let shell = shell.clone().with_variable("CARGO_TARGET_DIR", &tree.build);
        let messages = shell.output("cargo", &args)?;
        let found = messages.lines().rev().find_map(|line| Self::of_message(line, package, target));
        found.ok_or_else(|| format!("cargo names no executable of {package} {target}"))
    }

    /// The executable that one message of cargo names.
    fn of_message(line: &str, package: &str, target: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_package = message["package_id"].as_str()?.contains(&format!("#{package}@"));
        let is_target = is_package && (message["target"]["name"] == *target || target == "lib");
        let path = message["executable"].as_str().filter(|_| is_target)?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        Some(Self { path: path.into(), directory: manifest.parent()?.to_owned() })
    }

    /// Refuses a test that the executable lacks: it would pass whatever the mutation does.
    ///
    /// # Errors
    /// There is no such test.
    pub(super) fn check_has(&self, shell: &Shell, test: &str) -> Result<()> {
        let path = self.path.display().to_string();
        let listed = shell.output(&path, &["--exact", test, "--list"])?;
        if listed.contains(": test") { Ok(()) } else { Err(format!("{path}: there is no test {test}")) }
    }

    /// Runs the test of a mutation, with the mutation on or off.
    ///
    /// # Errors
    /// It cannot be run.
    pub(super) fn run(&self, mutation: &Mutation, is_on: bool) -> Result<Ending> {
        let shown = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).args(["--exact", &mutation.test]).env_remove(VARIABLE);
        command.envs(is_on.then_some((VARIABLE, &mutation.name)));
        command.envs(mutation.schedules.map(|count| (SCHEDULES, count.to_string())));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(shown)?;
        let deadline = Instant::now() + TEST_TIME_MAX;
        loop {
            match child.try_wait().map_err(shown)? {
                Some(status) if status.success() => return Ok(Ending::Passed),
                Some(_) => return Ok(Ending::Failed),
                None if Instant::now() >= deadline => break,
                None => std::thread::sleep(POLL),
            }
        }
        child.kill().and_then(|()| child.wait()).map_err(shown)?;
        Ok(Ending::Hung)
    }
}
