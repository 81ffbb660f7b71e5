//! The machine of a run.

use std::fs;
use std::path::Path;

use crate::procfs;

/// The facts of a machine that a reader needs to judge the figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineInfo {
    /// The processor's name.
    pub(crate) processor: String,
    /// Cores this process may use.
    pub(crate) cores: usize,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The file system under the data, and its device.
    pub(crate) file_system: String,
}

impl MachineInfo {
    /// Reads the facts of this machine; unknown ones are `unknown`.
    pub(crate) fn read(data: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let path = fs::canonicalize(data).unwrap_or_else(|_| data.to_path_buf());
        Self {
            processor: processor(&text("/proc/cpuinfo")).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: procfs::kibibytes(&text("/proc/meminfo"), "MemTotal:").unwrap_or(0),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&text("/proc/mounts"), &path).unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

/// Kind and device of the mount that holds `path`: the longest one that is a prefix of it.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, point, _)| path.starts_with(point))
        .max_by_key(|(_, point, _)| point.len())
        .map(|(device, _, kind)| format!("{kind} on {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_holds_the_data() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/x")).unwrap(), "tmpfs on tmpfs");
        assert_eq!(file_system(mounts, Path::new("/work")).unwrap(), "ext4 on /dev/vda");
    }

    #[test]
    fn the_processor_is_named_once() {
        assert_eq!(processor("processor: 0\nmodel name\t: Xeon  \nmodel name: b"), Some("Xeon"));
        assert_eq!(processor(""), None);
    }
}
