//! The Python environment of the product tests: the published client `riak` in `.work/venv`.

use std::path::PathBuf;

use crate::report::StageEnd;
use crate::shell::{Result, Shell};
use crate::venv::Venv;

/// The folder of the environment.
const VENV: &str = ".work/venv";
/// The packages that install and run the client; its own pins are from 2016 and no longer exist.
const NEEDS: &[&str] = &["setuptools<70", "wheel", "six==1.17.0", "protobuf==3.20.3"];
/// The client.
const CLIENT: &str = "riak==2.7.0";

fn venv() -> Venv {
    Venv { dir: VENV, content: format!("{} {CLIENT}\n", NEEDS.join(" ")) }
}

/// The interpreter that has the client, after [`prepare`].
pub(crate) fn interpreter(shell: &Shell) -> Option<PathBuf> {
    let venv = venv();
    venv.is_current(shell).then(|| venv.bin(shell).join("python"))
}

/// Makes the environment, unless it exists.
///
/// # Errors
/// When there is a Python, but the client cannot be installed or imported.
pub(crate) fn prepare(shell: &Shell) -> Result<StageEnd> {
    let venv = venv();
    if !venv.is_current(shell) {
        if let Err(why) = venv.make(shell) {
            return Ok(StageEnd::Skipped(format!("no Python with venv, so no test with the Python client ({why})")));
        }
        venv.install(shell, NEEDS)?;
        venv.install(shell, &["--no-build-isolation", "--no-deps", CLIENT])?;
        venv.finish(shell)?;
    }
    let python = venv.bin(shell).join("python");
    let shell = shell
        .clone()
        .with_variable("PYTHONPATH", shell.path("tests/python/shim"))
        .with_variable("PYTHONDONTWRITEBYTECODE", "1")
        .with_variable("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    shell.run(&python, &["-c", "import riak; riak.RiakClient"])?;
    Ok(StageEnd::Passed)
}
