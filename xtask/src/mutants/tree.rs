//! The mutated copy of the sources. Files that did not change keep their times, so that cargo builds only the others anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{MutatedTree, Mutation};
use crate::shell::{Result, Shell};

/// Where the copy is.
const COPY: &str = "target/mutants";
/// Where it is built: beside the sources themselves, whose dependencies are built already.
const BUILD: &str = "target";
/// The end of the version of the copy's packages: cargo holds packages of one version for the same, and would link mutated
/// ones into programs that are built from the sources.
const VERSION_END: &str = "-mutated";

/// Copies the sources with every mutation applied.
///
/// # Errors
/// A file that cannot be copied, or a mutation that does not apply.
pub(super) fn copy(shell: &Shell, mutations: &[Mutation]) -> Result<MutatedTree> {
    let root = shell.path(COPY);
    let listed = shell.output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let files: BTreeSet<&str> = listed.lines().filter(|path| shell.path(path).is_file()).collect();
    for path in &files {
        let mut bytes = fs::read(shell.path(path)).map_err(|error| format!("{path}: {error}"))?;
        for mutation in mutations.iter().filter(|mutation| mutation.files().contains(path)) {
            let text = String::from_utf8(bytes).map_err(|error| format!("{path}: {error}"))?;
            bytes = mutation.applied(path, text)?.into_bytes();
        }
        if matches!(*path, "Cargo.toml" | "Cargo.lock") {
            let text = String::from_utf8(bytes).map_err(|error| format!("{path}: {error}"))?;
            bytes = with_own_version(&text).into_bytes();
        }
        write_if_changed(&root.join(path), &bytes)?;
    }
    if let Some((mutation, file)) = missing(mutations, &files) {
        return Err(format!("{mutation}.toml: there is no file {file}"));
    }
    remove_others(&root, &root, &files)?;
    Ok(MutatedTree { root, build: shell.path(BUILD) })
}

/// The manifest or the lock of the workspace, whose packages have a version of their own.
fn with_own_version(text: &str) -> String {
    let (mut owned, mut is_ours) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        // A version follows the name of its package, or the head of the table that all packages inherit.
        match line.strip_prefix("version = \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(version) if is_ours => owned.push_str(&format!("version = \"{version}{VERSION_END}\"")),
            _ => owned.push_str(line),
        }
        owned.push('\n');
        is_ours = line == "[workspace.package]" || line.starts_with("name = \"larder-") || line == "name = \"xtask\"";
    }
    owned
}

fn missing<'a>(mutations: &'a [Mutation], files: &BTreeSet<&str>) -> Option<(&'a str, &'a str)> {
    let mut edited = mutations.iter().flat_map(|one| one.files().into_iter().map(|file| (one.name.as_str(), file)));
    edited.find(|(_, file)| !files.contains(file))
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let shown = |error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(shown)?;
    fs::write(path, bytes).map_err(shown)
}

/// Removes files and folders of an earlier copy that the sources no longer have: cargo would build a test of them, or miss the
/// manifest of a crate.
fn remove_others(root: &Path, directory: &Path, files: &BTreeSet<&str>) -> Result<()> {
    let shown = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(shown)? {
        let path = entry.map_err(shown)?.path();
        if path.is_dir() {
            remove_others(root, &path, files)?;
            // It fails for a folder with files, which stays.
            let _ = fs::remove_dir(&path);
        } else if path.strip_prefix(root).is_ok_and(|path| !files.contains(&*path.to_string_lossy())) {
            fs::remove_file(&path).map_err(shown)?;
        }
    }
    Ok(())
}
