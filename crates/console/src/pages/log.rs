//! The last warnings and errors of this node, slow requests among them, and the last changes and refused requests.

use hyper::StatusCode;
use maud::{Markup, html};

use crate::call::ConsoleCall;
use crate::escaped::shown_lines;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, framed, moment_cell};
use crate::recent_lines::{RecentLine, RecentLines};
use crate::reply::{ConsoleReply, page};

/// `GET /log`.
pub(super) fn log(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let body = html! {
        h1 { "Log of this node" }
        p.unit { "The last lines since it started, the newest first. The whole log is on its standard error, and in the file of --audit-log." }
        (lines("warnings", "Warnings, errors and slow requests", &call.settings.log))
        (lines("changes", "Changes", &call.settings.changes))
        (lines("refusals", "Refused requests", &call.settings.refusals))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Log, "Log", &body)))
}

fn lines(id: &str, title: &str, lines: &RecentLines) -> Markup {
    let lines = lines.newest_first();
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            div.scroll {
                @if lines.is_empty() { p.empty { "None." } }
                @else { table { tbody { @for line in &lines { (row(line)) } } } }
            }
        }
    }
}

fn row(line: &RecentLine) -> Markup {
    let class = match line.kind {
        "ERROR" | "refused" | "failed" => "tag bad",
        "WARN" => "tag changed",
        _ => "tag",
    };
    html! {
        tr {
            (moment_cell(line.at))
            td { span class=(class) { (line.kind) } }
            td.line { (shown_lines(line.text.as_bytes())) }
        }
    }
}
