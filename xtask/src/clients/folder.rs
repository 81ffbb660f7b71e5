//! A folder of an installed client, made again when its content changes.

use std::fs;
use std::path::PathBuf;

use crate::shell::{Result, Shell};

/// A folder in the working copy, with a stamp that is written when all is there.
#[derive(Debug)]
pub(super) struct ClientFolder {
    /// Its path below the root.
    pub(super) dir: &'static str,
    /// Its content as text: another text is another content.
    pub(super) content: String,
}

impl ClientFolder {
    /// Its path.
    pub(super) fn path(&self, shell: &Shell) -> PathBuf {
        shell.path(self.dir)
    }

    /// Whether it exists with all its content.
    pub(super) fn is_current(&self, shell: &Shell) -> bool {
        fs::read_to_string(self.stamp(shell)).is_ok_and(|text| text == self.content)
    }

    /// Makes it, empty.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn clear(&self, shell: &Shell) -> Result<()> {
        let _ = fs::remove_dir_all(self.path(shell));
        fs::create_dir_all(self.path(shell)).map_err(|error| format!("{}: {error}", self.dir))
    }

    /// Marks it as complete.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub(super) fn finish(&self, shell: &Shell) -> Result<()> {
        fs::write(self.stamp(shell), &self.content).map_err(|error| format!("{}: {error}", self.dir))
    }

    fn stamp(&self, shell: &Shell) -> PathBuf {
        self.path(shell).join("larder-stamp")
    }
}

/// The text of a file below the root.
///
/// # Errors
/// When it cannot be read.
pub(super) fn text_of(shell: &Shell, file: &str) -> Result<String> {
    fs::read_to_string(shell.path(file)).map_err(|error| format!("{file}: {error}"))
}
