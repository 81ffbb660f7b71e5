//! A program and its symbols as two files: the program is small, and names in backtraces come back with the second one.

use std::fs;
use std::path::Path;

use super::text;
use crate::shell::{Result, Shell};

const MODE: u32 = 0o755;

/// Copies `program` to `placed` without symbols, and its symbols to `debug`. The program names that file, so that debuggers and the
/// standard library's backtraces find it in the program's folder, or below `/usr/lib/debug`.
///
/// # Errors
/// A file cannot be written, or `objcopy` is missing.
pub(super) fn split(shell: &Shell, program: &Path, placed: &Path, debug: &Path) -> Result<()> {
    if let Some(folder) = debug.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let (program, placed_text, debug) = (text(program)?, text(placed)?, text(debug)?);
    let objcopy = Path::new("objcopy");
    shell.run(objcopy, &["--only-keep-debug", program, debug])?;
    let link = format!("--add-gnu-debuglink={debug}");
    shell.run(objcopy, &["--strip-all", &link, program, placed_text])?;
    set_mode(placed, MODE)
}

/// Sets the permissions of a file.
///
/// # Errors
/// An error of the system.
pub(super) fn set_mode(file: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let set = fs::set_permissions(file, fs::Permissions::from_mode(mode));
    set.map_err(|error| format!("{}: {error}", file.display()))
}
