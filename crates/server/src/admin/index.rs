//! `index check` and `index repair`: all indexes against all objects. `index status`: the epochs of large buckets.

use larder_kv::views::{CheckMode, IndexCheck};
use larder_kv_admin::frame::AdminAnswer;
use larder_kv_admin::progress_bar::Progress;
use larder_rows::BucketEpochs;
use larder_rows::address::BucketAddress;
use larder_rows::limits::KEY_VIEW_SHARDS;
use serde_json::json;
use tokio::sync::Semaphore;

use super::command::{CommandCall, CommandResult, reasons, shown};

/// One check at a time.
static RUNNING: Semaphore = Semaphore::const_new(1);

pub(super) async fn check(call: CommandCall<'_>) -> CommandResult {
    run(call, CheckMode::Report).await
}

pub(super) async fn repair(call: CommandCall<'_>) -> CommandResult {
    run(call, CheckMode::Repair).await
}

async fn run(call: CommandCall<'_>, mode: CheckMode) -> CommandResult {
    let Ok(_turn) = RUNNING.try_acquire() else {
        return Err(AdminAnswer::failed("another check or repair of indexes is running"));
    };
    let report = |counts: &IndexCheck, done: f64| {
        let text = format!("{} keys, {} terms, {} index rows", counts.keys, counts.terms, counts.index_rows);
        call.reporter.report(|seconds| Progress { seconds, percent: Some((done * 100.0) as u8), text });
        true
    };
    let counts = call.gateway().kv.check_indexes(mode, report).await;
    let counts = counts.map_err(|error| AdminAnswer::failed(reasons(&error)))?;
    let IndexCheck { keys, terms, index_rows, missing, left_over, unlisted, listed_only, .. } = counts;
    let text = format!(
        "{keys} keys with {terms} terms, {index_rows} index rows: {missing} terms without an index row, {left_over} index \
         rows without their term, {unlisted} keys that no list shows, {listed_only} entries of lists without their key"
    );
    match (counts.differences(), mode == CheckMode::Repair) {
        (0, _) => Ok(AdminAnswer::done(text)),
        (_, true) => Ok(AdminAnswer::done(format!("{text}; all repaired"))),
        (_, false) => Err(AdminAnswer::failed(format!("{text}; `kv-admin index repair` repairs them"))),
    }
}

/// The shards of each epoch of the buckets that have more than one, and the stage of the newest.
pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let split = call.gateway().kv.split_buckets().await;
    let split = split.map_err(|error| AdminAnswer::failed(reasons(&error)))?;
    if call.json {
        let row = |(bucket, epochs): &(BucketAddress, BucketEpochs)| {
            json!({ "type": shown(&bucket.bucket_type), "bucket": shown(&bucket.bucket), "shards": epochs.counts(),
                "stage": epochs.stage().name() })
        };
        return Ok(AdminAnswer::json(&json!({ "buckets": split.iter().map(row).collect::<Vec<_>>() })));
    }
    if split.is_empty() {
        return Ok(AdminAnswer::done(format!("Every bucket has one epoch of {KEY_VIEW_SHARDS} shards")));
    }
    let line = |(bucket, epochs): &(BucketAddress, BucketEpochs)| {
        let counts: Vec<String> = epochs.counts().iter().map(u8::to_string).collect();
        let (name, stage) = (shown(&bucket.bucket), epochs.stage().name());
        format!(
            "{}/{name}: epochs of {} shards, the newest is {stage}\n",
            shown(&bucket.bucket_type),
            counts.join(", ")
        )
    };
    Ok(AdminAnswer::done(split.iter().map(line).collect::<String>()))
}
