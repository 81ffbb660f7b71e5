//! The alerts for Prometheus: one table.

use std::fmt::Write as _;

/// The urgency of an alert.
#[derive(Debug, Clone, Copy)]
enum Severity {
    /// Data or service is at risk: someone is woken.
    Critical,
    /// Someone looks at it during the day.
    Warning,
}

/// One alert.
struct AlertRule {
    name: &'static str,
    /// It fires while this has a value.
    expression: &'static str,
    /// Minutes for which it has had one.
    minutes: u32,
    severity: Severity,
    /// The state, as a sentence.
    summary: &'static str,
    /// The next step of the operator.
    advice: &'static str,
}

macro_rules! alerts {
    ($($name:literal, $severity:ident, $minutes:literal, $expression:literal, $summary:literal, $advice:literal;)+) => {
        static ALERTS: &[AlertRule] = &[$(AlertRule {
            name: $name, expression: $expression, minutes: $minutes, severity: Severity::$severity, summary: $summary,
            advice: $advice,
        }),+];
    };
}

alerts! {
    "LarderAbsent", Critical, 5, "absent(larder_info)",
        "No server is scraped.", "Start it, or mend the scrape configuration.";
    "LarderNotReady", Critical, 2, "larder_ready == 0",
        "The server is not ready for requests.", "Ask /health/ready for the reason.";
    "LarderNotWritable", Critical, 1, "larder_engine_writable == 0",
        "The engine takes no writes after a failed write or sync.", "Check the disk, then restart the server.";
    "LarderRequestsFail", Critical, 10, "sum by (instance) (rate(larder_requests_total{outcome=\"failed\"}[5m])) / sum by (instance) (rate(larder_requests_total[5m])) > 0.01",
        "More than 1 % of the requests of Riak's clients fail.", "Read the errors in the log.";
    "LarderS3RequestsFail", Critical, 10, "sum by (instance) (rate(larder_s3_requests_total{outcome=\"failed\"}[5m])) / sum by (instance) (rate(larder_s3_requests_total[5m])) > 0.01",
        "More than 1 % of the S3 requests fail.", "Read the errors in the log.";
    "LarderSlow", Warning, 10, "histogram_quantile(0.99, sum by (instance, le) (rate(larder_request_seconds_bucket{op=~\"get|put\"}[5m]))) > 1",
        "1 % of reads and writes of objects take longer than a second.", "Compare the time in the store with the queue of the committer.";
    "LarderS3Slow", Warning, 10, "histogram_quantile(0.99, sum by (instance, le) (rate(larder_s3_request_seconds_bucket[5m]))) > 2",
        "1 % of the S3 requests take longer than two seconds until their answer begins.", "Compare the time in the store with the disk's.";
    "LarderRestarts", Warning, 0, "resets(larder_process_uptime_seconds[30m]) > 2",
        "The server was started three times in half an hour.", "Read the last lines of the log before each start.";
    "LarderMemberGone", Warning, 5, "larder_members < max_over_time(larder_members[1h])",
        "A gateway that was a member within the last hour is none now.", "Start it again, unless it was taken away.";
    "LarderNodesDown", Critical, 5, "larder_cassandra_nodes_up < max_over_time(larder_cassandra_nodes_up[1h])",
        "A node of the cluster that was connected within the last hour is not.", "Start it again, then repair it.";
    "LarderCertificateEnds", Warning, 60, "larder_tls_certificate_ends_seconds - time() < 14 * 86400",
        "The certificate of the listeners ends in less than two weeks.", "Renew it; the server reads the files again by itself.";
    "LarderDiskAlmostFull", Warning, 10, "larder_disk_free_bytes < ignoring (purpose) (2 * larder_disk_floor_bytes{purpose=\"data\"})",
        "The disk is nearly at the floor below which writes are refused.", "Add space, or remove data.";
    "LarderDiskFull", Critical, 0, "increase(larder_disk_refused_total[5m]) > 0",
        "Writes are refused because the disk is full.", "Add space; deletes still work for a while.";
    "LarderDamagedReads", Critical, 0, "increase(larder_s3_damaged_reads_total[15m]) > 0",
        "Reads of S3 objects met damaged or missing bytes.", "Run larder check on a stopped server, or repair the cluster.";
    "LarderDamagedBlocks", Critical, 0, "increase(larder_cassandra_damaged_blocks_total[15m]) > 0",
        "Blocks of large bodies are missing or damaged in the cluster.", "Repair the keyspaces.";
    "LarderPanicked", Warning, 0, "increase(larder_panicked_total[15m]) > 0",
        "A request or a task ended in a panic, a defect of the server.", "Report the line of the log.";
    "LarderMemoryUsedUp", Warning, 10, "rate(larder_memory_refused_total[5m]) > 0",
        "Requests are refused for want of memory.", "Raise --memory, or add gateways.";
    "LarderDescriptorsUsedUp", Warning, 10, "larder_process_open_fds / larder_process_max_fds > 0.9",
        "Nearly all file descriptors are open.", "Raise the limit of open files.";
    "LarderHeartbeatMissed", Warning, 5, "rate(larder_heartbeat_missed_total[5m]) > 0",
        "Heartbeats of a gateway cannot be written; without them it stops serving.", "Check the cluster from that gateway.";
    "LarderClockSkew", Warning, 5, "rate(larder_clock_skew_total[5m]) > 0",
        "The clocks of gateways or nodes differ.", "Check the time service on each machine.";
    "LarderWritesDowngraded", Warning, 15, "rate(larder_writes_downgraded_total[5m]) + rate(larder_writes_at_any_total[5m]) > 0",
        "Writes reach fewer replicas than they asked for.", "Bring the nodes that are down back, then repair.";
    "LarderWebhooksGivenUp", Warning, 0, "increase(larder_webhooks_given_up_total[15m]) > 0",
        "Notices were dropped that no receiver took within 24 hours.", "Check the receiver.";
    "LarderAuditLost", Critical, 0, "increase(larder_audit_lost_total[15m]) > 0",
        "Lines of the audit log were lost.", "Check the file and the disk of --audit-log.";
}

/// The page that says for each alert what to look at and what to do.
const RUNBOOK: &str = "docs/monitoring.md";

/// The rules as a file for Prometheus.
pub(super) fn yaml() -> String {
    let mut out = String::from(
        "# Alerts for Prometheus. Made from the tables of the server by `cargo xtask metrics`.\ngroups:\n  - name: larder\n    rules:\n",
    );
    for rule in ALERTS {
        let severity = match rule.severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        };
        let _ = write!(
            out,
            "      - alert: {}\n        expr: {}\n        for: {}m\n        labels:\n          severity: {severity}\n        \
             annotations:\n          summary: {}\n          description: {}\n          runbook: '{RUNBOOK}#{}'\n",
            rule.name,
            quoted(rule.expression),
            rule.minutes,
            quoted(rule.summary),
            quoted(rule.advice),
            rule.name.to_lowercase(),
        );
    }
    out
}

/// All expressions.
#[cfg(test)]
pub(super) fn expressions() -> Vec<String> {
    ALERTS.iter().map(|rule| rule.expression.to_owned()).collect()
}

/// A text in YAML's single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_alert_has_a_name_of_its_own_and_a_next_step() {
        let names: BTreeSet<_> = ALERTS.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), ALERTS.len());
        assert!(ALERTS.iter().all(|rule| rule.summary.ends_with('.') && rule.advice.ends_with('.')));
        let runbook = include_str!("../../../../docs/monitoring.md");
        for rule in ALERTS {
            assert!(runbook.contains(&format!("\n### {}\n", rule.name)), "{RUNBOOK} has no section of {}", rule.name);
        }
        assert!(yaml().contains("      - alert: LarderNotReady\n        expr: 'larder_ready == 0'\n        for: 2m\n"));
    }
}
