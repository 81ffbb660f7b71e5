//! A program of ours over the S3 SDK for Go, in `.work/go`: `tests/go`, whose `go.sum` pins the modules. They are kept in
//! `.work/go-modules`; what Go compiled stays in its own cache, so that another working copy builds in a second.

use std::path::{Path, PathBuf};

use super::ClientSet;
use super::folder::{ClientFolder, text_of};
use crate::shell::{Result, Shell, first_line};

/// The program and its modules.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

const DIR: &str = ".work/go";
const MODULES: &str = ".work/go-modules";
/// The folder of the program.
const SOURCE: &str = "tests/go";
const FILES: &[&str] = &["main.go", "go.mod", "go.sum"];
const PROGRAM: &str = "s3-sdk";
/// Settings of the machine must not change the modules or fetch another Go; a folder of modules can be removed.
const ENVIRONMENT: &[(&str, &str)] =
    &[("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly -modcacherw"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")];

/// The program, if it is built.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let current = folder(shell).is_ok_and(|folder| folder.is_current(shell));
    if current { vec![("LARDER_GO_CLIENT", shell.path(DIR).join(PROGRAM))] } else { Vec::new() }
}

fn folder(shell: &Shell) -> Result<ClientFolder> {
    let texts: Result<Vec<String>> = FILES.iter().map(|file| text_of(shell, &format!("{SOURCE}/{file}"))).collect();
    Ok(ClientFolder { dir: DIR, content: texts?.concat() })
}

/// Builds the program, unless it is there.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let folder = folder(shell)?;
    if folder.is_current(shell) {
        return Ok(Vec::new());
    }
    let shell = ENVIRONMENT.iter().fold(shell.clone(), |shell, (name, value)| shell.with_variable(name, value));
    let modules = shell.path(MODULES);
    let shell = shell.with_variable("GOMODCACHE", modules);
    // No Go, one that is too old, or no modules: a machine without the client, not a fault of the program.
    let needs: [&[&str]; 2] = [&["version"], &["-C", SOURCE, "mod", "download"]];
    for args in needs {
        if let Err(why) = shell.output("go", args) {
            return Ok(vec![format!("no S3 SDK for Go ({})", first_line(&why))]);
        }
    }
    folder.clear(&shell)?;
    let program = folder.path(&shell).join(PROGRAM);
    let build = ["-C", SOURCE, "build", "-trimpath", "-buildvcs=false", "-o"];
    shell.run(Path::new("go"), &[&build[..], &[&program.to_string_lossy(), "."]].concat())?;
    folder.finish(&shell)?;
    Ok(Vec::new())
}
