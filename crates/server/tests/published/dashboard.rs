//! The dashboard for Grafana: a first row that says whether all is well, then a panel for each family of metrics, in rows by the
//! part of the server that measures it.

use larder_core::metrics::{MetricFamily, MetricKind, MetricUnit, metric_families};
use serde_json::{Value, json};

/// Width and height of a panel, in Grafana's grid of 24 columns.
const PANEL: (usize, usize) = (8, 7);
const COLUMNS: usize = 24 / PANEL.0;
const OVERVIEW_HEIGHT: usize = 4;
/// The families of a title: those whose names begin so. The first that fits counts.
const ROWS: &[(&str, &[&str])] = &[
    ("Riak requests", &["larder_request", "larder_object", "larder_siblings", "larder_context"]),
    ("S3 requests", &["larder_s3_"]),
    (
        "Node and members",
        &["larder_info", "larder_ready", "larder_members", "larder_catalogue", "larder_heartbeat", "larder_clock"],
    ),
    ("Engine and disk", &["larder_engine_", "larder_disk_"]),
    ("Calls to the store", &["larder_store_"]),
    ("Cassandra", &["larder_cassandra_", "larder_reads_downgraded", "larder_writes_"]),
    ("Memory of clients", &["larder_memory_"]),
    ("Move from another store", &["larder_move_"]),
    ("Process", &["larder_process_", "larder_panicked", "larder_tls_"]),
    ("Events", &["larder_"]),
];

/// The number from which on a figure is alarming.
enum Alarm {
    Below(f64),
    From(f64),
}

/// The first row says whether all is well: each figure is red or green.
const OVERVIEW: &[(&str, &str, &str, Alarm)] = &[
    ("ready", "min(larder_ready{instance=~\"$instance\"})", "bool_yes_no", Alarm::Below(1.0)),
    ("writable", "min(larder_engine_writable{instance=~\"$instance\"})", "bool_yes_no", Alarm::Below(1.0)),
    (
        "failed requests",
        "(sum(rate(larder_requests_total{instance=~\"$instance\", outcome=\"failed\"}[5m])) + \
         sum(rate(larder_s3_requests_total{instance=~\"$instance\", outcome=\"failed\"}[5m]))) / \
         (sum(rate(larder_requests_total{instance=~\"$instance\"}[5m])) + \
         sum(rate(larder_s3_requests_total{instance=~\"$instance\"}[5m])) > 0)",
        "percentunit",
        Alarm::From(0.01),
    ),
    (
        "99 % of gets and puts within",
        "histogram_quantile(0.99, sum by (le) (rate(larder_request_seconds_bucket{instance=~\"$instance\", op=~\"get|put\"}[5m])))",
        "s",
        Alarm::From(1.0),
    ),
    (
        "room above the disk's floor",
        "min(larder_disk_free_bytes{instance=~\"$instance\"} - ignoring (purpose) larder_disk_floor_bytes{instance=~\"$instance\", purpose=\"data\"})",
        "bytes",
        Alarm::Below(0.0),
    ),
    (
        "restarts in an hour",
        "max(resets(larder_process_uptime_seconds{instance=~\"$instance\"}[1h]))",
        "short",
        Alarm::From(1.0),
    ),
];

/// The dashboard as JSON, with a line end.
pub(super) fn json() -> String {
    let mut panels = Vec::new();
    let (mut id, mut top) = (0, 0);
    let width = 24 / OVERVIEW.len();
    for (index, (title, expression, unit, alarm)) in OVERVIEW.iter().enumerate() {
        id += 1;
        panels.push(json!({
            "id": id, "type": "stat", "title": title, "datasource": "${source}",
            "fieldConfig": {"defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": alarm.steps()}}, "overrides": []},
            "options": {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}},
            "gridPos": {"h": OVERVIEW_HEIGHT, "w": width, "x": index * width, "y": top},
            "targets": [{"refId": "A", "expr": expression}],
        }));
    }
    top += OVERVIEW_HEIGHT;
    for (title, families) in rows() {
        id += 1;
        panels.push(json!({"id": id, "type": "row", "title": title, "collapsed": false, "panels": [], "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}}));
        top += 1;
        for (index, family) in families.iter().enumerate() {
            id += 1;
            let (x, y) = (index % COLUMNS * PANEL.0, top + index / COLUMNS * PANEL.1);
            panels.push(panel(family, id, json!({"h": PANEL.1, "w": PANEL.0, "x": x, "y": y})));
        }
        top += families.len().div_ceil(COLUMNS) * PANEL.1;
    }
    let variable = |name: &str, query: &str| json!({"name": name, "type": "query", "datasource": "${source}", "query": query, "refresh": 2, "includeAll": true, "multi": true, "current": {}});
    let dashboard = json!({
        "title": "Larder", "uid": "larder", "tags": ["larder"], "schemaVersion": 39, "editable": true, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus", "current": {}},
            variable("instance", "label_values(larder_info, instance)"),
        ]},
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

impl Alarm {
    /// Grafana's colours, each from its number on.
    fn steps(&self) -> Value {
        let (first, then, from) = match self {
            Self::Below(bound) => ("red", "green", bound),
            Self::From(bound) => ("green", "red", bound),
        };
        json!([{"color": first, "value": null}, {"color": then, "value": from}])
    }
}

/// The rows with their families, in the order of the table.
fn rows() -> Vec<(&'static str, Vec<MetricFamily>)> {
    let family_row = |family: &MetricFamily| {
        ROWS.iter().position(|(_, prefixes)| prefixes.iter().any(|prefix| family.name.starts_with(prefix)))
    };
    let families = |row: usize| metric_families().filter(|family| family_row(family) == Some(row)).collect();
    ROWS.iter().enumerate().map(|(row, (title, _))| (*title, families(row))).collect()
}

fn panel(family: &MetricFamily, id: usize, place: Value) -> Value {
    let targets: Vec<Value> = targets(family)
        .into_iter()
        .zip('A'..)
        .map(|((expression, legend), letter)| json!({"refId": letter.to_string(), "expr": expression, "legendFormat": legend}))
        .collect();
    let title = family.name.trim_start_matches("larder_").trim_end_matches("_total").replace('_', " ");
    json!({
        "id": id, "type": "timeseries", "title": title, "description": family.help, "datasource": "${source}",
        "fieldConfig": {"defaults": {"unit": unit(family), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "gridPos": place, "targets": targets,
    })
}

/// The expressions of a family, each with its legend.
fn targets(family: &MetricFamily) -> Vec<(String, String)> {
    let (name, labels) = (family.name, family.labels);
    let by = labels.join(", ");
    let legend: Vec<String> = labels.iter().map(|label| format!("{{{{{label}}}}}")).collect();
    let legend = if labels.is_empty() { "{{instance}}".to_owned() } else { legend.join(" ") };
    let here = "{instance=~\"$instance\"}";
    match family.kind {
        MetricKind::Counter if labels.is_empty() => vec![(format!("rate({name}{here}[$__rate_interval])"), legend)],
        MetricKind::Counter => vec![(format!("sum by ({by}) (rate({name}{here}[$__rate_interval]))"), legend)],
        MetricKind::Gauge if labels.is_empty() || name == "larder_info" => {
            vec![(format!("{name}{here}"), "{{instance}}".to_owned())]
        }
        MetricKind::Gauge if family.unit == MetricUnit::Seconds => {
            vec![(format!("max by ({by}) ({name}{here})"), legend)]
        }
        MetricKind::Gauge => vec![(format!("sum by ({by}) ({name}{here})"), legend)],
        MetricKind::Histogram => [("0.5", "median"), ("0.99", "99 %")]
            .map(|(quantile, word)| {
                let rate = format!("sum by ({by}, le) (rate({name}_bucket{here}[$__rate_interval]))");
                (format!("histogram_quantile({quantile}, {rate})"), format!("{legend} {word}"))
            })
            .to_vec(),
    }
}

/// Grafana's unit of a panel.
fn unit(family: &MetricFamily) -> &'static str {
    match (family.unit, family.kind) {
        (MetricUnit::Seconds, MetricKind::Counter) => "percentunit",
        (MetricUnit::Seconds, _) => "s",
        (MetricUnit::Bytes, MetricKind::Counter) => "Bps",
        (MetricUnit::Bytes, _) => "bytes",
        (MetricUnit::Count, MetricKind::Counter) => "ops",
        (MetricUnit::Count | MetricUnit::Truth, _) => "short",
    }
}

/// All expressions.
pub(super) fn expressions() -> Vec<String> {
    let panels = metric_families().flat_map(|family| targets(&family)).map(|(expression, _)| expression);
    OVERVIEW.iter().map(|(_, expression, ..)| (*expression).to_owned()).chain(panels).collect()
}

#[test]
fn every_family_has_one_panel() {
    let shown: usize = rows().iter().map(|(_, families)| families.len()).sum();
    assert_eq!(shown, metric_families().count());
    let dashboard: Value = serde_json::from_str(&json()).unwrap();
    assert_eq!(dashboard["panels"].as_array().unwrap().len(), shown + ROWS.len() + OVERVIEW.len());
}
