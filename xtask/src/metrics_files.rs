//! `cargo xtask metrics`: writes the files that are made from the server's table of metrics.

use crate::shell::{Result, Shell};

/// Writes the dashboard and the manual's table, and checks the alerts with `promtool` where it is installed. The test that
/// compares these files with the table writes them.
///
/// # Errors
/// The test does not build, a file cannot be written, or `promtool` finds a fault.
pub(crate) fn metrics(shell: &Shell) -> Result<()> {
    let test = ["test", "-p", "larder-server", "--test", "server_tests", "published"];
    shell.clone().with_variable("LARDER_WRITE_FILES", "1").cargo(&test)?;
    check_rules(shell)
}

/// Checks the alerts as Prometheus reads them. Without `promtool` it says so.
///
/// # Errors
/// The rules have a fault.
pub(crate) fn check_rules(shell: &Shell) -> Result<()> {
    if shell.output("promtool", &["--version"]).is_err() {
        println!("alerts not checked: promtool is not installed");
        return Ok(());
    }
    shell.run(std::path::Path::new("promtool"), &["check", "rules", "packaging/alerts.yaml"])
}
