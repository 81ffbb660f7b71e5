//! Running other programs at the root of the repository.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A result whose error is a text for people.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The variable with the length of tests, and its value for their full length.
const SCALE: &str = "LARDER_TEST_SCALE";
const SOAK: &str = "soak";
/// Cases of a property test in a test run; a soak tries the library's default of 256.
const PROPERTY_CASES: &str = "85";

/// The folder in which programs run, and the variables that are added to their environment.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    root: PathBuf,
    environment: Vec<(OsString, OsString)>,
    is_first_look: bool,
}

impl Shell {
    /// Runs programs at the root of the repository that this program was built from.
    pub(crate) fn at_root() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().unwrap_or(here).to_owned();
        Self { root, environment: Vec::new(), is_first_look: false }
    }

    /// The root of the repository.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the root.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// This shell with one more variable in the environment.
    pub(crate) fn with_variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// A number that the commit chooses, and with it the samples and random cases of a run; `None` without a history.
    pub(crate) fn commit_number(&self) -> Option<u64> {
        let commit = self.output("git", &["rev-parse", "HEAD"]).ok()?;
        u64::from_str_radix(commit.get(..8)?, 16).ok()
    }

    /// This shell, with the seed of random tests from the commit. Property tests try a third of their cases, except in a soak.
    pub(crate) fn with_seed_of_commit(&self) -> Self {
        let seed = self.commit_number().unwrap_or_default().to_string();
        println!("LARDER_TEST_SEED={seed}");
        let shell = self.clone().with_variable("LARDER_TEST_SEED", &seed).with_variable("PROPTEST_RNG_SEED", &seed);
        if shell.is_soak() { shell } else { shell.with_variable("PROPTEST_CASES", PROPERTY_CASES) }
    }

    /// This shell, for a first look: one client of each protocol.
    pub(crate) fn for_first_look(mut self) -> Self {
        self.is_first_look = true;
        self
    }

    /// Whether the run is a first look.
    pub(crate) fn is_first_look(&self) -> bool {
        self.is_first_look
    }

    /// Whether tests run at full length.
    pub(crate) fn is_soak(&self) -> bool {
        self.environment.iter().any(|(name, value)| name == SCALE && value == SOAK)
    }

    /// This shell, in which tests run at full length.
    pub(crate) fn for_soak(&self) -> Self {
        self.clone().with_variable(SCALE, SOAK)
    }

    /// Runs cargo on our own output.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn cargo(&self, args: &[&str]) -> Result<()> {
        self.run(&cargo_path(), args)
    }

    /// Runs a program on our own output.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn run(&self, program: &Path, args: &[&str]) -> Result<()> {
        let shown = command_line(program, args);
        println!("$ {shown}");
        let status = self.command(program, args).status().map_err(|error| format!("{shown}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
    }

    /// Runs cargo, and passes each of its JSON messages on; its progress is on our own stderr.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn cargo_messages(&self, args: &[&str], mut each: impl FnMut(&Value)) -> Result<()> {
        let shown = command_line(Path::new("cargo"), args);
        println!("$ {shown}");
        let failed = |error: std::io::Error| format!("{shown}: {error}");
        let mut child = self.command(&cargo_path(), args).stdout(Stdio::piped()).spawn().map_err(failed)?;
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            // A line that is no message is the output of a build script.
            if let Ok(message) = serde_json::from_str(&line.map_err(failed)?) {
                each(&message);
            }
        }
        let status = child.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
    }

    /// The stdout of a program, without its last line end.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn output(&self, program: &str, args: &[&str]) -> Result<String> {
        let shown = command_line(Path::new(program), args);
        let output = self
            .command(Path::new(program), args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{shown}: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(format!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()))
        }
    }

    /// A program at the root, in the environment of this shell.
    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).args(args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The cargo that runs this program.
pub(crate) fn cargo_path() -> PathBuf {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}

/// The first line of a text: the cause of a failure without its details.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn command_line(program: &Path, args: &[&str]) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    std::iter::once(name.as_ref()).chain(args.iter().copied()).collect::<Vec<_>>().join(" ")
}
