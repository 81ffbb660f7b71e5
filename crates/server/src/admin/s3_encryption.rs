//! `s3 encryption`: the master keys of encrypted S3 objects, and of all rows and bodies where they are encrypted at rest.

use std::time::Duration;

use larder_encryption::at_rest::{AtRestError, DataKeys};
use larder_encryption::key_ring::KeyRingError;
use larder_kv_admin::frame::AdminAnswer;
use serde_json::json;
use tokio::time::Instant;

use super::command::{CommandCall, CommandResult};

/// Longest time in which data keys are wrapped anew.
const REWRAP_MAX: Duration = Duration::from_secs(60);

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let ids: Vec<String> = call.objects().keys.ring.ids().iter().map(ToString::to_string).collect();
    let at_rest = call.context.data_keys.as_deref().map(DataKeys::status);
    if call.json {
        let at_rest = at_rest.map(|found| {
            let wrapped_by = found.wrapped_by.iter().map(|(id, count)| (id.to_string(), json!(count)));
            json!({"encrypts": found.seals, "data_keys": serde_json::Map::from_iter(wrapped_by)})
        });
        return Ok(AdminAnswer::json(&json!({"keys": ids, "current": ids.last(), "at_rest": at_rest})));
    }
    let mut lines = match ids.split_last() {
        None => "no master key yet: the first encrypted write makes one, or --encryption-keys names some\n".to_owned(),
        Some((current, older)) => {
            let older: String = older.iter().map(|id| format!("older:   {id}\n")).collect();
            format!("{older}current: {current}\n")
        }
    };
    if let Some(found) = at_rest {
        let new = if found.seals { "all new rows and bodies are encrypted" } else { "new rows and bodies are clear" };
        lines.push_str(&format!("at rest: {new}\n"));
        for (id, count) in found.wrapped_by {
            lines.push_str(&format!("at rest: data keys under {id}: {count}\n"));
        }
    }
    Ok(AdminAnswer::done(lines))
}

pub(super) async fn rotate(call: CommandCall<'_>) -> CommandResult {
    let random = call.gateway().context().ports.random;
    let made = match call.objects().keys.ring.rotate(random).await {
        Ok(id) => format!("new objects are encrypted with {id}; older ones keep their keys"),
        Err(KeyRingError::NoMasterKey) => {
            return Err(AdminAnswer::failed(
                "the gateways of a cluster share one file: add a line to it, the same on each machine, and start them one by one; then run: kv-admin s3 encryption rewrap",
            ));
        }
        Err(error) => return Err(AdminAnswer::failed(format!("no new key: {error}"))),
    };
    match &call.context.data_keys {
        None => Ok(AdminAnswer::done(made)),
        Some(keys) => Ok(AdminAnswer::done(format!("{made}\n{}", wrap_anew(keys).await?))),
    }
}

pub(super) async fn rewrap(call: CommandCall<'_>) -> CommandResult {
    match &call.context.data_keys {
        None => Err(AdminAnswer::failed("nothing is encrypted at rest: start with --encrypt-at-rest")),
        Some(keys) => Ok(AdminAnswer::done(wrap_anew(keys).await?)),
    }
}

async fn wrap_anew(keys: &DataKeys) -> Result<String, AdminAnswer> {
    let count = keys.rewrap(Instant::now() + REWRAP_MAX).await;
    let count =
        count.map_err(|error: AtRestError| AdminAnswer::failed(format!("data keys not wrapped anew: {error}")))?;
    Ok(format!("data keys of rows and bodies wrapped anew: {count}; all are under the current master key"))
}
