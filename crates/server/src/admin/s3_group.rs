//! `s3 group`: groups of users and their policies.

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::users::{AttachmentChange, PolicyHolder};
use larder_s3_rules::UserGroup;
use serde_json::{Value as Json, json};

use super::command::{CommandCall, CommandResult, shown};
use super::s3_identity_policy::{policies_line, refused};
use super::s3_user;

pub(super) async fn create(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    call.objects().users.create_group(name).await.map_err(|error| refused("creating the group", name, &error))?;
    Ok(AdminAnswer::done(format!("{name} created")))
}

pub(super) async fn delete(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    call.objects().users.delete_group(name).await.map_err(|error| refused("removing the group", name, &error))?;
    Ok(AdminAnswer::done(format!("{name} removed")))
}

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let groups = call.objects().users.groups().await;
    let groups = groups.map_err(|error| AdminAnswer::failed(format!("Error listing groups:\n{error}")))?;
    if call.json {
        return Ok(AdminAnswer::json(&groups.iter().map(group_json).collect()));
    }
    let line = |group: &UserGroup| format!("{} {}\n", group.name, policies_line(&group.policies));
    Ok(AdminAnswer::done(groups.iter().map(line).collect::<String>()))
}

pub(super) async fn show(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let found = async { Ok((call.objects().users.group(name).await?, call.objects().users.members(name).await?)) };
    let (group, members) = found.await.map_err(|error| refused("showing the group", name, &error))?;
    if call.json {
        let mut group = group_json(&group);
        group["members"] = members.iter().map(|user| json!({"key_id": user.key_id, "email": user.email})).collect();
        return Ok(AdminAnswer::json(&group));
    }
    let members = members.iter().map(|user| format!("{} {}\n", user.key_id, shown(user.email.as_bytes())));
    Ok(AdminAnswer::done(format!("{}\n{}", policies_line(&group.policies), members.collect::<String>())))
}

pub(super) async fn add(call: CommandCall<'_>) -> CommandResult {
    change_members(&call, AttachmentChange::Attach, "added").await
}

pub(super) async fn remove(call: CommandCall<'_>) -> CommandResult {
    change_members(&call, AttachmentChange::Detach, "removed").await
}

async fn change_members(call: &CommandCall<'_>, change: AttachmentChange, done: &str) -> CommandResult {
    let group = call.args[0];
    let changed = async {
        let mut key_ids = Vec::new();
        for word in &call.args[1..] {
            key_ids.push(s3_user::find(call.objects(), word).await?.key_id.clone());
        }
        call.objects().users.change_members(group, &key_ids, change).await?;
        Ok(key_ids.join(" "))
    };
    let key_ids = changed.await.map_err(|error| refused("changing the members of", group, &error))?;
    Ok(AdminAnswer::done(format!("{} {done}", shown(key_ids.as_bytes()))))
}

pub(super) async fn attach(call: CommandCall<'_>) -> CommandResult {
    change_policies(&call, AttachmentChange::Attach).await
}

pub(super) async fn detach(call: CommandCall<'_>) -> CommandResult {
    change_policies(&call, AttachmentChange::Detach).await
}

async fn change_policies(call: &CommandCall<'_>, change: AttachmentChange) -> CommandResult {
    let group = call.args[0];
    let changed = call.objects().users.change_policies(PolicyHolder::Group(group), &call.args[1..], change).await;
    let policies = changed.map_err(|error| refused("changing the policies of", group, &error))?;
    Ok(match call.json {
        true => AdminAnswer::json(&json!({"group": group, "policies": policies})),
        false => AdminAnswer::done(policies_line(&policies)),
    })
}

fn group_json(group: &UserGroup) -> Json {
    json!({"group": group.name, "policies": group.policies})
}
