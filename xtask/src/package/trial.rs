//! A trial of the package: installed, looked at, removed and purged on this machine.

use std::path::Path;

use super::text;
use crate::shell::{Result, Shell};

/// Files that an installed package has.
const PLACED: &[&str] = &[
    "/usr/bin/larder",
    "/usr/bin/kv-admin",
    "/usr/lib/systemd/system/larder.service",
    "/etc/larder/larder.toml",
    "/usr/share/man/man8/larder.8.gz",
    "/usr/share/bash-completion/completions/kv-admin",
    "/var/lib/larder",
];
/// Files that are gone after a removal, and after a purge.
const REMOVED: &[&str] = &["/usr/bin/larder", "/usr/lib/systemd/system/larder.service"];
const PURGED: &[&str] = &["/etc/larder"];
const DATA: &str = "/var/lib/larder";

/// Installs, removes and purges the package. It needs root, and a machine without this package and its data.
///
/// # Errors
/// A step fails, or leaves the machine in another state than it should.
pub(super) fn run(shell: &Shell, package: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err("a trial of the package needs root".to_owned());
    }
    let dpkg = Path::new("dpkg");
    if Path::new(DATA).exists() || shell.output("dpkg", &["--status", "larder"]).is_ok() {
        return Err(format!("the package is installed here, or its data is in {DATA}: no trial"));
    }
    shell.run(dpkg, &["--install", text(package)?])?;
    let judged = look(shell);
    shell.run(dpkg, &["--remove", "larder"])?;
    let removed = expect_gone(REMOVED).and_then(|()| expect_there(&["/etc/larder/larder.toml", DATA]));
    shell.run(dpkg, &["--purge", "larder"])?;
    let purged = expect_gone(PURGED).and_then(|()| expect_there(&[DATA]));
    // It is empty: no server ran here. The user goes, too, as this trial made it.
    std::fs::remove_dir(DATA).map_err(|error| format!("{DATA}: {error}"))?;
    shell.run(Path::new("userdel"), &["larder"])?;
    judged.and(removed).and(purged)
}

fn look(shell: &Shell) -> Result<()> {
    expect_there(PLACED)?;
    let owner = shell.output("stat", &["--format", "%U %a", DATA])?;
    if owner != "larder 700" {
        return Err(format!("{DATA} belongs to {owner}"));
    }
    let version = shell.output("/usr/bin/larder", &["--version"])?;
    println!("installed: {version}");
    if shell.output("systemd-analyze", &["--version"]).is_ok() {
        let unit = "/usr/lib/systemd/system/larder.service";
        // The threshold counts tenths.
        shell.output("systemd-analyze", &["security", "--offline=true", "--threshold=30", unit])?;
    }
    Ok(())
}

fn expect_there(files: &[&str]) -> Result<()> {
    match files.iter().find(|file| !Path::new(file).exists()) {
        Some(missing) => Err(format!("{missing} is missing")),
        None => Ok(()),
    }
}

fn expect_gone(files: &[&str]) -> Result<()> {
    match files.iter().find(|file| Path::new(file).exists()) {
        Some(left) => Err(format!("{left} was left")),
        None => Ok(()),
    }
}
