//! The length of the tests, from the environment.

use std::fs::OpenOptions;
use std::io::Write;
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
    pub fn of<T>(self, test: T, soak: T) -> T {
        match self {
            Self::Test => test,
            Self::Soak => soak,
        }
    }
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
