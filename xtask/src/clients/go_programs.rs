//! Programs that Go builds: one of ours over the S3 SDK for Go, in `.work/go`, and MinIO, in `.work/minio`.
//!
//! The source of the first is `tests/go`, whose `go.sum` pins the modules. MinIO is its module at one version: a soak alone has it,
//! as the source of a move, since it takes minutes to build. Modules are kept in `.work/go-modules`; what Go compiled stays in its
//! own cache, so that another working copy builds in a second.

use std::path::{Path, PathBuf};

use super::ClientSet;
use super::folder::{ClientFolder, text_of};
use crate::shell::{Result, Shell, first_line};

/// The programs.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

const MODULES: &str = ".work/go-modules";
const SDK: &str = ".work/go";
/// The folder of our program.
const SOURCE: &str = "tests/go";
const FILES: &[&str] = &["main.go", "go.mod", "go.sum"];
const SDK_PROGRAM: &str = "s3-sdk";
const MINIO: &str = ".work/minio";
/// Of 2026-02-12. Go checks it against the public database of checksums.
const MINIO_MODULE: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";
const MINIO_PROGRAM: &str = "minio";
/// Settings of the machine must not change the modules or fetch another Go; a folder of modules can be removed.
const ENVIRONMENT: &[(&str, &str)] =
    &[("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly -modcacherw"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")];

/// The programs that are built. MinIO is for a soak alone.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let mut places = Vec::new();
    if sdk_folder(shell).is_ok_and(|folder| folder.is_current(shell)) {
        places.push(("LARDER_GO_CLIENT", shell.path(SDK).join(SDK_PROGRAM)));
    }
    if shell.is_soak() && minio_folder().is_current(shell) {
        places.push(("LARDER_MINIO", shell.path(MINIO).join(MINIO_PROGRAM)));
    }
    places
}

/// Builds the programs that are not there.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let mut missing: Vec<String> = build_sdk(shell)?.into_iter().collect();
    if shell.is_soak() {
        missing.extend(build_minio(shell)?);
    }
    Ok(missing)
}

fn sdk_folder(shell: &Shell) -> Result<ClientFolder> {
    let texts: Result<Vec<String>> = FILES.iter().map(|file| text_of(shell, &format!("{SOURCE}/{file}"))).collect();
    Ok(ClientFolder { dir: SDK, content: texts?.concat() })
}

fn minio_folder() -> ClientFolder {
    ClientFolder { dir: MINIO, content: MINIO_MODULE.to_owned() }
}

/// Builds our program, unless it is there; returns why this machine cannot have it.
fn build_sdk(shell: &Shell) -> Result<Option<String>> {
    let folder = sdk_folder(shell)?;
    if folder.is_current(shell) {
        return Ok(None);
    }
    let shell = with_environment(shell);
    if let Some(why) = unobtainable(&shell, &["-C", SOURCE, "mod", "download"]) {
        return Ok(Some(format!("no S3 SDK for Go ({why})")));
    }
    folder.clear(&shell)?;
    let program = folder.path(&shell).join(SDK_PROGRAM);
    let build = ["-C", SOURCE, "build", "-trimpath", "-buildvcs=false", "-o"];
    shell.run(Path::new("go"), &[&build[..], &[&program.to_string_lossy(), "."]].concat())?;
    folder.finish(&shell)?;
    Ok(None)
}

/// Builds MinIO, unless it is there; returns why this machine cannot have it.
fn build_minio(shell: &Shell) -> Result<Option<String>> {
    let folder = minio_folder();
    if folder.is_current(shell) {
        return Ok(None);
    }
    let shell = with_environment(shell);
    if let Some(why) = unobtainable(&shell, &["mod", "download", MINIO_MODULE]) {
        return Ok(Some(format!("no MinIO ({why})")));
    }
    folder.clear(&shell)?;
    let programs = folder.path(&shell);
    let shell = shell.with_variable("GOBIN", programs);
    shell.run(Path::new("go"), &["install", "-trimpath", "-ldflags=-s -w", MINIO_MODULE])?;
    folder.finish(&shell)?;
    Ok(None)
}

/// No Go, one that is too old, or no modules: a machine without the program, not a fault of the program.
fn unobtainable(shell: &Shell, download: &[&str]) -> Option<String> {
    let needs: [&[&str]; 2] = [&["version"], download];
    needs.iter().find_map(|args| shell.output("go", args).err()).map(|why| first_line(&why).to_owned())
}

/// The shell in which Go builds without the settings of the machine, with modules in a folder of ours.
fn with_environment(shell: &Shell) -> Shell {
    let modules = shell.path(MODULES);
    let shell = ENVIRONMENT.iter().fold(shell.clone(), |shell, (name, value)| shell.with_variable(name, value));
    shell.with_variable("GOMODCACHE", modules)
}
