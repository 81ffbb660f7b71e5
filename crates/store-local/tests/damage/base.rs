//! Stopped stores: closed ones, and killed ones.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::dir_snapshot::DirSnapshot;
use super::opened::{OpenedStore, write_all};
use super::plan::{ExpectedData, WritePlan};
use super::runtime;

/// The environment variable with the directory of the child process.
const CHILD: &str = "LARDER_DAMAGE_CHILD";
/// The test that runs as the child process.
const CHILD_TEST: &str = "damage::the_child_that_is_killed";

/// How a store stopped.
#[derive(Debug, Clone, Copy)]
pub enum StoreEnd {
    Closed,
    Killed,
}

/// A stopped store, and its expected data.
pub struct StoppedStore {
    pub tree: DirSnapshot,
    pub expected: ExpectedData,
}

impl StoppedStore {
    pub fn new(ended: StoreEnd) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let (ops, expected) = WritePlan::base();
        match ended {
            StoreEnd::Closed => runtime().block_on(async { write_all(&data, &ops).await.close().await.unwrap() }),
            StoreEnd::Killed => write_and_be_killed(&data),
        }
        Self { tree: DirSnapshot::read(&data).unwrap(), expected }
    }
}

/// Writes everything in a child process and kills it with SIGKILL.
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

/// The file that the child creates when everything is on disk.
fn written(data: &Path) -> std::path::PathBuf {
    data.with_extension("written")
}

/// The child process of [`write_and_be_killed`].
pub fn child() {
    let data = std::env::var_os(CHILD).expect("only the test of a killed store runs this");
    // The store stays open until the kill.
    let _opened: OpenedStore = runtime().block_on(write_all(Path::new(&data), &WritePlan::base().0));
    std::fs::write(written(Path::new(&data)), "").unwrap();
    loop {
        std::thread::park();
    }
}
