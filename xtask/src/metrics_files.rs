//! `cargo xtask metrics`: writes the files that are made from the server's table of metrics.

use std::fs;

use crate::shell::{Result, Shell};

/// The manual, and the beginning of its table.
const MANUAL: (&str, &str) = ("docs/manual.md", "| Metric | Kind | Unit | Labels | Meaning |");
/// Files, and the form in which the server prints each.
const FILES: &[(&str, &str)] = &[("packaging/grafana-dashboard.json", "grafana"), ("packaging/alerts.yaml", "alerts")];

/// Writes the dashboard, the alerts and the manual's table, and checks the alerts with `promtool` where it is installed.
///
/// # Errors
/// The server does not build, a file cannot be written, or `promtool` finds a fault.
pub(crate) fn metrics(shell: &Shell) -> Result<()> {
    shell.cargo(&["build", "-p", "larder-server", "--bin", "larder"])?;
    let larder = shell.path("target/debug/larder").display().to_string();
    let printed = |form: &str| shell.output(&larder, &["metrics", "--form", form]).map(|text| text + "\n");
    for (file, form) in FILES {
        fs::write(shell.path(file), printed(form)?).map_err(|error| format!("{file}: {error}"))?;
    }
    let (manual, head) = MANUAL;
    let failed = |error: std::io::Error| format!("{manual}: {error}");
    let text = fs::read_to_string(shell.path(manual)).map_err(failed)?;
    let replaced = with_table(&text, head, &printed("markdown")?).ok_or(format!("{manual} has no line {head}"))?;
    fs::write(shell.path(manual), replaced).map_err(failed)?;
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

/// The text with another table in place of the one that begins with this line.
fn with_table(text: &str, head: &str, table: &str) -> Option<String> {
    let begin = text.find(head)?;
    let rows = text[begin..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let end = begin + rows.map(str::len).sum::<usize>();
    Some(format!("{}{table}{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_replaced_and_the_text_around_it_stays() {
        let text = "a\n| h |\n|---|\n| old |\n\nb\n| other |\n";
        assert_eq!(with_table(text, "| h |", "| h |\n| new |\n").unwrap(), "a\n| h |\n| new |\n\nb\n| other |\n");
        assert_eq!(with_table(text, "| none |", ""), None);
    }
}
