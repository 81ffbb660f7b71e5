//! The node, its process and its machine, as shown beside the metrics.

use std::fs;

use crate::ports::{EngineSample, StoredBytes};

/// The node that shows metrics, and facts that only its server knows.
#[derive(Debug, Clone, Copy)]
pub struct NodeInfo<'a> {
    /// Name of this node.
    pub node: &'a str,
    /// Version of this program.
    pub version: &'a str,
    /// Names of all live members, with or without this one.
    pub members: &'a [String],
    /// Name of the store engine, such as `local`.
    pub engine: &'a str,
    /// The disk that the engine writes to: mount point, size in KiB, percent used; none for an engine elsewhere.
    pub disk: Option<&'a (String, u64, u8)>,
    /// The bytes of the engine's tables and journals.
    pub stored: StoredBytes,
    /// The engine's failure or damage.
    pub fault: Option<&'a str>,
    /// Whether requests are served.
    pub ready: bool,
    /// Version of the catalogue of types and properties in use.
    pub catalogue: u64,
    /// Notices for webhooks that are not delivered yet.
    pub webhooks_waiting: usize,
    /// Those of the bucket that has the most.
    pub webhooks_waiting_most: usize,
    /// The process, from [`ProcessStats::read`].
    pub process: ProcessStats,
    /// Metrics of the engine: name and value. A name may carry labels, as in `larder_engine_cache_bytes{of="blocks"}`; names
    /// alike but for labels must be neighbours. The table of families has a row for each. They are in the Prometheus text alone.
    pub engine_samples: &'a [EngineSample],
}

/// This process according to the operating system. Unreadable values are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessStats {
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Processor time used, in seconds.
    pub cpu_seconds: f64,
    /// Time since its start, in seconds.
    pub uptime_seconds: f64,
    /// Number of threads.
    pub threads: u64,
    /// Number of open file descriptors.
    pub open_fds: u64,
    /// Most open file descriptors allowed.
    pub open_fds_max: u64,
    /// The machine.
    pub host: HostStats,
}

/// This machine according to the operating system. Unreadable values are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostStats {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Available memory in bytes.
    pub memory_available_bytes: u64,
    /// Load of the last 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Number of tasks of all processes.
    pub tasks: u64,
    /// Processors this process may use.
    pub processors: u64,
}

/// `USER_HZ`: unit of times in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessStats {
    /// Reads `/proc` in about 100 µs. It never fails: missing values, as on other systems, are 0.
    #[must_use]
    pub fn read() -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let mut process = Self::parse(&file("/proc/self/status"), &file("/proc/self/stat"), &file("/proc/uptime"));
        process.open_fds = fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
        process.open_fds_max = field(&file("/proc/self/limits"), "Max open files");
        process.host = HostStats::parse(&file("/proc/meminfo"), &file("/proc/loadavg"));
        process.host.processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        process
    }

    fn parse(status: &str, stat: &str, uptime: &str) -> Self {
        // The second field is a process name in brackets, with any characters; split after its last bracket.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |number: usize| number_at(&fields, number - 3) / TICKS_PER_SECOND;
        let up = number_at(&uptime.split_whitespace().collect::<Vec<_>>(), 0);
        Self {
            rss_bytes: field(status, "VmRSS:") * 1024,
            threads: field(status, "Threads:"),
            cpu_seconds: ticks(14) + ticks(15),
            uptime_seconds: ((up - ticks(22)).max(0.0) * TICKS_PER_SECOND).round() / TICKS_PER_SECOND,
            ..Self::default()
        }
    }
}

impl HostStats {
    fn parse(meminfo: &str, loadavg: &str) -> Self {
        let loads: Vec<&str> = loadavg.split_whitespace().collect();
        let tasks = loads.get(3).and_then(|running| running.split('/').nth(1));
        Self {
            memory_bytes: field(meminfo, "MemTotal:") * 1024,
            memory_available_bytes: field(meminfo, "MemAvailable:") * 1024,
            load: [number_at(&loads, 0), number_at(&loads, 1), number_at(&loads, 2)],
            tasks: tasks.and_then(|tasks| tasks.parse().ok()).unwrap_or(0),
            processors: 0,
        }
    }
}

/// The first number after this name at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn number_at(fields: &[&str], index: usize) -> f64 {
    fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_parsed_despite_a_hostile_process_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 1000 0 0";
        let process = ProcessStats::parse("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t9\n", stat, "70.5 1.0\n");
        assert_eq!((process.rss_bytes, process.threads), (12 * 1024, 9));
        assert_eq!((process.cpu_seconds, process.uptime_seconds), (3.0, 60.5));
        let host = HostStats::parse("MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n", "0.5 1.25 2 3/345 99\n");
        assert_eq!((host.memory_bytes, host.memory_available_bytes, host.tasks), (10_240, 4096, 345));
        assert_eq!(host.load, [0.5, 1.25, 2.0]);
    }

    #[test]
    fn unreadable_values_are_zero() {
        assert_eq!(ProcessStats::parse("", "", ""), ProcessStats::default());
        assert_eq!(HostStats::parse("x", "y/z"), HostStats::default());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_can_be_read() {
        let process = ProcessStats::read();
        assert!(process.rss_bytes > 0 && process.threads > 0 && process.open_fds > 0 && process.open_fds_max > 0);
        assert!(process.host.memory_bytes > 0 && process.host.processors > 0 && process.host.tasks > 0);
    }
}
