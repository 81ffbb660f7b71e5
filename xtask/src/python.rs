//! The Python environment of the product tests: the client `riak`, as it is published, in `.work/venv`.

use std::fs;
use std::path::PathBuf;

use crate::shell::{Result, Shell};
use crate::stages::Ended;

/// Where it is.
const VENV: &str = ".work/venv";
/// What the client needs to be installed and to run; it is from 2016 and pins what no longer exists.
const NEEDS: &[&str] = &["setuptools<70", "wheel", "six==1.17.0", "protobuf==3.20.3"];
/// The client.
const CLIENT: &str = "riak==2.7.0";

/// The interpreter that has the client, once it was prepared.
pub(crate) fn interpreter(shell: &Shell) -> Option<PathBuf> {
    let python = shell.path(VENV).join("bin/python");
    is_current(shell).then_some(python)
}

/// Makes the environment, unless it is there.
///
/// # Errors
/// When there is a Python, but the client cannot be installed or imported.
pub(crate) fn prepare(shell: &Shell) -> Result<Ended> {
    if !is_current(shell) {
        if let Err(why) = shell.output("python3", &["--version"]) {
            return Ok(Ended::Skipped(format!("no python3, so no test with the Python client ({})", first_line(&why))));
        }
        if let Err(why) = shell.output("python3", &["-m", "venv", "--clear", VENV]) {
            return Ok(Ended::Skipped(format!("no venv, so no test with the Python client ({})", first_line(&why))));
        }
        install(shell)?;
    }
    let python = shell.path(VENV).join("bin/python");
    let shell = shell
        .clone()
        .with("PYTHONPATH", shell.path("tests/python/shim"))
        .with("PYTHONDONTWRITEBYTECODE", "1")
        .with("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    shell.run(&python, &["-c", "import riak; riak.RiakClient"])?;
    Ok(Ended::Passed)
}

fn install(shell: &Shell) -> Result<()> {
    let python = shell.path(VENV).join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    shell.run(&python, &[&pip, NEEDS].concat())?;
    shell.run(&python, &[&pip[..], &["--no-build-isolation", "--no-deps", CLIENT]].concat())?;
    fs::write(stamp(shell), stamp_text()).map_err(|error| format!("{VENV}: {error}"))
}

fn is_current(shell: &Shell) -> bool {
    fs::read_to_string(stamp(shell)).is_ok_and(|text| text == stamp_text())
}

fn stamp(shell: &Shell) -> PathBuf {
    shell.path(VENV).join("larder-stamp")
}

fn stamp_text() -> String {
    format!("{} {CLIENT}\n", NEEDS.join(" "))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
