//! `s3 encryption`: status, rotate: the master keys of encrypted S3 objects.

use larder_kv_admin::frame::AdminAnswer;
use serde_json::json;

use super::command::{CommandCall, CommandResult};

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let ids: Vec<String> = call.objects().keys.ring.ids().iter().map(ToString::to_string).collect();
    if call.json {
        return Ok(AdminAnswer::json(&json!({"keys": ids, "current": ids.last()})));
    }
    let Some((current, older)) = ids.split_last() else {
        return Ok(AdminAnswer::done(
            "no master key yet: the first encrypted write makes one, or --encryption-keys names some",
        ));
    };
    let older: String = older.iter().map(|id| format!("older:   {id}\n")).collect();
    Ok(AdminAnswer::done(format!("{older}current: {current}\n")))
}

pub(super) async fn rotate(call: CommandCall<'_>) -> CommandResult {
    let random = call.gateway().context().ports.random;
    match call.objects().keys.ring.rotate(random).await {
        Ok(id) => Ok(AdminAnswer::done(format!("new objects are encrypted with {id}; older ones keep their keys"))),
        Err(larder_s3::Error::Encryption(_)) => Err(AdminAnswer::failed(
            "the gateways of a cluster share one file: add a line to it, the same on each machine, and start them one by one",
        )),
        Err(error) => Err(AdminAnswer::failed(format!("no new key: {error}"))),
    }
}
