//! The published S3 clients: a Python environment in `.work/s3-venv`, Debian's packages unpacked in `.work/deb`; also
//! strace, which records the file operations of a server, where the machine has none, and Prometheus's `promtool`.

use std::fs;
use std::path::{Path, PathBuf};

use super::ClientSet;
use super::folder::ClientFolder;
use super::venv::Venv;
use crate::shell::{Result, Shell, first_line};

/// The clients and the tracer.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

const VENV: &str = ".work/s3-venv";
const DEB: &str = ".work/deb";
/// The packages that pip installs.
const PYTHON: &[&str] = &["boto3==1.44.5", "awscli==1.46.3", "s3cmd==2.4.0", "minio==7.2.20"];
/// Debian's packages, a program of each that needs no libraries of its own, and the variable that holds its path for the tests.
const DEBIAN: &[(&str, &str, &str)] = &[
    ("rclone", "rclone", "LARDER_RCLONE"),
    ("restic", "restic", "LARDER_RESTIC"),
    ("prometheus", "promtool", "LARDER_PROMTOOL"),
];
/// The tracer, the variable that holds its path for the tests, and its library.
const TRACER: (&str, &str, &str) = ("strace", "LARDER_STRACE", "libunwind8");
/// Debian's packages of `redis-server`, which the benchmark compares with: its libraries, its programs, and its name.
const REDIS: &[&str] = &["libatomic1", "libjemalloc2", "liblzf1", "redis-tools", "redis-server"];
/// The variable that holds the folder of the Python environment's programs.
const PYTHON_VARIABLE: &str = "LARDER_S3_PYTHON";

/// Installs the missing clients.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    let venv = venv();
    if !venv.is_current(shell) {
        match venv.make(shell) {
            Ok(()) => {
                venv.install(shell, PYTHON)?;
                venv.finish(shell)?;
            }
            Err(why) => missing.push(format!("no Python clients of S3 ({why})")),
        }
    }
    for (package, name, _) in DEBIAN {
        if !program(shell, name).is_file()
            && let Err(why) = unpack(shell, package)
        {
            missing.push(format!("no {name} ({why})"));
        }
    }
    let (tracer, _, library) = TRACER;
    if shell.output(tracer, &["--version"]).is_err()
        && !program(shell, tracer).is_file()
        && let Err(why) = unpack(shell, library).and_then(|()| unpack(shell, tracer))
    {
        missing.push(format!("no {tracer} ({why})"));
    }
    Ok(missing)
}

/// The path of each client that is installed.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let venv = venv();
    let python = venv.is_current(shell).then(|| (PYTHON_VARIABLE, venv.bin(shell)));
    let (tracer, variable, _) = TRACER;
    let programs = DEBIAN.iter().map(|(_, name, variable)| (*name, *variable)).chain([(tracer, variable)]);
    let programs = programs.map(|(name, variable)| (variable, program(shell, name)));
    python.into_iter().chain(programs.filter(|(_, program)| program.is_file())).collect()
}

/// The path of `redis-server`, which is installed when missing.
///
/// # Errors
/// When a package cannot be downloaded or unpacked.
pub(crate) fn redis(shell: &Shell) -> Result<PathBuf> {
    let server = program(shell, "redis-server");
    if !server.is_file() {
        REDIS.iter().try_for_each(|package| unpack(shell, package))?;
    }
    Ok(server)
}

fn program(shell: &Shell, package: &str) -> PathBuf {
    shell.path(DEB).join("usr/bin").join(package)
}

fn venv() -> Venv {
    Venv { folder: ClientFolder { dir: VENV, content: PYTHON.join(" ") } }
}

/// Downloads a package and unpacks it; nothing is installed on the machine.
fn unpack(shell: &Shell, package: &str) -> Result<()> {
    let dir = shell.path(DEB);
    fs::create_dir_all(&dir).map_err(|error| format!("{DEB}: {error}"))?;
    if let Err(why) = download(shell, package) {
        // A fresh machine has no list of packages yet.
        shell.output("apt-get", &["update", "--quiet"]).map_err(|_| first_line(&why).to_owned())?;
        download(shell, package).map_err(|why| first_line(&why).to_owned())?;
    }
    let file = downloaded(&dir, package).ok_or_else(|| "it was not downloaded".to_owned())?;
    let (file, dir) = (file.to_string_lossy(), dir.to_string_lossy());
    shell.output("dpkg", &["-x", &file, &dir]).map(drop).map_err(|why| first_line(&why).to_owned())
}

fn download(shell: &Shell, package: &str) -> Result<()> {
    let script = format!("cd {DEB} && apt-get download --quiet {package}");
    shell.output("sh", &["-c", &script]).map(drop)
}

fn downloaded(dir: &Path, package: &str) -> Option<PathBuf> {
    let files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let prefix = format!("{package}_");
    files
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
}
