//! Running other programs at the root of the repository.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A result whose error is a text for people.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The folder in which programs run, and the variables that are added to their environment.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    root: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Shell {
    /// Runs programs at the root of the repository that this program was built from.
    pub(crate) fn at_root() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().unwrap_or(here).to_owned();
        Self { root, environment: Vec::new() }
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

    /// Runs cargo on our own output.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn cargo(&self, args: &[&str]) -> Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        self.run(Path::new(&cargo), args)
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

    /// Whether a cargo subcommand is installed.
    pub(crate) fn has_cargo_subcommand(&self, subcommand: &str) -> bool {
        self.output(&format!("cargo-{subcommand}"), &["--version"]).is_ok()
            || self.output("cargo", &[subcommand, "--version"]).is_ok()
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).args(args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The first line of a text: the cause of a failure without its details.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn command_line(program: &Path, args: &[&str]) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    std::iter::once(name.as_ref()).chain(args.iter().copied()).collect::<Vec<_>>().join(" ")
}
