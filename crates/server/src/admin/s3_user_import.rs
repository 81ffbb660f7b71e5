//! `s3 user import`: the users of another store, with their keys, policies and groups.

use larder_kv_admin::frame::AdminAnswer;
use larder_moving::rules::SourceUsers;
use larder_moving::{UserImportReport, import_users};
use serde_json::json;

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn import(call: CommandCall<'_>) -> CommandResult {
    let [file] = call.args[..] else { return Err(AdminAnswer::usage("s3 user import @<file>")) };
    if !file.starts_with('@') {
        return Err(AdminAnswer::failed("name the export as @FILE"));
    }
    let text = call.content(file).map_err(AdminAnswer::failed)?;
    let source = SourceUsers::parse(text).map_err(AdminAnswer::failed)?;
    let report = import_users(&call.objects().users, source).await;
    let report = report.map_err(|error| AdminAnswer::failed(format!("Error importing S3 users:\n{error}")))?;
    let UserImportReport { users, policies, groups, keys, notes } = &report;
    if call.json {
        let json = json!({ "users": users, "policies": policies, "groups": groups, "keys": keys, "notes": notes });
        return Ok(AdminAnswer::json(&json));
    }
    let notes: String = notes.iter().map(|note| format!("left out: {}\n", shown(note.as_bytes()))).collect();
    let counts = format!("{users} users, {policies} policies, {groups} groups and {keys} further keys are here\n");
    Ok(AdminAnswer::done(counts + &notes))
}
