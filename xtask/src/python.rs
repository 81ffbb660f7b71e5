//! The Python environment of the product tests: the client `riak`, as it is published, in `.work/venv`.

use std::path::PathBuf;

use crate::shell::{Result, Shell};
use crate::stages::Ended;
use crate::venv::Venv;

/// Where it is.
const VENV: &str = ".work/venv";
/// What the client needs to be installed and to run; it is from 2016 and pins what no longer exists.
const NEEDS: &[&str] = &["setuptools<70", "wheel", "six==1.17.0", "protobuf==3.20.3"];
/// The client.
const CLIENT: &str = "riak==2.7.0";

fn venv() -> Venv {
    Venv { dir: VENV, content: format!("{} {CLIENT}\n", NEEDS.join(" ")) }
}

/// The interpreter that has the client, once it was prepared.
pub(crate) fn interpreter(shell: &Shell) -> Option<PathBuf> {
    let venv = venv();
    venv.is_current(shell).then(|| venv.bin(shell).join("python"))
}

/// Makes the environment, unless it is there.
///
/// # Errors
/// When there is a Python, but the client cannot be installed or imported.
pub(crate) fn prepare(shell: &Shell) -> Result<Ended> {
    let venv = venv();
    if !venv.is_current(shell) {
        if let Err(why) = venv.make(shell) {
            return Ok(Ended::Skipped(format!("no Python with venv, so no test with the Python client ({why})")));
        }
        venv.install(shell, NEEDS)?;
        venv.install(shell, &["--no-build-isolation", "--no-deps", CLIENT])?;
        venv.finish(shell)?;
    }
    let python = venv.bin(shell).join("python");
    let shell = shell
        .clone()
        .with("PYTHONPATH", shell.path("tests/python/shim"))
        .with("PYTHONDONTWRITEBYTECODE", "1")
        .with("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    shell.run(&python, &["-c", "import riak; riak.RiakClient"])?;
    Ok(Ended::Passed)
}
