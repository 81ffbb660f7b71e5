//! The process of a node, known by its id, and by what it was started with: an id may be given to another.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result};

/// A process that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    id: Pid,
    /// Whether it is held by a signal.
    pub(crate) is_held: bool,
}

impl Process {
    /// The one whose id is in `file`, when it still runs and has `mark` on its command line.
    pub(crate) fn of(file: &Path, mark: &str) -> Option<Self> {
        let number: i32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        let id = Pid::from_raw(number)?;
        let line = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let is_ours = line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
        let state = state(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)?;
        (is_ours && !matches!(state, 'Z' | 'X')).then_some(Self { id, is_held: matches!(state, 'T' | 't') })
    }

    /// Its id.
    pub(crate) fn id(self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Sends it a signal; that it has just ended is no error.
    pub(crate) fn send(self, signal: Signal) -> Result<()> {
        match kill_process(self.id, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(Error::failed(format!("process {}: {error}", self.id()))),
        }
    }
}

/// The letter behind the name in the kernel's line; the name may hold anything.
fn state(line: &str) -> Option<char> {
    line.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_id_is_not_taken_for_ours() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        assert!(Process::of(&file, "-Dnot=ours").is_none());
        let own = std::env::args().next().unwrap();
        let found = Process::of(&file, &own).unwrap();
        assert!(!found.is_held && found.id().unsigned_abs() == std::process::id());
        assert!(Process::of(&dir.path().join("none"), &own).is_none());
    }

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        assert_eq!(state("12 (a) Z ) T 1 2"), Some('T'));
    }
}
