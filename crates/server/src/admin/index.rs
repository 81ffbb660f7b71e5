//! `index check` and `index repair`: all indexes against all objects.

use larder_admin_frame::AdminAnswer;
use larder_gateway::views::IndexCheck;
use larder_progress_bar::Progress;
use tokio::sync::Semaphore;

use super::command::{CommandCall, CommandResult};
use super::text::reasons;

/// One check at a time.
static RUNNING: Semaphore = Semaphore::const_new(1);

pub(super) async fn check(call: CommandCall<'_>) -> CommandResult {
    run(call, false).await
}

pub(super) async fn repair(call: CommandCall<'_>) -> CommandResult {
    run(call, true).await
}

async fn run(call: CommandCall<'_>, repairs: bool) -> CommandResult {
    let Ok(_turn) = RUNNING.try_acquire() else {
        return Err(AdminAnswer::failed("another check or repair of indexes is running"));
    };
    let report = |counts: &IndexCheck| {
        let text = format!("{} keys, {} terms, {} index rows", counts.keys, counts.terms, counts.index_rows);
        call.reporter.report(|seconds| Progress { seconds, percent: None, text });
    };
    let counts = call.gateway().kv.check_indexes(repairs, report).await;
    let counts = counts.map_err(|error| AdminAnswer::failed(reasons(&error)))?;
    let IndexCheck { keys, terms, index_rows, missing, left_over } = counts;
    let text = format!(
        "{keys} keys with {terms} terms, {index_rows} index rows: {missing} terms without an index row, {left_over} index \
         rows without their term"
    );
    match (missing + left_over, repairs) {
        (0, _) => Ok(AdminAnswer::done(text)),
        (_, true) => Ok(AdminAnswer::done(format!("{text}; all repaired"))),
        (_, false) => Err(AdminAnswer::failed(format!("{text}; `kv-admin index repair` repairs them"))),
    }
}
