//! The Python client of Riak, the published `riak`, in `.work/venv`.

use std::path::PathBuf;

use super::ClientSet;
use super::folder::ClientFolder;
use super::venv::Venv;
use crate::shell::{Result, Shell};

/// The client and its environment.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

/// The folder of the environment.
const VENV: &str = ".work/venv";
/// The packages that install and run the client; its own pins are from 2016 and no longer exist.
const NEEDS: &[&str] = &["setuptools<70", "wheel", "six==1.17.0", "protobuf==3.20.3"];
/// The client.
const CLIENT: &str = "riak==2.7.0";

fn venv() -> Venv {
    Venv { folder: ClientFolder { dir: VENV, content: format!("{} {CLIENT}\n", NEEDS.join(" ")) } }
}

/// The interpreter that has the client.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let venv = venv();
    if venv.is_current(shell) { vec![("LARDER_PYTHON", venv.bin(shell).join("python"))] } else { Vec::new() }
}

/// Makes the environment, unless it exists.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let venv = venv();
    if !venv.is_current(shell) {
        if let Err(why) = venv.make(shell) {
            return Ok(vec![format!("no Python client of Riak (no Python with venv: {why})")]);
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
    Ok(Vec::new())
}
