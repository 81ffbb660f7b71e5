//! Measuring: release binaries and the load generator of `benches`.

use std::path::Path;

use larder_cassandra_nodes::{Cluster, Error, Options};

use crate::shell::{Result, Shell};

/// Heap of the node that a run is over, in MiB.
const HEAP_MIB: u32 = 2048;

/// What is measured.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum What {
    /// The key-value operations over HTTP, beside what the disk and the network layer could do at best.
    Kv(Told),
    /// The operations of S3, beside a bare server that streams a file.
    S3(Told),
}

/// What a run is told.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Told {
    /// Short cells and small loads.
    #[arg(long)]
    quick: bool,
    /// What keeps the data: with `cassandra`, gateways over a node that is started for the run, beside a bare driver.
    #[arg(long)]
    engine: Option<String>,
    /// Passed on to the load generator, such as `-- --url http://127.0.0.1:8098`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// One command of the load generator.
struct Command {
    name: &'static str,
    /// Where a full run's report goes.
    report: &'static str,
    /// Where a quick run's goes: it shows that the run works, not how fast.
    quick_report: &'static str,
}

const KV: Command = Command { name: "kv", report: "docs/benchmarks.md", quick_report: ".work/bench-quick.md" };

const CASSANDRA: Command =
    Command { name: "kv", report: "docs/benchmarks-cassandra.md", quick_report: ".work/bench-cassandra-quick.md" };

const S3: Command = Command { name: "s3", report: "docs/benchmarks-s3.md", quick_report: ".work/bench-s3-quick.md" };

/// Builds and measures.
///
/// # Errors
/// When something does not build, or the run fails.
pub(crate) fn bench(shell: &Shell, what: &What) -> Result<()> {
    let (command, told) = match what {
        What::Kv(told) if told.is_over_cassandra() => (CASSANDRA, told),
        What::Kv(told) => (KV, told),
        What::S3(told) => (S3, told),
    };
    shell.cargo(&["build", "--release", "-p", "larder-server", "-p", "larder-bench"])?;
    std::fs::create_dir_all(shell.path(".work")).map_err(|error| format!(".work: {error}"))?;
    let commit = shell.output("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|_| "unknown".to_owned());
    let date = shell.output("date", &["-u", "+%F"]).unwrap_or_else(|_| "unknown".to_owned());
    let node = if told.is_over_cassandra() && !told.names("--cassandra") { Some(node(shell)?) } else { None };
    let mut args = args(&command, told, &commit, &date);
    if let Some(node) = &node {
        args.extend(["--cassandra".to_owned(), node.contact_points()]);
    }
    let bench = shell.path("target/release/larder-bench");
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(apart) = node.as_ref().and_then(apart) else { return shell.run(&bench, &args) };
    shell.output("taskset", &["-a", "-c", "-p", &apart.node, &apart.pid])?;
    let bench = bench.display().to_string();
    args.splice(0..0, ["-c", &apart.others, &bench]);
    shell.run(Path::new("taskset"), &args)
}

/// Which cores the node has, and which everybody else.
struct Apart {
    pid: String,
    node: String,
    others: String,
}

/// Half of the cores for each, as they would have machines of their own: on shared ones a gateway is measured by what its
/// clients take from the node. `None` on a single core.
fn apart(node: &Cluster) -> Option<Apart> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let half = cores / 2;
    let pid = node.nodes().first()?.pid()?.to_string();
    (half > 0).then(|| Apart { pid, node: format!("0-{}", half - 1), others: format!("{half}-{}", cores - 1) })
}

impl Told {
    fn is_over_cassandra(&self) -> bool {
        self.engine.as_deref() == Some("cassandra")
    }

    fn names(&self, flag: &str) -> bool {
        self.rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")))
    }
}

/// A node that ends with this value.
fn node(shell: &Shell) -> Result<Cluster> {
    let said = |error: Error| error.to_string();
    Cluster::prepare().map_err(said)?;
    let dir = shell.path("target/cassandra/bench");
    let _ = std::fs::remove_dir_all(&dir);
    let node = Options::bound(&dir, 1, HEAP_MIB).and_then(Cluster::new).map_err(said)?;
    node.up().map_err(said)?;
    Ok(node)
}

/// What the load generator is told; whatever was passed on comes last and is not contradicted.
fn args(command: &Command, told: &Told, commit: &str, date: &str) -> Vec<String> {
    let report = if told.quick { command.quick_report } else { command.report };
    let mut args = vec![command.name.to_owned()];
    let mut add = |flag: &str, value: &str| {
        if !told.names(flag) {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
    };
    add("--commit", commit);
    add("--date", date);
    add("--out", report);
    if !told.names("--url") {
        add("--larder", "target/release/larder");
    }
    if let Some(engine) = &told.engine {
        args.extend(["--engine".to_owned(), engine.clone()]);
    }
    if told.quick {
        args.push("--quick".to_owned());
    }
    args.extend(told.rest.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_is_not_started_here() {
        let rest = vec!["--url".to_owned(), "http://127.0.0.1:1".to_owned()];
        let quick = args(&KV, &Told { quick: true, engine: None, rest }, "c", "d").join(" ");
        let expected = "kv --commit c --date d --out .work/bench-quick.md --quick --url http://127.0.0.1:1";
        assert_eq!(quick, expected);
        let full = args(&KV, &Told { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert_eq!(full, "kv --commit c --date d --out docs/benchmarks.md --larder target/release/larder");
    }

    #[test]
    fn over_cassandra_the_report_is_another() {
        let told = Told { quick: false, engine: Some("cassandra".into()), rest: Vec::new() };
        assert!(told.is_over_cassandra());
        let full = args(&CASSANDRA, &told, "c", "d").join(" ");
        assert!(
            full.contains("--out docs/benchmarks-cassandra.md ") && full.ends_with(" --engine cassandra"),
            "{full}"
        );
    }

    #[test]
    fn each_command_has_its_own_reports() {
        let full = args(&S3, &Told { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert_eq!(full, "s3 --commit c --date d --out docs/benchmarks-s3.md --larder target/release/larder");
        let quick = args(&S3, &Told { quick: true, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert!(quick.contains("--out .work/bench-s3-quick.md ") && quick.ends_with(" --quick"), "{quick}");
    }
}
