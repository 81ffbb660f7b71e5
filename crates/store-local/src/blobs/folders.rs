//! The folders of blob files, created with the data directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::io_errors::sync_dir;

/// The folder of all blob files in a data directory.
pub(crate) fn root(dir: &Path) -> PathBuf {
    dir.join("blobs")
}

/// The folder of unfinished files.
pub(crate) fn unfinished(root: &Path) -> PathBuf {
    root.join("tmp")
}

/// The folder of finished files whose ids begin with this byte.
pub(crate) fn shard(root: &Path, shard: u8) -> PathBuf {
    root.join(format!("{shard:02x}"))
}

/// Creates the missing folders and syncs their names.
///
/// # Errors
/// Any I/O error.
pub(crate) fn create(dir: &Path) -> io::Result<()> {
    let root = root(dir);
    for path in [root.clone(), unfinished(&root)].into_iter().chain((0..=u8::MAX).map(|byte| shard(&root, byte))) {
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    sync_dir(&root)?;
    sync_dir(dir)
}

/// Checks that all folders exist.
///
/// # Errors
/// The line that names a missing folder.
pub(crate) fn check(dir: &Path) -> Result<(), String> {
    let root = root(dir);
    let mut folders = (0..=u8::MAX).map(|byte| shard(&root, byte)).chain([unfinished(&root)]);
    match folders.find(|path| !path.is_dir()) {
        Some(path) => Err(format!("{} is missing: large bodies are in such folders", path.display())),
        None => Ok(()),
    }
}
