//! The notices for webhooks that wait on this node.

use larder_core::outbox::{WebhookBacklog, WebhookChoice};
use larder_kv_admin::frame::AdminAnswer;
use larder_rows::address::BucketAddress;
use serde_json::json;

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let gateway = call.gateway();
    let backlogs = gateway.outbox().backlogs().into_iter().filter(|backlog| !backlog.is_of_events());
    let (backlogs, now) = (backlogs.collect::<Vec<_>>(), gateway.context().now());
    let seconds = |backlog: &WebhookBacklog| now.since(backlog.oldest) / 1_000_000;
    if call.json {
        let rows = backlogs.iter().map(|backlog| {
            json!({
                "bucket": backlog.bucket.to_string(), "url": backlog.receiver, "waiting": backlog.waiting,
                "seconds": seconds(backlog),
            })
        });
        return Ok(AdminAnswer::json(&json!({ "webhooks": rows.collect::<Vec<_>>() })));
    }
    if backlogs.is_empty() {
        return Ok(AdminAnswer::done("No notices for webhooks wait"));
    }
    let row = |backlog: &WebhookBacklog| {
        let (bucket, url) = (shown(backlog.bucket.to_string().as_bytes()), shown(backlog.receiver.as_bytes()));
        format!("{:>8} {:>9}  {bucket}  {url}\n", backlog.waiting, seconds(backlog))
    };
    let rows: String = backlogs.iter().map(row).collect();
    Ok(AdminAnswer::done(format!("{:>8} {:>9}  Bucket and webhook\n{rows}", "Waiting", "Seconds")))
}

pub(super) async fn drop(call: CommandCall<'_>) -> CommandResult {
    let given = call.args.first().copied().unwrap_or_default();
    let choice = parse_choice(given).ok_or_else(|| {
        AdminAnswer::failed(format!("{} is no bucket as TYPE/BUCKET, no webhook and not all", shown(given.as_bytes())))
    })?;
    match call.gateway().outbox().drop_notices(&choice) {
        0 => Err(AdminAnswer::failed("No such notices for webhooks wait here")),
        1 => Ok(AdminAnswer::done("1 notice is dropped")),
        count => Ok(AdminAnswer::done(format!("{count} notices are dropped"))),
    }
}

/// The notices of `all`, a webhook, or a bucket.
fn parse_choice(given: &str) -> Option<WebhookChoice> {
    if given == "all" {
        return Some(WebhookChoice::default());
    }
    if given.contains("://") {
        return Some(WebhookChoice { receiver: Some(given.to_owned()), ..WebhookChoice::default() });
    }
    let (of_type, bucket) = given.split_once('/')?;
    let bucket = BucketAddress::new(of_type.to_owned().into(), bucket.to_owned().into()).ok()?;
    Some(WebhookChoice { bucket: Some(bucket), ..WebhookChoice::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_a_webhook_and_all_differ() {
        let bucket = |text: &str| parse_choice(text).and_then(|choice| choice.bucket).map(|bucket| bucket.to_string());
        assert_eq!(
            [bucket("t/b"), bucket("t/b/c"), bucket("all"), bucket("b"), bucket("/b")],
            [Some("t/b".into()), Some("t/b/c".into()), None, None, None]
        );
        let url = parse_choice("http://h/p").unwrap();
        assert_eq!((url.receiver.as_deref(), url.bucket), (Some("http://h/p"), None));
        assert_eq!(parse_choice("all"), Some(WebhookChoice::default()));
        assert_eq!(parse_choice("b"), None);
    }
}
