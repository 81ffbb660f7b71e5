//! The MapReduce jobs and the commands of `kv-admin` that run on this node, the move from another store, and the indexes that
//! are being split.

use hyper::StatusCode;
use maud::{Markup, html};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed};
use crate::href::Href;
use crate::pages::moving;
use crate::reply::{ConsoleReply, page, redirect};
use crate::running_commands::ListedCommand;
use crate::units;

/// `GET /jobs`.
pub(super) async fn jobs(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let gateway = call.gateway();
    let (jobs, now) = (gateway.jobs().list(), gateway.context().now());
    let split = gateway.kv.split_buckets().await?;
    let status = call.settings.mover.status().await?;
    let body = html! {
        h1 { "Jobs" }
        section aria-labelledby="mapreduce" {
            h2 id="mapreduce" { "MapReduce on this node" }
            div.scroll {
                @if jobs.is_empty() { p.empty { "No job runs." } }
                @else {
                    table {
                        thead { tr { th.number { "Id" } th.number { "Runs for" } th.number { "Inputs" } th { "Inputs and phases" } th {} } }
                        tbody {
                            @for job in &jobs {
                                tr {
                                    td.number { (job.id) }
                                    td.number { (units::seconds(now.since(job.begun) / 1_000_000)) }
                                    td.number { (units::count(job.inputs)) }
                                    td { (shown(job.summary.as_bytes())) }
                                    td {
                                        @if call.may_change() {
                                            form method="post" action="/jobs/cancel" {
                                                (csrf(call.session))
                                                input type="hidden" name="id" value=(job.id);
                                                button.danger type="submit" { "Cancel" }
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
        (commands(&call.settings.commands.list()))
        (moving::summary(status.as_ref()))
        section aria-labelledby="indexes" {
            h2 id="indexes" { "Buckets whose indexes have more shards" }
            div.scroll {
                @if split.is_empty() { p.empty { "None." } }
                @else {
                    table {
                        thead { tr { th { "Type" } th { "Bucket" } } }
                        tbody { @for (bucket, _) in &split { tr { td { (shown(&bucket.bucket_type)) } td { (shown(&bucket.bucket)) } } } }
                    }
                }
            }
        }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Jobs, "Jobs", &body)))
}

/// The exports, imports and checks that run, each with its last report.
fn commands(running: &[ListedCommand]) -> Markup {
    html! {
        section aria-labelledby="commands" {
            h2 id="commands" { "Commands of kv-admin on this node" }
            div.scroll {
                @if running.is_empty() { p.empty { "No export, import or check of indexes runs." } }
                @else {
                    table {
                        thead { tr { th { "Command" } th.number { "Runs for" } th { "Done" } th.number { "Left, about" } th { "Step" } } }
                        tbody {
                            @for listed in running {
                                tr {
                                    td { (shown(listed.command.as_bytes())) }
                                    td.number { (units::seconds(listed.progress.seconds as u64)) }
                                    td {
                                        @if let Some(percent) = listed.progress.percent {
                                            (percent) " %"
                                            meter min="0" max="100" value=(percent) aria-label="Done" {}
                                        } @else { "–" }
                                    }
                                    td.number { (listed.seconds_left().map_or_else(|| "–".to_owned(), units::seconds)) }
                                    td { (shown(listed.progress.text.as_bytes())) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `POST /jobs/cancel`.
pub(super) fn cancel(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let id = call.form.text("id").parse().map_err(|_| ConsoleFault::bad("The form names no job."))?;
    if !call.gateway().jobs().cancel(id) {
        return Err(ConsoleFault::not_found("No such job runs here any more."));
    }
    Ok(redirect(Href::to("/jobs").with("done", b"cancelled")))
}
