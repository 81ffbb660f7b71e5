//! The MapReduce jobs that run on this node.

use larder_core::RunningJob;
use larder_kv_admin::frame::AdminAnswer;
use serde_json::json;

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let gateway = call.gateway();
    let (jobs, now) = (gateway.jobs().list(), gateway.context().now());
    let seconds = |job: &RunningJob| now.since(job.begun) / 1_000_000;
    if call.json {
        let rows = jobs
            .iter()
            .map(|job| json!({ "id": job.id, "seconds": seconds(job), "inputs": job.inputs, "summary": job.summary }));
        return Ok(AdminAnswer::json(&json!({ "jobs": rows.collect::<Vec<_>>() })));
    }
    if jobs.is_empty() {
        return Ok(AdminAnswer::done("No MapReduce jobs run"));
    }
    let row = |job: &RunningJob| {
        let summary = shown(job.summary.as_bytes());
        format!("{:>8} {:>9} {:>12}  {summary}\n", job.id, seconds(job), job.inputs)
    };
    let rows: String = jobs.iter().map(row).collect();
    Ok(AdminAnswer::done(format!("{:>8} {:>9} {:>12}  Inputs and phases\n{rows}", "Id", "Seconds", "Inputs")))
}

pub(super) async fn cancel(call: CommandCall<'_>) -> CommandResult {
    let given = call.args.first().copied().unwrap_or_default();
    let cancelled = given.parse().is_ok_and(|id| call.gateway().jobs().cancel(id));
    match cancelled {
        true => Ok(AdminAnswer::done(format!("Job {given} is cancelled: its client gets an error"))),
        false => Err(AdminAnswer::failed(format!("No job {} runs here", shown(given.as_bytes())))),
    }
}

pub(super) async fn js_reload(call: CommandCall<'_>) -> CommandResult {
    let Some(scripts) = call.gateway().context().scripts() else {
        return Err(AdminAnswer::failed("this server runs no scripts"));
    };
    // It waits for a worker that tries the modules.
    match tokio::task::spawn_blocking(move || scripts.reload()).await {
        Ok(Ok(_)) => Ok(AdminAnswer::default()),
        Ok(Err(fault)) => Err(AdminAnswer::failed(format!("modules not loaded, the old ones stay in use: {fault}"))),
        Err(_) => Err(AdminAnswer::failed("modules not loaded: the server ends")),
    }
}
