//! `s3 events`: the targets of events, and the notices that wait for them on this node.

use larder_core::outbox::{WebhookBacklog, WebhookChoice};
use larder_core::rules::event_target::EventTarget;
use larder_kv_admin::frame::AdminAnswer;
use larder_rows::Timestamp;
use larder_rows::address::BucketAddress;
use larder_rows::text::rfc3339;
use serde_json::{Value, json};

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let (outbox, context) = (call.gateway().outbox(), call.gateway().context());
    let backlogs: Vec<WebhookBacklog> = outbox.backlogs().into_iter().filter(WebhookBacklog::is_of_events).collect();
    let waiting = |name: &str| backlogs.iter().filter(|one| one.receiver == name).map(|one| one.waiting).sum();
    let targets = context.config.event_targets.iter();
    let targets: Vec<TargetState<'_>> = targets
        .map(|target| {
            let name = target.name();
            let failure = outbox.last_failure(&name).map(|failure| (failure.at, failure.reason));
            TargetState { target, waiting: waiting(&name), name, failure }
        })
        .collect();
    let now = context.now();
    if call.json {
        let targets: Vec<Value> = targets.iter().map(TargetState::to_json).collect();
        let buckets: Vec<Value> = backlogs.iter().map(|backlog| backlog_json(backlog, now)).collect();
        return Ok(AdminAnswer::json(&json!({ "targets": targets, "waiting": buckets })));
    }
    if targets.is_empty() && backlogs.is_empty() {
        return Ok(AdminAnswer::done("No targets of S3 events: --s3-event-targets names some"));
    }
    let targets: String = targets.iter().map(TargetState::to_text).collect();
    let row = |backlog: &WebhookBacklog| {
        let (bucket, target) = (shown(&backlog.bucket.bucket), shown(backlog.receiver.as_bytes()));
        format!("{:>8} {:>9}  {bucket}  {target}\n", backlog.waiting, seconds(backlog, now))
    };
    let rows: String = backlogs.iter().map(row).collect();
    let table =
        if rows.is_empty() { rows } else { format!("{:>8} {:>9}  Bucket and target\n{rows}", "Waiting", "Seconds") };
    Ok(AdminAnswer::done(format!("{targets}{table}")))
}

pub(super) async fn drop(call: CommandCall<'_>) -> CommandResult {
    match call.gateway().outbox().drop_notices(&choice(call.args.first().copied().unwrap_or_default())) {
        0 => Err(AdminAnswer::failed("No such events wait here")),
        1 => Ok(AdminAnswer::done("1 event is dropped")),
        count => Ok(AdminAnswer::done(format!("{count} events are dropped"))),
    }
}

/// The events of a bucket, or for the target with this ARN.
fn choice(given: &str) -> WebhookChoice {
    if given.starts_with("arn:") {
        return WebhookChoice { is_of_events: true, receiver: Some(given.to_owned()), bucket: None };
    }
    let bucket = BucketAddress { bucket_type: bytes::Bytes::new(), bucket: given.to_owned().into() };
    WebhookChoice { is_of_events: true, bucket: Some(bucket), receiver: None }
}

/// A target as its operator sees it.
struct TargetState<'a> {
    target: &'a EventTarget,
    name: String,
    waiting: usize,
    failure: Option<(Timestamp, String)>,
}

impl TargetState<'_> {
    fn to_json(&self) -> Value {
        let failure = self.failure.as_ref().map(|(at, reason)| json!({ "at": rfc3339(*at), "reason": reason }));
        json!({
            "arn": self.name, "url": self.target.url.as_str(), "waiting": self.waiting, "last_failure": failure,
        })
    }

    fn to_text(&self) -> String {
        let failure = match &self.failure {
            Some((at, reason)) => format!("last failure at {}: {}", rfc3339(*at), shown(reason.as_bytes())),
            None => "no failure since the start".to_owned(),
        };
        format!("{}  {}\n    {} waiting; {failure}\n", self.name, self.target.url.as_str(), self.waiting)
    }
}

fn backlog_json(backlog: &WebhookBacklog, now: Timestamp) -> Value {
    json!({
        "bucket": String::from_utf8_lossy(&backlog.bucket.bucket), "arn": backlog.receiver,
        "waiting": backlog.waiting, "seconds": seconds(backlog, now),
    })
}

fn seconds(backlog: &WebhookBacklog, now: Timestamp) -> u64 {
    now.since(backlog.oldest) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_an_arn_differ() {
        let of_bucket = choice("teas");
        assert_eq!((of_bucket.bucket.unwrap().bucket.as_ref(), of_bucket.receiver), (&b"teas"[..], None));
        assert_eq!(choice("arn:minio:sqs::T:webhook").receiver.as_deref(), Some("arn:minio:sqs::T:webhook"));
    }
}
