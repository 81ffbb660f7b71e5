//! `s3 policy` and `s3 user policy`: policies for users and groups, and those of a user.

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::Error;
use larder_s3::users::{AttachmentChange, NamedPolicy, PolicyHolder};
use serde_json::json;

use super::command::{CommandCall, CommandResult, shown};
use super::s3_user;

pub(super) async fn create(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let document = call.content(call.args[1]).map_err(|reason| AdminAnswer::failed(reason.clone()))?;
    call.objects()
        .users
        .put_policy(name, document)
        .await
        .map_err(|error| refused("creating the policy", name, &error))?;
    Ok(AdminAnswer::done(format!("{name} created")))
}

pub(super) async fn delete(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    call.objects().users.delete_policy(name).await.map_err(|error| refused("removing the policy", name, &error))?;
    Ok(AdminAnswer::done(format!("{name} removed")))
}

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let policies = call.objects().users.policies().await;
    let policies = policies.map_err(|error| AdminAnswer::failed(format!("Error listing policies:\n{error}")))?;
    if call.json {
        let policy_json = |policy: &NamedPolicy| json!({"policy": policy.name, "built_in": policy.is_canned});
        return Ok(AdminAnswer::json(&policies.iter().map(policy_json).collect()));
    }
    let line = |policy: &NamedPolicy| {
        let suffix = if policy.is_canned { " (built in)" } else { "" };
        format!("{}{suffix}\n", policy.name)
    };
    Ok(AdminAnswer::done(policies.iter().map(line).collect::<String>()))
}

pub(super) async fn show(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let policy = call.objects().users.policy(name).await;
    let policy = policy.map_err(|error| refused("showing the policy", name, &error))?;
    Ok(AdminAnswer::done(format!("{}\n", policy.document.trim_end())))
}

pub(super) async fn attach(call: CommandCall<'_>) -> CommandResult {
    change(&call, AttachmentChange::Attach).await
}

pub(super) async fn detach(call: CommandCall<'_>) -> CommandResult {
    change(&call, AttachmentChange::Detach).await
}

async fn change(call: &CommandCall<'_>, change: AttachmentChange) -> CommandResult {
    let word = call.args[0];
    let changed = async {
        let user = s3_user::find(call.objects(), word).await?;
        let policies =
            call.objects().users.change_policies(PolicyHolder::User(&user.key_id), &call.args[1..], change).await?;
        Ok((user, policies))
    };
    let (user, policies) = changed.await.map_err(|error| refused("changing the policies of", word, &error))?;
    if call.json {
        return Ok(AdminAnswer::json(&json!({"key_id": user.key_id, "policies": policies})));
    }
    let governed = !policies.is_empty() || !user.groups.is_empty();
    Ok(AdminAnswer::done(format!("{}{}\n", policies_line(&policies), if governed { "" } else { FREE })))
}

/// Said of a user whose last policy is gone.
const FREE: &str =
    "\nwithout policies and groups the user owns its buckets again; `s3 user disable` refuses its requests";

pub(super) async fn list_of_user(call: CommandCall<'_>) -> CommandResult {
    let word = call.args[0];
    let found = async {
        let user = s3_user::find(call.objects(), word).await?;
        // The newest, not the one that requests see for two seconds.
        let user = call.objects().users.find_by_id(&user.id).await?.unwrap_or(user);
        let mut groups = Vec::new();
        for name in &user.groups {
            groups.push(call.objects().users.group(name).await?);
        }
        Ok((user, groups))
    };
    let (user, groups) = found.await.map_err(|error| refused("listing the policies of", word, &error))?;
    if call.json {
        let of_groups: serde_json::Map<_, _> =
            groups.iter().map(|group| (group.name.clone(), json!(group.policies))).collect();
        return Ok(AdminAnswer::json(&json!({"policies": user.policies, "groups": of_groups})));
    }
    let own = user.policies.iter().map(|name| format!("{name}\n"));
    let inherited = groups.iter().flat_map(|group| {
        let suffix = format!(" (of the group {})", group.name);
        group.policies.iter().map(move |name| format!("{name}{suffix}\n"))
    });
    Ok(AdminAnswer::done(own.chain(inherited).collect::<String>()))
}

/// The names of attached policies in a line.
pub(super) fn policies_line(policies: &[String]) -> String {
    if policies.is_empty() { "policies: none".to_owned() } else { format!("policies: {}", policies.join(" ")) }
}

/// A failure about a user, a group or a policy; a refusal says itself what is wrong.
pub(super) fn refused(doing: &str, name: &str, error: &Error) -> AdminAnswer {
    let name = shown(name.as_bytes());
    match error {
        Error::InvalidUser(message) | Error::MalformedPolicy(message) => AdminAnswer::failed(shown(message.as_bytes())),
        Error::UnknownKey(key) => {
            let key = shown(key.as_bytes());
            AdminAnswer::failed(format!("{key} is no S3 user: neither an access key nor an e-mail address"))
        }
        error => AdminAnswer::failed(format!("Error {doing} {name}:\n{error}")),
    }
}
