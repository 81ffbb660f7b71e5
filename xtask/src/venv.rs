//! An environment of Python in the working copy, remade when what belongs in it changes.

use std::fs;
use std::path::PathBuf;

use crate::shell::{Result, Shell, first_line};

/// An environment.
#[derive(Debug)]
pub(crate) struct Venv {
    /// Where it is, below the root.
    pub(crate) dir: &'static str,
    /// What is in it, as text: another text is another environment.
    pub(crate) content: String,
}

impl Venv {
    /// Whether it is there, with all that belongs in it.
    pub(crate) fn is_current(&self, shell: &Shell) -> bool {
        fs::read_to_string(self.stamp(shell)).is_ok_and(|text| text == self.content)
    }

    /// Where its programs are.
    pub(crate) fn bin(&self, shell: &Shell) -> PathBuf {
        shell.path(self.dir).join("bin")
    }

    /// Makes it, with nothing in it.
    ///
    /// # Errors
    /// The first line of why not: there is no Python, or one without `venv`.
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
    pub(crate) fn install(&self, shell: &Shell, words: &[&str]) -> Result<()> {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        shell.run(&self.bin(shell).join("python"), &[&pip, words].concat())
    }

    /// Notes that all that belongs in it is.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(crate) fn finish(&self, shell: &Shell) -> Result<()> {
        fs::write(self.stamp(shell), &self.content).map_err(|error| format!("{}: {error}", self.dir))
    }

    fn stamp(&self, shell: &Shell) -> PathBuf {
        shell.path(self.dir).join("larder-stamp")
    }
}
