//! The files for those who watch a server fit the table of metrics: the dashboard, the alerts, and the manual's table. With
//! `LARDER_WRITE_FILES` set these tests write what is made from the table; `cargo xtask metrics` sets it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use larder_core::metrics::{MetricKind, metric_families};

mod dashboard;

const ALERTS: &str = "packaging/alerts.yaml";
const DASHBOARD: &str = "packaging/grafana-dashboard.json";
const MANUAL: &str = "docs/manual.md";
const RUNBOOK: &str = "docs/monitoring.md";
const TABLE_HEAD: &str = "| Metric | Kind | Unit | Labels | Meaning |\n|---|---|---|---|---|\n";

fn path(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The file is this text, or becomes it.
fn compare_or_write(file: &str, text: &str) {
    if std::env::var_os("LARDER_WRITE_FILES").is_some() {
        return std::fs::write(path(file), text).unwrap();
    }
    assert!(read(file) == text, "{file} differs from the table of metrics: run `cargo xtask metrics`");
}

/// The manual's table of metrics.
fn table() -> String {
    let mut out = String::from(TABLE_HEAD);
    for family in metric_families() {
        let labels = if family.labels.is_empty() { "–".to_owned() } else { family.labels.join(", ") };
        let (kind, unit) = (family.kind.word(), family.unit.word());
        let _ = writeln!(out, "| `{}` | {kind} | {unit} | {labels} | {} |", family.name, family.help);
    }
    out
}

#[test]
fn the_dashboard_shows_the_table_of_metrics() {
    compare_or_write(DASHBOARD, &dashboard::json());
}

#[test]
fn the_manual_shows_the_table_of_metrics() {
    let manual = read(MANUAL);
    let begin = manual.find(TABLE_HEAD).expect("the manual has a table of metrics");
    let rows = manual[begin..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let end = begin + rows.map(str::len).sum::<usize>();
    compare_or_write(MANUAL, &format!("{}{}{}", &manual[..begin], table(), &manual[end..]));
}

/// The values of a key of the alerts' file, without their quotes.
fn alert_values(key: &str) -> Vec<String> {
    let text = read(ALERTS);
    let values =
        text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key)?.strip_prefix(": "));
    values.map(|value| value.trim_matches('\'').replace("''", "'")).collect()
}

#[test]
fn each_alert_has_a_name_of_its_own_a_next_step_and_a_section_in_the_runbook() {
    let names = alert_values("alert");
    assert!(names.len() > 20, "{names:?}");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let sentences = [alert_values("summary"), alert_values("description")].concat();
    assert_eq!(sentences.len(), 2 * names.len());
    assert!(sentences.iter().all(|sentence| sentence.ends_with('.')));
    let runbook = read(RUNBOOK);
    let links = names.iter().map(|name| format!("{RUNBOOK}#{}", name.to_lowercase()));
    assert_eq!(links.collect::<Vec<_>>(), alert_values("runbook"));
    for name in names {
        assert!(runbook.contains(&format!("\n### {name}\n")), "{RUNBOOK} has no section of {name}");
    }
}

/// The metrics that an expression names.
fn named(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("larder_")).collect()
}

fn is_known(word: &str) -> bool {
    metric_families().any(|family| {
        let is_histogram = family.kind == MetricKind::Histogram;
        match word.strip_prefix(family.name) {
            Some("") => !is_histogram,
            Some("_bucket" | "_sum" | "_count") => is_histogram,
            _ => false,
        }
    })
}

#[test]
fn every_expression_names_metrics_that_exist() {
    let expressions = dashboard::expressions().into_iter().chain(alert_values("expr"));
    let mut seen = 0;
    for expression in expressions {
        let names = named(&expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(is_known(name), "{name} in {expression}");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(!is_known("larder_request_seconds") && !is_known("larder_no_such_total"));
}
