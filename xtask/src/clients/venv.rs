//! A Python environment in the working copy.

use std::path::PathBuf;

use super::folder::ClientFolder;
use crate::shell::{Result, Shell, first_line};

/// A Python environment; the text of its folder is the list of its packages.
#[derive(Debug)]
pub(super) struct Venv {
    /// Its folder.
    pub(super) folder: ClientFolder,
}

impl Venv {
    /// Whether it exists with all its packages.
    pub(super) fn is_current(&self, shell: &Shell) -> bool {
        self.folder.is_current(shell)
    }

    /// The folder of its programs.
    pub(super) fn bin(&self, shell: &Shell) -> PathBuf {
        self.folder.path(shell).join("bin")
    }

    /// Makes it, empty.
    ///
    /// # Errors
    /// The first line of the cause: there is no Python, or one without `venv`.
    pub(super) fn make(&self, shell: &Shell) -> Result<()> {
        shell
            .output("python3", &["-m", "venv", "--clear", self.folder.dir])
            .map(drop)
            .map_err(|why| first_line(&why).to_owned())
    }

    /// Installs packages.
    ///
    /// # Errors
    /// When pip fails.
    pub(super) fn install(&self, shell: &Shell, packages: &[&str]) -> Result<()> {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        shell.run(&self.bin(shell).join("python"), &[&pip, packages].concat())
    }

    /// Marks it as complete.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub(super) fn finish(&self, shell: &Shell) -> Result<()> {
        self.folder.finish(shell)
    }
}
