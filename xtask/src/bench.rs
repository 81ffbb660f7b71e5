//! Measuring: release binaries and the load generator of `benches`.

use std::path::Path;

use larder_cassandra_nodes::{CassandraCluster, ClusterOptions, Error};

use crate::clients;
use crate::shell::{Result, Shell};

/// Heap of the node that a run uses, in MiB.
const HEAP_MIB: u32 = 2048;

/// The file with the ratios of two builds.
const BESIDE_REPORT: &str = ".work/bench-beside.md";

/// The set of operations that a run measures.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// The key-value operations over HTTP, beside the best rates of the disk and of the network layer.
    Kv(BenchArgs),
    /// Each face beside its limits: bare frames, bare hyper, a bare group commit, sendfile, and Redis.
    Pb(BenchArgs),
    /// The operations of S3, beside a bare server that sends a file.
    S3(BenchArgs),
    /// One tenant's requests while another one attacks: webhooks, scripts, policies, log-ins.
    Tenants(BenchArgs),
}

/// The options of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BenchArgs {
    /// Short cells and small loads.
    #[arg(long)]
    quick: bool,
    /// The engine that holds the data. With `cassandra`, gateways use a node that is started for the run, beside a bare driver.
    #[arg(long)]
    engine: Option<String>,
    /// Passed on to the load generator, such as `-- --url http://127.0.0.1:8098`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// A command of the load generator and its reports.
struct LoadCommand {
    name: &'static str,
    /// The path of a full run's report.
    report: &'static str,
    /// The path of a quick run's report, which shows that the run works, not how fast.
    quick_report: &'static str,
}

const KV: LoadCommand = LoadCommand { name: "kv", report: "docs/benchmarks.md", quick_report: ".work/bench-quick.md" };

const CASSANDRA: LoadCommand =
    LoadCommand { name: "kv", report: "docs/benchmarks-cassandra.md", quick_report: ".work/bench-cassandra-quick.md" };

const PB: LoadCommand =
    LoadCommand { name: "pb", report: "docs/benchmarks-pb.md", quick_report: ".work/bench-pb-quick.md" };

const S3: LoadCommand =
    LoadCommand { name: "s3", report: "docs/benchmarks-s3.md", quick_report: ".work/bench-s3-quick.md" };

const TENANTS: LoadCommand =
    LoadCommand { name: "tenants", report: "docs/benchmarks-tenants.md", quick_report: ".work/bench-tenants-quick.md" };

/// Builds the programs and measures them.
///
/// # Errors
/// When a program does not build, the run fails, or the engine does not have what it measures.
pub(crate) fn bench(shell: &Shell, what: &BenchCommand) -> Result<()> {
    let (command, options) = match what {
        BenchCommand::Kv(options) if options.is_over_cassandra() => (CASSANDRA, options),
        BenchCommand::Kv(options) => (KV, options),
        BenchCommand::Pb(options) => (PB, options),
        BenchCommand::S3(options) => (S3, options),
        BenchCommand::Tenants(options) => (TENANTS, options),
    };
    shell.cargo(&["build", "--release", "-p", "larder-server", "-p", "larder-bench"])?;
    std::fs::create_dir_all(shell.path(".work")).map_err(|error| format!(".work: {error}"))?;
    let commit = shell.output("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|_| "unknown".to_owned());
    let date = shell.output("date", &["-u", "+%F"]).unwrap_or_else(|_| "unknown".to_owned());
    let node = if options.is_over_cassandra() && !options.has_flag("--cassandra") { Some(node(shell)?) } else { None };
    let mut args = args(&command, options, &commit, &date);
    if let Some(node) = &node {
        args.extend(["--cassandra".to_owned(), node.contact_points()]);
    }
    if command.name == PB.name && !options.has_flag("--redis") && !options.has_flag("--beside") {
        match clients::redis(shell) {
            Ok(redis) => {
                let redis = redis.strip_prefix(shell.root()).unwrap_or(&redis);
                args.extend(["--redis".to_owned(), redis.display().to_string()]);
            }
            Err(why) => println!("bench: no Redis to compare with ({why})"),
        }
    }
    let bench = shell.path("target/release/larder-bench");
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(split) = node.as_ref().and_then(core_split) else { return shell.run(&bench, &args) };
    shell.output("taskset", &["-a", "-c", "-p", &split.node, &split.pid])?;
    let bench = bench.display().to_string();
    args.splice(0..0, ["-c", &split.others, &bench]);
    shell.run(Path::new("taskset"), &args)
}

/// The cores of the node, and the cores of all other processes.
struct CoreSplit {
    pid: String,
    node: String,
    others: String,
}

/// Half of the cores for each, in place of a machine for each: on shared cores the clients take the node's time, and the
/// gateway would be measured by that. `None` on a single core.
fn core_split(node: &CassandraCluster) -> Option<CoreSplit> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let half = cores / 2;
    let pid = node.nodes().first()?.pid()?.to_string();
    (half > 0).then(|| CoreSplit { pid, node: format!("0-{}", half - 1), others: format!("{half}-{}", cores - 1) })
}

impl BenchArgs {
    fn is_over_cassandra(&self) -> bool {
        self.engine.as_deref() == Some("cassandra")
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")))
    }
}

/// Starts a node that ends with this value.
fn node(shell: &Shell) -> Result<CassandraCluster> {
    let text = |error: Error| error.to_string();
    CassandraCluster::prepare().map_err(text)?;
    let dir = shell.path("target/cassandra/bench");
    let _ = std::fs::remove_dir_all(&dir);
    let node = ClusterOptions::bound(&dir, 1, HEAP_MIB).and_then(CassandraCluster::new).map_err(text)?;
    node.up().map_err(text)?;
    Ok(node)
}

/// The arguments of the load generator. Those that were passed on come last; no default repeats their flags.
fn args(command: &LoadCommand, options: &BenchArgs, commit: &str, date: &str) -> Vec<String> {
    let report = match options.quick {
        _ if options.has_flag("--beside") => BESIDE_REPORT,
        true => command.quick_report,
        false => command.report,
    };
    let mut args = vec![command.name.to_owned()];
    let mut add = |flag: &str, value: &str| {
        if !options.has_flag(flag) {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
    };
    add("--commit", commit);
    add("--date", date);
    add("--out", report);
    if !options.has_flag("--url") {
        add("--larder", "target/release/larder");
    }
    if let Some(engine) = &options.engine {
        args.extend(["--engine".to_owned(), engine.clone()]);
    }
    if options.quick {
        args.push("--quick".to_owned());
    }
    args.extend(options.rest.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_url_is_not_started() {
        let rest = vec!["--url".to_owned(), "http://127.0.0.1:1".to_owned()];
        let quick = args(&KV, &BenchArgs { quick: true, engine: None, rest }, "c", "d").join(" ");
        let expected = "kv --commit c --date d --out .work/bench-quick.md --quick --url http://127.0.0.1:1";
        assert_eq!(quick, expected);
        let rest = vec!["--beside".to_owned(), "old".to_owned()];
        let beside = args(&KV, &BenchArgs { quick: true, engine: None, rest }, "c", "d").join(" ");
        assert!(beside.contains("--out .work/bench-beside.md"), "ratios are no benchmark: {beside}");
        let full = args(&KV, &BenchArgs { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert_eq!(full, "kv --commit c --date d --out docs/benchmarks.md --larder target/release/larder");
    }

    #[test]
    fn a_run_over_cassandra_has_its_own_report() {
        let options = BenchArgs { quick: false, engine: Some("cassandra".into()), rest: Vec::new() };
        assert!(options.is_over_cassandra());
        let full = args(&CASSANDRA, &options, "c", "d").join(" ");
        assert!(
            full.contains("--out docs/benchmarks-cassandra.md ") && full.ends_with(" --engine cassandra"),
            "{full}"
        );
    }

    #[test]
    fn each_command_has_its_own_reports() {
        let full = args(&S3, &BenchArgs { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert_eq!(full, "s3 --commit c --date d --out docs/benchmarks-s3.md --larder target/release/larder");
        let pb = args(&PB, &BenchArgs { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        let tenants = args(&TENANTS, &BenchArgs { quick: false, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert!(tenants.contains("--out docs/benchmarks-tenants.md "), "{tenants}");
        assert_eq!(pb, "pb --commit c --date d --out docs/benchmarks-pb.md --larder target/release/larder");
        let quick = args(&S3, &BenchArgs { quick: true, engine: None, rest: Vec::new() }, "c", "d").join(" ");
        assert!(quick.contains("--out .work/bench-s3-quick.md ") && quick.ends_with(" --quick"), "{quick}");
    }
}
