//! `redis-server` as a child process: on loopback, without persistence but its log, which it syncs before each answer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::child::ChildProcess;
use crate::endpoint::Endpoint;
use crate::server::wait_for_frame;
use crate::wire::WireProtocol;

/// A running `redis-server`.
pub(crate) struct RedisServer {
    child: ChildProcess,
    /// Its address.
    pub(crate) endpoint: Endpoint,
    /// Its version, as it prints it.
    pub(crate) version: String,
}

impl RedisServer {
    /// Starts `binary` with `appendfsync always` and its data in `data`, which is made. Everything else is its default.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not answer.
    pub(crate) fn start(binary: &Path, data: &Path) -> Result<Self> {
        std::fs::create_dir_all(data)?;
        let endpoint = Endpoint::free()?;
        let log = File::create(data.join("log"))?;
        let port = endpoint.address.port().to_string();
        let mut command = command(binary);
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(data);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = ChildProcess::start(&mut command)?;
        wait_for_frame(&mut child, &endpoint, WireProtocol::Redis)?;
        Ok(Self { child, endpoint, version: version(binary)? })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// The binary with an empty environment but the libraries that were unpacked beside it.
fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear();
    if let Ok(libraries) = std::env::join_paths(libraries(binary)) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// The folders in `../lib`, where a package has the libraries of each architecture.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let Some(lib) = binary.parent().and_then(Path::parent).map(|root| root.join("lib")) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(lib).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu")).collect()
}

/// The version: the word `v=7.0.15` of a line.
fn version(binary: &Path) -> Result<String> {
    let output = command(binary).arg("--version").output().with_context(|| binary.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("unknown").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_libraries_are_found() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib/systemd"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let found = libraries(&root.path().join("usr/bin/redis-server"));
        assert_eq!(found, [root.path().join("usr/lib/x86_64-linux-gnu")]);
    }
}
