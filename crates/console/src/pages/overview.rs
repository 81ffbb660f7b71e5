//! The overview: problems, requests, disk, memory and members.

use std::time::Duration;

use hyper::StatusCode;
use larder_core::{ClusterState, NotReadyReason};
use larder_kv::Gateway;
use maud::{Markup, html};
use tokio::time::timeout;

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, framed};
use crate::live::{LINE_HEIGHT, LINE_WIDTH, LiveFigures};
use crate::reply::{ConsoleReply, page};

/// How long the page waits for the members: it has to show the problem of a store that does not answer.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /`.
pub(super) async fn overview(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let gateway = call.gateway();
    let figures = LiveFigures::from_history(&call.feed.history());
    let cluster = timeout(MEMBERS_TIMEOUT, gateway.members().cluster()).await.ok().and_then(Result::ok);
    let node_findings = node_findings(gateway, &figures);
    let digest = digest(&node_findings);
    let problems = [node_findings, cluster.as_ref().map(cluster_findings).unwrap_or_default()].concat();
    let body = html! {
        div data-live-page data-findings=(digest) {
            div.head {
                h1 { "Overview" }
                span.live data-live-state role="status" { "not live" }
            }
            (problem_list(&problems))
            (tiles(&figures))
            (charts(&figures))
            (stores(call, &figures))
            (members(cluster.as_ref()))
        }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Overview, "Overview", &body)))
}

fn problem_list(problems: &[HealthFinding]) -> Markup {
    html! {
        section aria-labelledby="problems" {
            h2.quiet id="problems" { "Problems now" }
            @if problems.is_empty() {
                p.well { "Nothing is wrong." }
            }
            @for one in problems {
                div.problem.severe[one.is_severe] { p { strong { (one.problem) } } p { (one.advice) } }
            }
        }
    }
}

fn tiles(figures: &LiveFigures) -> Markup {
    let tiles = [
        ("Key-value", "kv-rate", "requests a second"),
        ("S3", "s3-rate", "requests a second"),
        ("p50", "median", "key-value, 1 min"),
        ("p99", "p99", "key-value, 1 min"),
        ("Running", "active", "requests now"),
        ("Failed", "failed", "last minute"),
        ("Refused", "refused", "last minute"),
    ];
    let texts = figures.texts();
    let text = |name: &str| texts.iter().find(|(one, _)| *one == name).map_or("", |(_, text)| text);
    html! {
        section aria-labelledby="requests" {
            h2.quiet id="requests" { "Requests" }
            dl.tiles {
                @for (title, name, unit) in tiles {
                    div { dt { (title) } dd { span.figure data-live=(name) { (text(name)) } span.unit { (unit) } } }
                }
            }
        }
    }
}

fn charts(figures: &LiveFigures) -> Markup {
    html! {
        div.charts {
            (chart("Requests a second", "rate", &figures.rate_line, &figures.rate_peak))
            (chart("99 % of key-value requests within", "p99", &figures.p99_line, &figures.p99_peak))
        }
    }
}

/// A line with its scale: the greatest value at the top, 0 at the bottom, the last two minutes from left to right.
fn chart(title: &str, name: &str, points: &str, peak: &str) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            div.plot {
                div.scale { span data-live={ (name) "-peak" } { (peak) } span { "0" } }
                svg role="img" aria-label=(title) preserveAspectRatio="none" viewBox={ "0 0 " (LINE_WIDTH) " " (LINE_HEIGHT) } {
                    line.base x1="0" x2=(LINE_WIDTH) y1="4" y2="4" {}
                    line.base x1="0" x2=(LINE_WIDTH) y1=(LINE_HEIGHT - 4) y2=(LINE_HEIGHT - 4) {}
                    polyline points=(points) data-live-line=(name) {}
                }
            }
            div.times { span { "two minutes ago" } span { "now" } }
        }
    }
}

fn stores(call: &ConsoleCall<'_>, figures: &LiveFigures) -> Markup {
    let engine = call.gateway().engine().name().to_owned();
    html! {
        section aria-labelledby="resources" {
            h2.quiet id="resources" { "Disk and memory" }
            dl.rows {
                div { dt { "Engine" } dd { (engine) } }
                div {
                    dt { "Disk" }
                    dd {
                        span data-live="disk" { (figures.disk) }
                        @if let Some(percent) = figures.disk_percent {
                            meter data-live-meter="disk" min="0" max="100" low="70" high="85" optimum="0" value=(percent)
                                aria-label="Disk in use" {}
                        }
                    }
                }
                div { dt { "Tables and journals" } dd { span data-live="stored" { (figures.stored) } } }
                div {
                    dt { "Memory of requests" }
                    dd {
                        span data-live="memory" { (figures.memory) }
                        meter data-live-meter="memory" min="0" max="100" low="70" high="85" optimum="0"
                            value=(figures.memory_percent) aria-label="Memory budget in use" {}
                    }
                }
            }
        }
    }
}

fn members(cluster: Option<&ClusterState>) -> Markup {
    html! {
        section aria-labelledby="members" {
            h2.quiet id="members" { "Members" }
            @match cluster {
                None => { div.problem.severe { p { "The store did not name the members within two seconds." } } }
                Some(cluster) => {
                    div.scroll {
                        table {
                            thead { tr { th { "Gateway" } th { "Address" } th { "Version" } th { "State" } } }
                            tbody {
                                @for state in &cluster.members {
                                    tr {
                                        td { (shown(state.member.row.node.as_bytes())) }
                                        td { (shown(state.member.row.address.as_bytes())) }
                                        td { (shown(state.member.row.version.as_bytes())) }
                                        td { (state_tag(state.up)) }
                                    }
                                }
                                @for node in &cluster.nodes {
                                    tr {
                                        td { "Node of the store" }
                                        td { (shown(node.address.as_bytes())) }
                                        td {}
                                        td { (state_tag(node.up)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn state_tag(is_up: bool) -> Markup {
    html! { @if is_up { span.tag.good { "up" } } @else { span.tag.bad { "down" } } }
}

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
pub(super) fn node_findings(gateway: &Gateway, figures: &LiveFigures) -> Vec<HealthFinding> {
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
    if let Some(lost) = gateway.context().audit().map(|log| log.lost()).filter(|lost| *lost > 0) {
        let advice = "Check that the disk of the audit log has room, and that its folder can be written.";
        found.push(warning("audit", format!("{lost} lines of the audit log are lost."), advice));
    }
    found
}

/// The problems of the cluster.
pub(super) fn cluster_findings(cluster: &ClusterState) -> Vec<HealthFinding> {
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
