//! A file system of a given size in memory, mounted for one test and unmounted with its value.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::Home;

/// The variable that marks the process in its own user namespace.
const UNSHARED: &str = "LARDER_TESTS_UNSHARED";
/// Bytes of one write that takes space.
const FILL_BYTES: usize = 64 * 1024;

/// A mounted tmpfs.
#[derive(Debug)]
pub struct Tmpfs {
    dir: TempDir,
}

impl Tmpfs {
    /// Whether the test of this name goes on in this process. Without the right to mount, this runs the test in a user
    /// namespace and returns `false` after it passed. Without namespaces it prints that the test is skipped.
    ///
    /// # Panics
    /// When the test fails in its namespace.
    #[must_use]
    pub fn is_possible_here(test: &str) -> bool {
        if rustix::process::geteuid().is_root() || std::env::var_os(UNSHARED).is_some() {
            return Self::mounted(1).is_some_and(drop_and_true) || skipped(test);
        }
        let can_unshare = Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success());
        if !can_unshare {
            return skipped(test);
        }
        let program = std::env::current_exe().expect("the test has a path");
        let mut again = Command::new("unshare");
        again.arg("-Urm").arg(program).args(["--exact", test, "--nocapture"]).env(UNSHARED, "1");
        let output = again.output().expect("unshare runs");
        let text = String::from_utf8_lossy(&output.stdout);
        // A name that no test has would pass without a test.
        let has_passed = output.status.success() && text.contains("1 passed");
        assert!(has_passed, "{test} failed in its namespace: {text}{}", String::from_utf8_lossy(&output.stderr));
        false
    }

    /// Mounts a tmpfs of `mib` MiB.
    ///
    /// # Panics
    /// When the mount is refused, although [`Self::is_possible_here`].
    #[must_use]
    pub fn new(mib: u64) -> Self {
        Self::mounted(mib).expect("a tmpfs can be mounted")
    }

    fn mounted(mib: u64) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("larder-disk-").tempdir().ok()?;
        let size = format!("size={mib}m,mode=0700");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path());
        command.output().is_ok_and(|output| output.status.success()).then_some(Self { dir })
    }

    /// Changes its size; it must not hold more.
    pub fn resize(&self, mib: u64) {
        let status = Command::new("mount").arg("-o").arg(format!("remount,size={mib}m")).arg(self.path()).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "a disk that holds {} bytes is not resized to {mib} MiB",
            self.used()
        );
    }

    /// A home whose data folder is on this disk.
    #[must_use]
    pub fn home(&self) -> Home {
        let (home, data) = (Home::new(), self.path().join("data"));
        fs::create_dir(&data).expect("an empty disk has room for a folder");
        std::os::unix::fs::symlink(&data, home.data()).expect("a home is empty");
        home
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Bytes that are free.
    #[must_use]
    pub fn free(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.path()).expect("it is mounted");
        disk.f_bavail * disk.f_frsize
    }

    /// Bytes that are used.
    #[must_use]
    pub fn used(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.path()).expect("it is mounted");
        (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    }

    /// Takes space with a file outside the data until at most `free` bytes are free; returns whether it took any.
    pub fn fill_until_free(&self, free: u64) -> bool {
        let mut file = File::options().create(true).append(true).open(self.outside()).expect("a file is made");
        let mut taken = false;
        while let Some(left) = self.free().checked_sub(free).filter(|left| *left > 0) {
            let bytes = vec![7; FILL_BYTES.min(usize::try_from(left).unwrap_or(FILL_BYTES))];
            match file.write(&bytes) {
                Ok(0) => break,
                Ok(_) => taken = true,
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{}: {error}", self.outside().display()),
            }
        }
        taken
    }

    /// Whether the file outside the data holds space.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.outside().exists()
    }

    /// Removes the file outside the data.
    pub fn release(&self) {
        let _ = fs::remove_file(self.outside());
    }

    fn outside(&self) -> PathBuf {
        self.path().join("outside")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn skipped(test: &str) -> bool {
    eprintln!("skipped: {test}: neither `mount -t tmpfs` nor `unshare -Urm` is allowed here");
    false
}

fn drop_and_true(disk: Tmpfs) -> bool {
    drop(disk);
    true
}
