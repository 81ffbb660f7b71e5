//! A Python environment in the working copy, made again when its list of packages changes.

use std::fs;
use std::path::PathBuf;

use crate::shell::{Result, Shell, first_line};

/// A Python environment.
#[derive(Debug)]
pub(crate) struct Venv {
    /// Its folder below the root.
    pub(crate) dir: &'static str,
    /// Its packages as text: another text is another environment.
    pub(crate) content: String,
}

impl Venv {
    /// Whether it exists with all its packages.
    pub(crate) fn is_current(&self, shell: &Shell) -> bool {
        fs::read_to_string(self.stamp(shell)).is_ok_and(|text| text == self.content)
    }

    /// The folder of its programs.
    pub(crate) fn bin(&self, shell: &Shell) -> PathBuf {
        shell.path(self.dir).join("bin")
    }

    /// Makes it, empty.
    ///
    /// # Errors
    /// The first line of the cause: there is no Python, or one without `venv`.
    pub(crate) fn make(&self, shell: &Shell) -> Result<()> {
        shell
            .output("python3", &["-m", "venv", "--clear", self.dir])
            .map(drop)
            .map_err(|why| first_line(&why).to_owned())
    }

    /// Installs packages.
    ///
    /// # Errors
    /// When pip fails.
    pub(crate) fn install(&self, shell: &Shell, packages: &[&str]) -> Result<()> {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        shell.run(&self.bin(shell).join("python"), &[&pip, packages].concat())
    }

    /// Marks it as complete.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub(crate) fn finish(&self, shell: &Shell) -> Result<()> {
        fs::write(self.stamp(shell), &self.content).map_err(|error| format!("{}: {error}", self.dir))
    }

    fn stamp(&self, shell: &Shell) -> PathBuf {
        shell.path(self.dir).join("larder-stamp")
    }
}
