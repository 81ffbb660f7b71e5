//! `cargo xtask package`: a package for Debian, and an archive for every other Linux.
//!
//! ```text
//! target/release/{larder, kv-admin} ─┬─> symbols cut off, kept in a file beside each program
//!  └─ settings, help ─> man pages ───┼─> one tree, as it is installed ─┬─> larder_VERSION_ARCH.deb  (and its -dbg archive)
//!                       completions ─┘                                 └─> larder-VERSION-ARCH.tar.gz
//! ```
//! The tree is laid out here and `dpkg-deb` packs it: a tool of its own for packages would not make it smaller.

mod completions;
mod manual_pages;
mod program;
mod tree;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::background_job::BackgroundJob;
use crate::shell::{Result, Shell};
use manual_pages::ProgramTables;
use tree::PackageTree;

/// Largest program after its symbols are cut off, in bytes: some percent above what it has, so that a library or a setting that makes it
/// larger at once is seen.
const PROGRAM_BYTES_MAX: u64 = 40_000_000;
const OUTPUT: &str = "target/package";
/// The place in which debuggers and backtraces look for the symbols of a program in `/usr/bin`.
const SYMBOLS: &str = "usr/lib/debug/usr/bin";
/// The words for cargo that build the programs as they ship.
const BUILD: &[&str] = &["build", "--release", "-p", "larder-server", "-p", "larder-kv-admin"];
const PROGRAMS: [&str; 2] = ["larder", "kv-admin"];

/// The words of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct PackageOptions {
    /// The folder of the programs; they are built when it is not given.
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// Install the package on this machine, remove and purge it; needs root.
    #[arg(long)]
    trial: bool,
}

/// Makes the packages, and prints their names and sizes.
///
/// # Errors
/// A program cannot be built, run or packed.
pub(crate) fn package(shell: &Shell, options: &PackageOptions) -> Result<()> {
    let binaries = match &options.binaries {
        Some(folder) => folder.clone(),
        None => {
            build(shell)?;
            shell.path("target/release")
        }
    };
    let Some(package) = make(shell, &binaries, true)? else { return Ok(()) };
    if options.trial { trial::run(shell, &package) } else { Ok(()) }
}

/// Makes the package of these programs, and the archives where they are wanted; `None` without `dpkg-deb`.
///
/// # Errors
/// A program cannot be run or packed.
pub(crate) fn make(shell: &Shell, binaries: &Path, with_archives: bool) -> Result<Option<PathBuf>> {
    let output = shell.path(OUTPUT);
    remove_folder(&output)?;
    let (root, debug) = (output.join("root"), output.join("debug"));
    let tree = PackageTree::new(root.clone());
    for name in PROGRAMS {
        let placed = tree.folder("usr/bin")?.join(name);
        program::split(shell, &binaries.join(name), &placed, &debug.join(format!("{SYMBOLS}/{name}.debug")))?;
        check_size(name, &placed)?;
    }
    let tables = ProgramTables::read(shell, binaries)?;
    tree.lay_out(shell, &tables)?;
    let architecture =
        shell.output("dpkg", &["--print-architecture"]).unwrap_or_else(|_| std::env::consts::ARCH.into());
    let version = env!("CARGO_PKG_VERSION");
    let archive = output.join(format!("larder-{version}-{architecture}.tar.gz"));
    if with_archives {
        pack(shell, &root, &archive)?;
        pack(shell, &debug, &output.join(format!("larder-{version}-{architecture}-symbols.tar.gz")))?;
    }
    if shell.output("dpkg-deb", &["--version"]).is_err() {
        println!("no package for Debian: dpkg-deb is not installed");
        return Ok(None);
    }
    tree.add_control(shell, version, &architecture)?;
    let package = output.join(format!("larder_{version}_{architecture}.deb"));
    shell.run(Path::new("dpkg-deb"), &["--root-owner-group", "--build", text(&root)?, text(&package)?])?;
    println!("{} ({} bytes)", package.display(), bytes_of(&package)?);
    Ok(Some(package))
}

/// Builds the programs as they ship.
///
/// # Errors
/// They do not compile.
pub(crate) fn build(shell: &Shell) -> Result<()> {
    shell.cargo(BUILD)
}

/// Begins the same at the lowest priority.
///
/// # Errors
/// It cannot be started.
pub(crate) fn begin_build(shell: &Shell) -> Result<BackgroundJob> {
    BackgroundJob::cargo(shell, BUILD)
}

/// Checks the sizes of the built programs, where this machine can cut off their symbols.
///
/// # Errors
/// A program is too large.
pub(crate) fn check_sizes(shell: &Shell) -> Result<()> {
    if shell.output("objcopy", &["--version"]).is_err() {
        println!("the sizes of programs are not checked: objcopy is not installed");
        return Ok(());
    }
    let folder = shell.path(OUTPUT);
    fs::create_dir_all(&folder).map_err(|error| format!("{OUTPUT}: {error}"))?;
    for name in PROGRAMS {
        let (program, stripped) = (shell.path("target/release").join(name), folder.join(format!("{name}.stripped")));
        shell.run(Path::new("objcopy"), &["--strip-all", text(&program)?, text(&stripped)?])?;
        check_size(name, &stripped)?;
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    }
}

/// Packs a folder, with its files owned by root, in the order of their names.
fn pack(shell: &Shell, folder: &Path, archive: &Path) -> Result<()> {
    let words = [
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--file",
        text(archive)?,
        "--directory",
        text(folder)?,
        ".",
    ];
    shell.run(Path::new("tar"), &words)
}

fn check_size(name: &str, file: &Path) -> Result<()> {
    let bytes = bytes_of(file)?;
    println!("{name}: {bytes} bytes without symbols");
    if bytes <= PROGRAM_BYTES_MAX { Ok(()) } else { Err(format!("{name} has more than {PROGRAM_BYTES_MAX} bytes")) }
}

fn bytes_of(file: &Path) -> Result<u64> {
    fs::metadata(file).map(|found| found.len()).map_err(|error| format!("{}: {error}", file.display()))
}

/// A path as an argument.
fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))
}
