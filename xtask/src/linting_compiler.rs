//! This program in the place of the compiler: cargo starts it for each crate of ours, and it starts the compiler that also prints lints.
//!
//! A library is compiled twice, for its tests and for other crates. The build of its tests has all of its lines, so only that one
//! is linted: the lints take a third of the time of a compiler.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::shell::{Result, Shell};

/// The compiler with the lints.
const CLIPPY: &str = "clippy-driver";
/// A copy of this program: a build of the workspace replaces the program itself, while it is used.
const COPY: &str = "target/xtask-compiler";

/// Makes the program that cargo starts as the compiler.
///
/// # Errors
/// It cannot be copied.
pub(crate) fn place(shell: &Shell) -> Result<PathBuf> {
    let (copy, shown) = (shell.path(COPY), |error| format!("{COPY}: {error}"));
    let program = std::env::current_exe().and_then(fs::read).map_err(shown)?;
    if fs::read(&copy).is_ok_and(|copied| copied == program) {
        return Ok(copy);
    }
    // Written beside it and renamed: the copy of an earlier run may still be used.
    let new = copy.with_extension("new");
    fs::create_dir_all(shell.path("target")).map_err(shown)?;
    fs::copy(std::env::current_exe().map_err(shown)?, &new).and_then(|_| fs::rename(&new, &copy)).map_err(shown)?;
    Ok(copy)
}

/// Compiles, when cargo started this program for that: its first argument is the compiler. `None` else.
pub(crate) fn run() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let compiler = args.next().filter(|first| Path::new(first).file_stem() == Some(OsStr::new("rustc")))?;
    let args: Vec<_> = args.collect();
    let mut command = if is_linted(&args) { Command::new(CLIPPY) } else { Command::new(&compiler) };
    if is_linted(&args) {
        command.arg(&compiler);
    }
    let failed = command.args(args).exec();
    println!("{CLIPPY}: {failed}");
    Some(ExitCode::FAILURE)
}

/// Whether a build is linted: tests are, and programs; a library without its tests is not.
fn is_linted(args: &[impl AsRef<OsStr>]) -> bool {
    let mut pairs = args.windows(2);
    let is_library = pairs.any(|pair| pair[0].as_ref() == "--crate-type" && pair[1].as_ref() == "lib");
    !is_library || args.iter().any(|arg| arg.as_ref() == "--test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_linted_with_its_tests_alone() {
        assert!(!is_linted(&["--crate-name", "a", "src/lib.rs", "--crate-type", "lib"]));
        assert!(is_linted(&["--crate-name", "a", "src/lib.rs", "--emit=link", "--test"]));
        assert!(is_linted(&["--crate-name", "a", "src/main.rs", "--crate-type", "bin"]));
    }
}
