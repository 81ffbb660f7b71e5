//! How long tests run, by the environment.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// `LARDER_TEST_SCALE`: unset for a test run, `soak` for the full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// What CI runs.
    Test,
    /// Everything at full length.
    Soak,
}

impl Scale {
    /// The scale this run was started with.
    #[must_use]
    pub fn current() -> Self {
        match std::env::var("LARDER_TEST_SCALE").as_deref() {
            Ok("soak") => Self::Soak,
            _ => Self::Test,
        }
    }

    /// One of two numbers.
    #[must_use]
    pub fn of<T>(self, test: T, soak: T) -> T {
        match self {
            Self::Test => test,
            Self::Soak => soak,
        }
    }
}

/// Notes one figure of a run: on stderr, and as a line of the file `LARDER_FIGURES` when there is one.
pub fn figure(name: &str, value: &str) {
    eprintln!("{name}: {value}");
    let Some(path) = std::env::var_os("LARDER_FIGURES").map(PathBuf::from) else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "| {name} | {value} |");
    }
}
