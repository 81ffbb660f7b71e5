//! The problems of this moment, each with the step that mends it.

use larder_core::{ClusterState, NotReadyReason};
use larder_kv::Gateway;

use crate::live::LiveFigures;

/// Percent of a disk above which there is a warning.
const DISK_WARNING_PERCENT: u8 = 85;
/// Percent of the memory budget above which there is a warning.
const MEMORY_WARNING_PERCENT: u64 = 85;

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthFinding {
    /// Its short name: pages compare the names to see a change.
    pub(super) code: &'static str,
    /// Whether requests fail.
    pub(super) is_severe: bool,
    /// The problem.
    pub(super) problem: String,
    /// The next step.
    pub(super) advice: &'static str,
}

/// The problems that this node knows without a call of the store.
pub(super) fn of_node(gateway: &Gateway, figures: &LiveFigures) -> Vec<HealthFinding> {
    let mut found: Vec<HealthFinding> = gateway.readiness().err().map(not_ready).into_iter().collect();
    if let Some(fault) = gateway.engine().fault() {
        found.push(warning("engine", format!("The engine: {fault}."), "The log has the file and what to do."));
    }
    if let Some(percent) = figures.disk_percent.filter(|percent| *percent >= DISK_WARNING_PERCENT) {
        found.push(warning("disk", format!("The disk is {percent} % full."), DISK_ADVICE));
    }
    if figures.memory_refused > 0 {
        let problem = format!("{} requests found no memory in the last minute.", figures.memory_refused);
        found.push(warning("memory", problem, MEMORY_ADVICE));
    } else if figures.memory_percent >= MEMORY_WARNING_PERCENT {
        let problem = format!("Clients hold {} % of their memory budget.", figures.memory_percent);
        found.push(warning("memory", problem, MEMORY_ADVICE));
    }
    if figures.failed_count > 0 {
        let problem = format!("{} requests failed in the last minute, for no fault of their clients.", figures.failed);
        found.push(warning("failed", problem, "The log of this node names the cause of each failed request."));
    }
    if let Some(lost) = gateway.core.audit().map(|log| log.lost()).filter(|lost| *lost > 0) {
        let advice = "Check that the disk of the audit log has room, and that its folder can be written.";
        found.push(warning("audit", format!("{lost} lines of the audit log are lost."), advice));
    }
    found
}

/// The problems of the cluster.
pub(super) fn of_cluster(cluster: &ClusterState) -> Vec<HealthFinding> {
    let (unreachable, behind) = (cluster.unreachable(), cluster.behind());
    let mut found = Vec::new();
    if !unreachable.is_empty() {
        let problem = format!("Not reached: {}.", unreachable.join(", "));
        let advice = "Look whether it runs. A gateway that was stopped for good leaves this list after ten seconds.";
        found.push(warning("unreachable", problem, advice));
    }
    if !behind.is_empty() {
        let problem = format!("Older catalogue of types: {}.", behind.join(", "));
        let advice = "It takes over a change within a second. If it stays behind, look into its log.";
        found.push(warning("behind", problem, advice));
    }
    found
}

/// The names of the problems: it changes when one comes or goes.
pub(super) fn digest(findings: &[HealthFinding]) -> String {
    findings.iter().map(|finding| finding.code).collect::<Vec<_>>().join(" ")
}

const DISK_ADVICE: &str = "Remove data or add room. Writes are refused while reads go on when it is full.";
const MEMORY_ADVICE: &str = "Raise the setting memory, or lower the number of large requests at a time.";

fn warning(code: &'static str, problem: String, advice: &'static str) -> HealthFinding {
    HealthFinding { code, is_severe: false, problem, advice }
}

fn not_ready(reason: NotReadyReason) -> HealthFinding {
    let (code, advice) = match reason {
        NotReadyReason::Stopping => ("stopping", "It ends its running requests. Use another node."),
        NotReadyReason::ReadOnly => ("read-only", "Look into the log, mend the disk, and restart the server."),
        NotReadyReason::DiskFull => ("disk-full", DISK_ADVICE),
        NotReadyReason::ClockSkewed => ("clock", "Set the clock of this machine, best by NTP."),
        NotReadyReason::StoreUnreachable => ("store", "Check the nodes of the store and the network to them."),
    };
    HealthFinding { code, is_severe: true, problem: format!("This node serves no writes: {reason}."), advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_against_requests_is_severe_and_has_a_next_step() {
        let found = not_ready(NotReadyReason::ClockSkewed);
        assert!(found.is_severe && found.problem.contains("clock") && found.advice.contains("NTP"));
        assert_eq!(digest(&[found, warning("disk", String::new(), DISK_ADVICE)]), "clock disk");
    }
}
