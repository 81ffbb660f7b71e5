//! Directories that were stopped in good order, and such as a kill leaves.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::opened::{Opened, write_all};
use super::plan::{Expected, Plan};
use super::runtime;
use super::tree::Tree;

/// The environment of the child that is killed: where it writes.
const CHILD: &str = "LARDER_DAMAGE_CHILD";
/// The test that is this child.
const CHILD_TEST: &str = "the_child_that_is_killed";

/// How a store ended.
#[derive(Debug, Clone, Copy)]
pub enum Ended {
    Closed,
    Killed,
}

/// A stopped store, and what it holds.
pub struct Base {
    pub tree: Tree,
    pub expected: Expected,
}

impl Base {
    pub fn new(ended: Ended) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let (ops, expected) = Plan::base();
        match ended {
            Ended::Closed => runtime().block_on(async { write_all(&data, &ops).await.close().await.unwrap() }),
            Ended::Killed => write_and_be_killed(&data),
        }
        Self { tree: Tree::read(&data).unwrap(), expected }
    }
}

/// Writes everything in a process that then ends as `kill -9` ends it.
fn write_and_be_killed(data: &Path) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", CHILD_TEST, "--ignored", "--nocapture"]).env(CHILD, data).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let written = written(data);
    while !written.exists() {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the child ended before it was killed: {status}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(&mut child);
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What the child makes when everything is on disk.
fn written(data: &Path) -> std::path::PathBuf {
    data.with_extension("written")
}

/// The other side of [`write_and_be_killed`].
pub fn child() {
    let data = std::env::var_os(CHILD).expect("only the test of a killed store runs this");
    // It is open until the kill.
    let _opened: Opened = runtime().block_on(write_all(Path::new(&data), &Plan::base().0));
    std::fs::write(written(Path::new(&data)), "").unwrap();
    loop {
        std::thread::park();
    }
}
