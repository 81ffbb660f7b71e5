//! The move from another store: the report that `kv-admin move status` prints, and the orders that lose nothing.

use hyper::StatusCode;
use larder_moving::{MoveRefusal, MoveReportLine, MoveStatus};
use larder_rows::{MoveWish, Timestamp};
use maud::{Markup, html};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};

/// `GET /move`.
pub(super) async fn show(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let status = call.settings.mover.status().await?;
    let now = call.gateway().context().now();
    let body = html! {
        (trail(&[(Href::to("/jobs"), "Jobs".to_owned())], "Move"))
        h1 { "Move from another store" }
        @match &status {
            None => p.empty { "No move was started. " code { "kv-admin move start" } " begins one." }
            Some(status) => {
                p { (shown(status.title().as_bytes())) }
                @if call.may_change() && !status.has_ended() { (orders(call, status)) }
                (report(status, now))
            }
        }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Jobs, "Move", &body)))
}

/// The move on the page of jobs: its state, and the link to its report.
pub(super) fn summary(status: Option<&MoveStatus>) -> Markup {
    html! {
        section aria-labelledby="move" {
            h2 id="move" { "Move from another store" }
            @match status {
                None => p.empty { "No move was started." }
                Some(status) => p {
                    (shown(status.title().as_bytes())) ", phase " (status.progress.phase.name()) ". "
                    a href="/move" { "Report" }
                }
            }
        }
    }
}

fn report(status: &MoveStatus, now: Timestamp) -> Markup {
    let lines = status.report(now);
    html! {
        dl.rows {
            @for group in lines.chunk_by(|one, next| one.name == next.name) {
                div {
                    dt { (group.first().map_or("", |line| line.name)) }
                    @for MoveReportLine { text, .. } in group { dd { (shown(text.as_bytes())) } }
                }
            }
        }
    }
}

fn orders(call: &ConsoleCall<'_>, status: &MoveStatus) -> Markup {
    let hold = match status.order.wish {
        MoveWish::Pause => ("/move/resume", "Resume"),
        MoveWish::Run | MoveWish::Verify | MoveWish::Repair | MoveWish::Back | MoveWish::Finish | MoveWish::Cancel => {
            ("/move/pause", "Pause")
        }
    };
    html! {
        div.actions {
            @for (path, name) in [hold, ("/move/verify", "Verify")] {
                form method="post" action=(path) {
                    (csrf(call.session))
                    button type="submit" { (name) }
                }
            }
        }
    }
}

/// `POST /move/pause`, `/move/resume` and `/move/verify`.
pub(super) async fn change(call: &ConsoleCall<'_>, wish: MoveWish) -> Result<ConsoleReply, ConsoleFault> {
    let status = call.settings.mover.wish(wish, false).await.map_err(|refusal| match refusal {
        MoveRefusal::Refused(reason) => {
            ConsoleFault { status: StatusCode::CONFLICT, ..ConsoleFault::sentence(&reason) }
        }
        MoveRefusal::Failed(error) => error.into(),
    })?;
    let done = match status.order.wish {
        MoveWish::Pause => "move-pause",
        MoveWish::Verify | MoveWish::Repair => "move-verify",
        MoveWish::Run | MoveWish::Back | MoveWish::Finish | MoveWish::Cancel => "move-resume",
    };
    Ok(redirect(Href::to("/move").with("done", done.as_bytes())))
}
