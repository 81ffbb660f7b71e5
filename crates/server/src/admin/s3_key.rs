//! `s3 key`: create, list, revoke. A new secret is printed once and never again; one that is given is not printed.

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::Error;
use larder_s3::users::NewKey;
use larder_s3_rules::user::{parse_expiry, time_text};
use larder_s3_rules::{AccessKey, KeyLimits, User};
use serde_json::{Value as Json, json};

use super::command::{CommandCall, CommandOption, CommandResult, OptionKind, ParsedArgs, shown};
use super::s3_user::{failed, find};

pub(super) const OPTIONS: &[CommandOption] = &[
    CommandOption { name: "--key", kind: OptionKind::Value },
    CommandOption { name: "--secret-file", kind: OptionKind::Value },
    CommandOption { name: "--read-only", kind: OptionKind::Flag },
    CommandOption { name: "--bucket", kind: OptionKind::Values },
    CommandOption { name: "--prefix", kind: OptionKind::Values },
    CommandOption { name: "--expires", kind: OptionKind::Value },
];

pub(super) async fn create(call: CommandCall<'_>) -> CommandResult {
    let args = ParsedArgs::parse(call.args, OPTIONS).map_err(AdminAnswer::failed)?;
    let [user] = args.plain[..] else { return Err(AdminAnswer::usage("s3 key create <key or email> [limits]")) };
    let given = args.secret(call.request)?;
    let new = NewKey { id: args.value("--key").map(str::to_owned), secret: given, limits: parse_limits(&args)? };
    let is_given = new.secret.is_some();
    let created = async {
        let user = find(call.objects(), user).await?;
        call.objects().users.add_key(&user.key_id, new).await
    };
    let (_, key) = created.await.map_err(|error| failed("creating a key of", user, &error))?;
    Ok(created_key(&key, !is_given, call.json))
}

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let user = find(call.objects(), call.args[0]).await;
    let user = user.map_err(|error| failed("listing the keys of", call.args[0], &error))?;
    Ok(if call.json { AdminAnswer::json(&list_json(&user)) } else { AdminAnswer::done(list_text(&user)) })
}

pub(super) async fn revoke(call: CommandCall<'_>) -> CommandResult {
    let key = call.args[0];
    match call.objects().users.revoke_key(key).await {
        Ok(_) => Ok(AdminAnswer::done(format!("{} revoked", shown(key.as_bytes())))),
        Err(Error::UnknownKey(_)) => Err(AdminAnswer::failed(format!("There is no S3 key {}", shown(key.as_bytes())))),
        Err(error) => Err(AdminAnswer::failed(format!("Error revoking S3 key {}:\n{error}", shown(key.as_bytes())))),
    }
}

fn parse_limits(args: &ParsedArgs<'_>) -> Result<KeyLimits, AdminAnswer> {
    let bad = || AdminAnswer::failed("--expires needs a time like 2030-01-31 or 2030-01-31T12:00:00Z");
    let expires = args.value("--expires").map(|text| parse_expiry(text).ok_or_else(bad)).transpose()?;
    let (buckets, prefixes) = (args.values("--bucket"), args.values("--prefix"));
    Ok(KeyLimits { read_only: args.has("--read-only"), buckets, prefixes, expires })
}

fn created_key(key: &AccessKey, with_secret: bool, json: bool) -> AdminAnswer {
    if json {
        let mut out = key_json(key);
        if with_secret {
            out["key_secret"] = json!(key.secret);
        }
        return AdminAnswer::json(&out);
    }
    let secret = if with_secret { format!("key_secret: {}\n", key.secret) } else { String::new() };
    AdminAnswer::done(format!("key_id: {}\n{secret}", shown(key.id.as_bytes())))
}

fn key_json(key: &AccessKey) -> Json {
    let KeyLimits { read_only, buckets, prefixes, expires } = &key.limits;
    json!({
        "key_id": key.id,
        "created": time_text(key.created),
        "read_only": read_only,
        "buckets": buckets,
        "prefixes": prefixes,
        "expires": expires.map(time_text),
    })
}

fn list_json(user: &User) -> Json {
    let first = json!({"key_id": user.key_id, "first": true, "created": time_text(user.created)});
    std::iter::once(first).chain(user.further_keys.iter().map(key_json)).collect()
}

/// A line for each key: its id and its limits.
fn list_text(user: &User) -> String {
    let line = |key: &AccessKey| format!("{}{}\n", shown(key.id.as_bytes()), shown(key.limits.to_string().as_bytes()));
    let further: String = user.further_keys.iter().map(line).collect();
    format!("{} (first)\n{further}", shown(user.key_id.as_bytes()))
}
