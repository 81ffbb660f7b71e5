//! `s3 user`: create, list, show, disable, enable, delete, rotate-key. A new secret is printed once and never again.

use std::sync::Arc;

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::users::{NewUser, UserChange};
use larder_s3::{Error, Objects};
use larder_s3_rules::User;
use serde_json::json;

use super::command::{CommandCall, CommandOption, CommandResult, OptionKind, ParsedArgs, shown};

/// A key and a canonical id that a user brings.
pub(super) const OPTIONS: &[CommandOption] = &[
    CommandOption { name: "--key", kind: OptionKind::Value },
    CommandOption { name: "--secret-file", kind: OptionKind::Value },
    CommandOption { name: "--id", kind: OptionKind::Value },
];

/// Users per page.
const PAGE_USERS: usize = 1000;

pub(super) async fn create(call: CommandCall<'_>) -> CommandResult {
    let args = ParsedArgs::parse(call.args, OPTIONS).map_err(AdminAnswer::failed)?;
    let [email, name] = args.plain[..] else { return Err(AdminAnswer::usage("s3 user create <email> <name> [key]")) };
    let key = match (args.value("--key"), args.secret(call.request)?) {
        (Some(id), Some(secret)) => Some((id.to_owned(), secret)),
        (None, None) => None,
        _ => return Err(AdminAnswer::failed("--key and --secret-file go together")),
    };
    let (is_given, id) = (key.is_some(), args.value("--id").map(str::to_owned));
    let new = NewUser { email: email.to_owned(), name: name.to_owned(), key, id, ..NewUser::default() };
    let user = call.objects().users.create_user(new).await.map_err(|error| failed("creating", email, &error))?;
    if is_given {
        return Ok(if call.json { AdminAnswer::json(&user_json(&user)) } else { AdminAnswer::done(text(&user)) });
    }
    Ok(with_secret(&user, call.json))
}

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let mut users = Vec::new();
    loop {
        let after = users.last().map_or("", |user: &Arc<User>| &user.id).to_owned();
        let page = call.objects().users.list(&after, PAGE_USERS).await;
        let page = page.map_err(|error| AdminAnswer::failed(format!("Error listing S3 users:\n{error}")))?;
        if page.is_empty() {
            break;
        }
        users.extend(page);
    }
    if call.json {
        return Ok(AdminAnswer::json(&users.iter().map(|user| user_json(user)).collect()));
    }
    let line = |user: &Arc<User>| {
        let suffix = match (user.enabled, user.admin) {
            (false, _) => " (disabled)",
            (true, true) => " (admin)",
            (true, false) => "",
        };
        format!("{} {}{suffix}{}\n", user.key_id, shown(user.email.as_bytes()), attachments(user))
    };
    Ok(AdminAnswer::done(users.iter().map(line).collect::<String>()))
}

pub(super) async fn show(call: CommandCall<'_>) -> CommandResult {
    let user = find(call.objects(), call.args[0]).await;
    let user = user.map_err(|error| failed("showing", call.args[0], &error))?;
    Ok(if call.json { AdminAnswer::json(&user_json(&user)) } else { AdminAnswer::done(text(&user)) })
}

pub(super) async fn disable(call: CommandCall<'_>) -> CommandResult {
    let change = UserChange { enabled: Some(false), ..UserChange::default() };
    apply_change(&call, change, "disabled").await
}

pub(super) async fn enable(call: CommandCall<'_>) -> CommandResult {
    let change = UserChange { enabled: Some(true), ..UserChange::default() };
    apply_change(&call, change, "enabled").await
}

/// Removes a user, but no administrator: without one, nobody could make another.
pub(super) async fn delete(call: CommandCall<'_>) -> CommandResult {
    let word = call.args[0];
    let removed = async {
        let user = find(call.objects(), word).await?;
        if !user.admin {
            call.objects().users.delete(&user.key_id).await?;
        }
        Ok(user)
    };
    let user = removed.await.map_err(|error| failed("removing", word, &error))?;
    match user.admin {
        true => Err(AdminAnswer::failed(format!("{} is an administrator: not removed", shown(word.as_bytes())))),
        false => Ok(AdminAnswer::done(format!("{} removed", shown(user.key_id.as_bytes())))),
    }
}

pub(super) async fn rotate_key(call: CommandCall<'_>) -> CommandResult {
    let user = change(&call, UserChange { new_secret: true, ..UserChange::default() }).await?;
    Ok(with_secret(&user, call.json))
}

async fn apply_change(call: &CommandCall<'_>, asked: UserChange, done: &str) -> CommandResult {
    let user = change(call, asked).await?;
    Ok(AdminAnswer::done(format!("{} {done}", shown(user.key_id.as_bytes()))))
}

async fn change(call: &CommandCall<'_>, change: UserChange) -> Result<Arc<User>, AdminAnswer> {
    let changed = async {
        let word = call.args[0];
        let by_email = call.objects().users.find_by_email(word).await?;
        call.objects().users.update(by_email.as_ref().map_or(word, |user| &user.key_id), change).await
    };
    changed.await.map_err(|error| failed("changing", call.args[0], &error))
}

/// The user with this access key or e-mail address.
pub(super) async fn find(objects: &Objects, word: &str) -> Result<Arc<User>, Error> {
    match objects.users.find_by_email(word).await? {
        Some(user) => Ok(user),
        None => objects.users.find_by_key(word).await,
    }
}

fn with_secret(user: &User, json: bool) -> AdminAnswer {
    if json {
        let mut user_json = user_json(user);
        user_json["key_secret"] = json!(user.secret);
        return AdminAnswer::json(&user_json);
    }
    AdminAnswer::done(format!("{}key_secret: {}\n", text(user), user.secret))
}

fn user_json(user: &User) -> serde_json::Value {
    json!({
        "email": user.email,
        "display_name": user.display_name,
        "name": user.name,
        "key_id": user.key_id,
        "id": user.id,
        "status": status(user),
        "admin": user.admin,
        "policies": user.policies,
        "groups": user.groups,
    })
}

/// The policies and groups of a user at the end of its line in a list.
fn attachments(user: &User) -> String {
    let named = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(" {what}={}", names.join(",")),
    };
    named("policies", &user.policies) + &named("groups", &user.groups)
}

fn text(user: &User) -> String {
    let line = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("{what}: {}\n", names.join(" ")),
    };
    format!(
        "email: {}\nname: {}\nid: {}\nstatus: {}\nadmin: {}\nkey_id: {}\n{}{}",
        shown(user.email.as_bytes()),
        shown(user.name.as_bytes()),
        user.id,
        status(user),
        user.admin,
        user.key_id,
        line("policies", &user.policies),
        line("groups", &user.groups)
    )
}

fn status(user: &User) -> &'static str {
    if user.enabled { "enabled" } else { "disabled" }
}

pub(super) fn failed(doing: &str, who: &str, error: &Error) -> AdminAnswer {
    let who = shown(who.as_bytes());
    match error {
        Error::InvalidBucketName(name) => {
            AdminAnswer::failed(format!("{} is no name of a bucket", shown(name.as_bytes())))
        }
        Error::UnknownKey(_) => {
            AdminAnswer::failed(format!("{who} is no S3 user: neither an access key nor an e-mail address"))
        }
        Error::UserExists => AdminAnswer::failed(format!("An S3 user with the e-mail address {who} exists already")),
        error => AdminAnswer::failed(format!("Error {doing} S3 user {who}:\n{error}")),
    }
}
