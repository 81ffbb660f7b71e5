//! The length of a test, from the environment.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the environment chooses the length of a test, which prints its figures"
)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;

/// `LARDER_TEST_SCALE`: unset for a test run, `soak` for the full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The length that CI runs.
    Test,
    /// The full length.
    Soak,
}

impl Scale {
    /// The scale of this run.
    #[must_use]
    pub fn current() -> Self {
        match std::env::var("LARDER_TEST_SCALE").as_deref() {
            Ok("soak") => Self::Soak,
            _ => Self::Test,
        }
    }

    /// One of two values.
    #[must_use]
    pub fn pick<T>(self, test: T, soak: T) -> T {
        match self {
            Self::Test => test,
            Self::Soak => soak,
        }
    }
}

/// The seeds of a test's random cases: so many in a test run and in a soak, or as many as `LARDER_TEST_CASES` says. The first is
/// `LARDER_TEST_SEED`, else 0.
///
/// `cargo xtask test` takes the first seed from the commit: each commit tries other cases. `LARDER_TEST_SEED=N LARDER_TEST_CASES=1`
/// runs one case again.
#[must_use]
pub fn case_seeds(test: u64, soak: u64) -> Range<u64> {
    let first = number("LARDER_TEST_SEED").unwrap_or(0);
    let count = number("LARDER_TEST_CASES").unwrap_or_else(|| Scale::current().pick(test, soak));
    first..first.saturating_add(count)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Reports one figure of a run: on stderr, and as a line of the file `LARDER_FIGURES` when it is set.
pub fn figure(name: &str, value: &str) {
    eprintln!("{name}: {value}");
    let Some(path) = std::env::var_os("LARDER_FIGURES").map(PathBuf::from) else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "| {name} | {value} |");
    }
}
