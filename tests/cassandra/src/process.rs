//! The process of a node, identified by its id and by its command line: the kernel may reuse an id.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result};

/// A running process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeProcess {
    id: Pid,
    /// Whether a signal has stopped it.
    pub(crate) is_stopped: bool,
}

impl NodeProcess {
    /// The process whose id is in `file`, if it still runs and has the argument `mark`.
    pub(crate) fn of(file: &Path, mark: &str) -> Option<Self> {
        let number: i32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        let id = Pid::from_raw(number)?;
        let line = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let is_ours = line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
        let state = state(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)?;
        (is_ours && !matches!(state, 'Z' | 'X')).then_some(Self { id, is_stopped: matches!(state, 'T' | 't') })
    }

    /// The id.
    pub(crate) fn id(self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Sends a signal; a process that has just ended is no error.
    pub(crate) fn send(self, signal: Signal) -> Result<()> {
        match kill_process(self.id, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(Error::failed(format!("process {}: {error}", self.id()))),
        }
    }
}

/// The state letter after the name in `/proc/PID/stat`; the name may hold any characters.
fn state(line: &str) -> Option<char> {
    line.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_id_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        assert!(NodeProcess::of(&file, "-Dnot=ours").is_none());
        let own = std::env::args().next().unwrap();
        let found = NodeProcess::of(&file, &own).unwrap();
        assert!(!found.is_stopped && found.id().unsigned_abs() == std::process::id());
        assert!(NodeProcess::of(&dir.path().join("none"), &own).is_none());
    }

    #[test]
    fn the_name_of_a_process_may_hold_any_characters() {
        assert_eq!(state("12 (a) Z ) T 1 2"), Some('T'));
    }
}
