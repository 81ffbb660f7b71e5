//! Measuring: release binaries and the load generator of `benches`.

use crate::shell::{Result, Shell};

/// Where a full run's report goes.
const REPORT: &str = "docs/benchmarks.md";
/// Where a quick run's goes: it shows that the run works, not how fast.
const QUICK_REPORT: &str = ".work/bench-quick.md";

/// What is measured.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum What {
    /// The key-value operations over HTTP, beside what the disk and the network layer could do at best.
    Kv {
        /// Short cells and small loads.
        #[arg(long)]
        quick: bool,
        /// Passed on to the load generator, such as `-- --url http://127.0.0.1:8098`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
}

/// Builds and measures.
///
/// # Errors
/// When something does not build, or the run fails.
pub(crate) fn bench(shell: &Shell, what: &What) -> Result<()> {
    let What::Kv { quick, rest } = what;
    shell.cargo(&["build", "--release", "-p", "larder-server", "-p", "larder-bench"])?;
    std::fs::create_dir_all(shell.path(".work")).map_err(|error| format!(".work: {error}"))?;
    let commit = shell.output("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|_| "unknown".to_owned());
    let date = shell.output("date", &["-u", "+%F"]).unwrap_or_else(|_| "unknown".to_owned());
    let args = kv_args(*quick, rest, &commit, &date);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    shell.run(&shell.path("target/release/larder-bench"), &args)
}

/// What the load generator is told; whatever was passed on comes last and is not contradicted.
fn kv_args(quick: bool, rest: &[String], commit: &str, date: &str) -> Vec<String> {
    let report = if quick { QUICK_REPORT } else { REPORT };
    let given = |flag: &str| rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")));
    let mut args = vec!["kv".to_owned()];
    let mut add = |flag: &str, value: &str| {
        if !given(flag) {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
    };
    add("--commit", commit);
    add("--date", date);
    add("--out", report);
    if !given("--url") {
        add("--larder", "target/release/larder");
    }
    if quick {
        args.push("--quick".to_owned());
    }
    args.extend(rest.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_is_not_started_here() {
        let rest = ["--url".to_owned(), "http://127.0.0.1:1".to_owned()];
        let args = kv_args(true, &rest, "c", "d").join(" ");
        let expected = "kv --commit c --date d --out .work/bench-quick.md --quick --url http://127.0.0.1:1";
        assert_eq!(args, expected);
        let args = kv_args(false, &[], "c", "d").join(" ");
        assert_eq!(args, "kv --commit c --date d --out docs/benchmarks.md --larder target/release/larder");
    }
}
