//! Files for those who watch a server, all made from the table of metrics: the manual's table, a dashboard for Grafana, and alerts
//! for Prometheus. `larder metrics` prints them; `packaging/` has them as files.

use std::fmt::Write as _;

use larder_core::metrics::metric_families;

mod alerts;
mod dashboard;

/// A form of the table of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsForm {
    /// A table in Markdown, as in the manual.
    Markdown,
    /// A dashboard for Grafana, as JSON.
    Grafana,
    /// Rules of alerts for Prometheus, as YAML.
    Alerts,
}

/// The table of metrics in this form.
#[must_use]
pub fn metrics_in(form: MetricsForm) -> String {
    match form {
        MetricsForm::Markdown => markdown(),
        MetricsForm::Grafana => dashboard::json(),
        MetricsForm::Alerts => alerts::yaml(),
    }
}

fn markdown() -> String {
    let mut out = String::from("| Metric | Kind | Unit | Labels | Meaning |\n|---|---|---|---|---|\n");
    for family in metric_families() {
        let labels = if family.labels.is_empty() { "–".to_owned() } else { family.labels.join(", ") };
        let (kind, unit) = (family.kind.word(), family.unit.word());
        let _ = writeln!(out, "| `{}` | {kind} | {unit} | {labels} | {} |", family.name, family.help);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_and_the_manual_show_the_table_as_it_is() {
        let manual = include_str!("../../../../docs/manual.md");
        let again = "run `cargo xtask metrics`";
        assert!(manual.contains(&markdown()), "docs/manual.md has another table of metrics: {again}");
        let dashboard = include_str!("../../../../packaging/grafana-dashboard.json");
        assert!(dashboard == dashboard::json(), "packaging/grafana-dashboard.json differs: {again}");
        let alerts = include_str!("../../../../packaging/alerts.yaml");
        assert!(alerts == alerts::yaml(), "packaging/alerts.yaml differs: {again}");
    }

    /// The families that an expression names.
    fn named(expression: &str) -> Vec<&str> {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("larder_")).collect()
    }

    #[test]
    fn every_expression_names_metrics_that_exist() {
        let is_known = |word: &str| {
            metric_families().any(|family| {
                let histogram = family.kind == larder_core::metrics::MetricKind::Histogram;
                let rest = word.strip_prefix(family.name);
                rest == Some("") && !histogram || histogram && matches!(rest, Some("_bucket" | "_sum" | "_count"))
            })
        };
        let expressions = dashboard::expressions().into_iter().chain(alerts::expressions());
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
}
