//! `s3 quota`: set, clear, show, list: most objects and bytes of a bucket, or of all buckets of a user.

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::quotas::QuotaHolder;
use larder_s3::{Error, Objects};
use larder_s3_rules::{Storage, StorageQuota};
use serde_json::{Value as Json, json};

use super::command::{CommandCall, CommandOption, CommandResult, OptionKind, ParsedArgs, shown};
use super::s3_user;
use crate::settings::parse_size;

pub(super) const OPTIONS: &[CommandOption] = &[
    CommandOption { name: "--objects", kind: OptionKind::Value },
    CommandOption { name: "--bytes", kind: OptionKind::Value },
];

/// A holder as the operator names it.
struct NamedHolder<'a> {
    kind: &'a str,
    name: &'a str,
    holder: QuotaHolder,
}

pub(super) async fn set(call: CommandCall<'_>) -> CommandResult {
    let args = ParsedArgs::parse(call.args, OPTIONS).map_err(AdminAnswer::failed)?;
    let [kind, name] = args.plain[..] else {
        return Err(AdminAnswer::usage("s3 quota set <bucket|user> <name> [--objects N] [--bytes SIZE]"));
    };
    let quota = parse_quota(&args)?;
    if quota == StorageQuota::default() {
        return Err(AdminAnswer::failed("A quota needs --objects, --bytes or both"));
    }
    let named = find(call.objects(), kind, name).await?;
    change(call.objects(), &named, quota).await?;
    Ok(AdminAnswer::done(format!("{kind} {} may hold {quota}", shown(name.as_bytes()))))
}

pub(super) async fn clear(call: CommandCall<'_>) -> CommandResult {
    let named = find(call.objects(), call.args[0], call.args[1]).await?;
    change(call.objects(), &named, StorageQuota::default()).await?;
    Ok(AdminAnswer::done(format!("{} {} has no quota", named.kind, shown(named.name.as_bytes()))))
}

pub(super) async fn show(call: CommandCall<'_>) -> CommandResult {
    let NamedHolder { kind, name, holder } = find(call.objects(), call.args[0], call.args[1]).await?;
    let usage = call.objects().quotas.stored(&holder).await;
    let (quota, stored) = usage.map_err(|error| failed("measuring", kind, name, &error))?;
    if call.json {
        return Ok(AdminAnswer::json(&with_stored(quota_json(kind, name, quota), stored)));
    }
    let most = |most: Option<u64>| most.map_or_else(|| "no limit".to_owned(), |most| format!("at most {most}"));
    let (objects, bytes) = (most(quota.objects), most(quota.bytes));
    Ok(AdminAnswer::done(format!("objects: {}, {objects}\nbytes: {}, {bytes}\n", stored.objects, stored.bytes)))
}

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let objects = call.objects();
    let all =
        objects.quotas.all().await.map_err(|error| AdminAnswer::failed(format!("Error listing quotas:\n{error}")))?;
    let mut lines = Vec::new();
    for (holder, quota) in all {
        let (kind, name) = owner_name(objects, holder).await?;
        lines.push((kind, name, quota));
    }
    if call.json {
        return Ok(AdminAnswer::json(
            &lines.iter().map(|(kind, name, quota)| quota_json(kind, name, *quota)).collect(),
        ));
    }
    let line =
        |(kind, name, quota): &(_, String, StorageQuota)| format!("{kind} {}: {quota}\n", shown(name.as_bytes()));
    Ok(AdminAnswer::done(lines.iter().map(line).collect::<String>()))
}

fn parse_quota(args: &ParsedArgs<'_>) -> Result<StorageQuota, AdminAnswer> {
    let objects = args.value("--objects").map(|text| {
        text.parse::<u64>().map_err(|_| AdminAnswer::failed("--objects needs a number of objects, such as 100000"))
    });
    let bytes = args
        .value("--bytes")
        .map(|text| parse_size(text).map_err(|expected| AdminAnswer::failed(format!("--bytes needs {expected}"))));
    Ok(StorageQuota { objects: objects.transpose()?, bytes: bytes.transpose()? })
}

/// The holder of these words: a bucket that exists, or a user by key or e-mail address.
async fn find<'a>(objects: &Objects, kind: &'a str, name: &'a str) -> Result<NamedHolder<'a>, AdminAnswer> {
    let holder = match kind {
        "bucket" => objects.buckets.find(name).await.map(|bucket| QuotaHolder::Bucket(bucket.name.clone())),
        "user" => s3_user::find(objects, name).await.map(|user| QuotaHolder::User(user.id.clone())),
        _ => return Err(AdminAnswer::failed("A quota is that of a bucket or of a user")),
    };
    let holder = holder.map_err(|error| failed("finding", kind, name, &error))?;
    Ok(NamedHolder { kind, name, holder })
}

async fn change(objects: &Objects, named: &NamedHolder<'_>, quota: StorageQuota) -> Result<(), AdminAnswer> {
    let changed = objects.quotas.set(&named.holder, quota).await;
    changed.map_err(|error| failed("changing the quota of", named.kind, named.name, &error))
}

/// A holder in the words of the operator; the canonical id of a user that is gone.
async fn owner_name(objects: &Objects, holder: QuotaHolder) -> Result<(&'static str, String), AdminAnswer> {
    match holder {
        QuotaHolder::Bucket(name) => Ok(("bucket", name)),
        QuotaHolder::User(id) => {
            let user = objects.users.find_by_id(&id).await;
            let user = user.map_err(|error| failed("finding", "user", &id, &error))?;
            Ok(("user", user.map_or(id, |user| user.email.clone())))
        }
    }
}

fn quota_json(kind: &str, name: &str, quota: StorageQuota) -> Json {
    json!({"holder": kind, "name": name, "objects_max": quota.objects, "bytes_max": quota.bytes})
}

fn with_stored(mut quota: Json, stored: Storage) -> Json {
    quota["objects"] = stored.objects.into();
    quota["bytes"] = stored.bytes.into();
    quota
}

fn failed(doing: &str, kind: &str, name: &str, error: &Error) -> AdminAnswer {
    let name = shown(name.as_bytes());
    match error {
        Error::NoSuchBucket(_) | Error::UnknownKey(_) => AdminAnswer::failed(format!("There is no S3 {kind} {name}")),
        error => AdminAnswer::failed(format!("Error {doing} S3 {kind} {name}:\n{error}")),
    }
}
