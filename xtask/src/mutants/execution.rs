//! The test executable of a mutated tree, and how a test in it ends.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::mutation::{TestTarget, VARIABLE};
use super::{MutatedTree, Mutation};
use crate::shell::{Result, Shell};
use crate::test_programs::{TestProgram, target_choice};
use crate::test_runner;

/// The longest time of one test. A mutation may make a writer wait for ever.
const TEST_TIME_MAX: Duration = Duration::from_secs(180);
/// The variable with the number of random schedules.
const SCHEDULES: &str = "LARDER_TEST_CASES";
/// The seed of property tests.
const PROPERTY_SEED: &str = "1";

/// A built test target.
pub(super) struct Executable(TestProgram);

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
        let which = target_choice(package, target);
        let args = ["test", "--manifest-path", &manifest, "--no-run", "--message-format", "json"];
        let args = [&args[..], &which].concat();
        let shell = shell.clone().with_variable("CARGO_TARGET_DIR", &tree.build);
        let mut found = None;
        shell.cargo_messages(&args, |message| {
            let is_it = |program: &TestProgram| program.package == *package && program.target == *target;
            found = TestProgram::of_message(message).filter(is_it).or(found.take());
        })?;
        found.map(Self).ok_or_else(|| format!("cargo names no executable of {package} {target}"))
    }

    /// Refuses a test that the executable lacks: it would pass whatever the mutation does.
    ///
    /// # Errors
    /// There is no such test.
    pub(super) fn check_has(&self, shell: &Shell, test: &str) -> Result<()> {
        let path = self.0.path.display().to_string();
        let listed = shell.output(&path, &["--exact", test, "--list"])?;
        if listed.contains(": test") { Ok(()) } else { Err(format!("{path}: there is no test {test}")) }
    }

    /// Runs the test of a mutation, with the mutation on or off.
    ///
    /// # Errors
    /// It cannot be run.
    pub(super) fn run(&self, mutation: &Mutation, is_on: bool) -> Result<Ending> {
        let TestProgram { path, directory, .. } = &self.0;
        let mut command = Command::new(path);
        command.current_dir(directory).args(["--exact", &mutation.test]).env_remove(VARIABLE);
        command.envs(is_on.then_some((VARIABLE, &mutation.name)));
        // A property test finds a rare race with most seeds, and has to find it in each run.
        command.env("PROPTEST_RNG_SEED", PROPERTY_SEED);
        command.envs(mutation.schedules.map(|count| (SCHEDULES, count.to_string())));
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let ended = started.and_then(|child| test_runner::wait(child, TEST_TIME_MAX));
        match ended.map_err(|error| format!("{}: {error}", path.display()))? {
            Some(status) if status.success() => Ok(Ending::Passed),
            Some(_) => Ok(Ending::Failed),
            None => Ok(Ending::Hung),
        }
    }
}
