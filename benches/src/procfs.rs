//! Figures of the kernel about a process and about files: CPU time, resident memory, bytes on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::limits::FILES_MAX;

/// CPU time of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cpu {
    /// Seconds in its own code.
    pub(crate) user: f64,
    /// Seconds in the kernel on its behalf.
    pub(crate) system: f64,
}

impl Cpu {
    /// The sum of both.
    pub(crate) fn seconds(self) -> f64 {
        self.user + self.system
    }

    /// The CPU time since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// The CPU time of a process with all its threads.
///
/// # Errors
///
/// When there is no such process.
pub(crate) fn cpu(pid: u32) -> Result<Cpu> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let (user, system) = stat_ticks(&text).with_context(|| format!("/proc/{pid}/stat: unknown form"))?;
    Ok(Cpu { user: user as f64 / per_second, system: system as f64 / per_second })
}

/// The resident memory of a process in bytes.
///
/// # Errors
///
/// When there is no such process.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kibibytes(&text, "VmRSS:").with_context(|| format!("/proc/{pid}/status: no VmRSS"))
}

/// The peak of a process's resident memory, in bytes.
///
/// # Errors
///
/// When there is no such process.
pub(crate) fn peak_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kibibytes(&text, "VmHWM:").with_context(|| format!("/proc/{pid}/status: no VmHWM"))
}

/// The bytes that a process has sent towards the disk since its start.
///
/// # Errors
///
/// When there is no such process, or the kernel does not count them.
pub(crate) fn written_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let written = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    written.and_then(|count| count.trim().parse().ok()).with_context(|| format!("/proc/{pid}/io: no write_bytes"))
}

/// The bytes of the disk blocks of the files under `root`.
///
/// # Errors
///
/// When the tree cannot be read, or holds too many files.
pub(crate) fn disk_bytes(root: &Path) -> Result<u64> {
    let mut bytes = 0;
    files(root, |_, metadata| bytes += metadata.blocks() * 512)?;
    Ok(bytes)
}

/// Calls `see` with each file under `root`.
///
/// # Errors
///
/// When the tree cannot be read, or holds too many files.
pub(crate) fn files(root: &Path, mut see: impl FnMut(&Path, &fs::Metadata)) -> Result<()> {
    let mut count = 0;
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let entry = entry?;
            // A compaction of the running server may remove a file between the listing and this read.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            count += 1;
            if count > FILES_MAX {
                bail!("{}: more than {FILES_MAX} files", root.display());
            }
            if metadata.is_dir() {
                pending.push(entry.path());
            } else {
                see(&entry.path(), &metadata);
            }
        }
    }
    Ok(())
}

/// The value of a line such as `VmRSS:   123 kB`, in bytes.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|count| count * 1_024)
}

/// User and system ticks; the command's name may hold spaces and brackets.
fn stat_ticks(text: &str) -> Option<(u64, u64)> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_after_any_command_name() {
        let text = "12 (a) (b c) S 1 12 12 0 -1 4194560 100 0 0 0 731 42 0 0 20 0 3 0 99 1 2";
        assert_eq!(stat_ticks(text), Some((731, 42)));
        assert_eq!(stat_ticks("12 (x) S 1"), None);
    }

    #[test]
    fn memory_lines_are_kibibytes() {
        assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmRSS:\t   20 kB\n", "VmRSS:"), Some(20_480));
        assert_eq!(kibibytes("VmPeak:\t 9 kB\n", "VmRSS:"), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(peak_bytes(std::process::id()).unwrap() > 0);
        assert!(cpu(std::process::id()).unwrap().seconds() >= 0.0);
        written_bytes(std::process::id()).unwrap();
    }

    #[test]
    fn files_are_counted_through_directories() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("inner")).unwrap();
        fs::write(root.path().join("inner/file"), vec![1; 10_000]).unwrap();
        assert!(disk_bytes(root.path()).unwrap() >= 10_000);
    }
}
