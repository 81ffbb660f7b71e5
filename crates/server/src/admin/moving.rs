//! `move`: the data of a Riak, or of another Larder, comes here while clients use both.

use std::fmt::Write as _;

use bytes::Bytes;
use larder_kv_admin::frame::AdminAnswer;
use larder_moving::rules::{SourceAddress, parse_queue_name};
use larder_moving::{MOVE_RATE_DEFAULT, MoveRefusal, MoveReportLine, MoveStatus, NewMove};
use larder_rows::{MOVE_QUEUE_DEFAULT, MoveWish, S3MoveTerms, Timestamp};
use serde_json::{Value, json};

use super::command::{CommandCall, CommandOption, CommandResult, OptionKind, ParsedArgs, reasons, shown};

/// The options of `move start`.
pub(super) const START_OPTIONS: &[CommandOption] = &[
    CommandOption { name: "--types", kind: OptionKind::Value },
    CommandOption { name: "--buckets", kind: OptionKind::Value },
    CommandOption { name: "--secret-file", kind: OptionKind::Value },
    CommandOption { name: "--owner", kind: OptionKind::Value },
    CommandOption { name: "--acls", kind: OptionKind::Flag },
    CommandOption { name: "--rate", kind: OptionKind::Value },
    CommandOption { name: "--queue", kind: OptionKind::Value },
];
/// The option of `move verify`.
pub(super) const VERIFY_OPTIONS: &[CommandOption] = &[CommandOption { name: "--repair", kind: OptionKind::Flag }];
/// The option of `move back` and `move finish`.
pub(super) const FORCE_OPTIONS: &[CommandOption] = &[CommandOption { name: "--force", kind: OptionKind::Flag }];
/// Most requests in a second that an operator may ask for.
const RATE_MAX: u32 = 1_000_000;
const START_USAGE: &str = "move start riak://HOST:8098[,HOST2:8098] | s3://KEY@HOST:PORT --secret-file FILE";
/// The type of buckets without one.
const DEFAULT_TYPE: &str = "default";

pub(super) async fn start(call: CommandCall<'_>) -> CommandResult {
    let args = ParsedArgs::parse(call.args, START_OPTIONS).map_err(AdminAnswer::failed)?;
    let [source] = args.plain[..] else { return Err(AdminAnswer::usage(START_USAGE)) };
    let source = SourceAddress::parse(source).map_err(AdminAnswer::failed)?;
    if let Some(host) = source.host_among(&call.context.listeners) {
        return Err(AdminAnswer::failed(format!("{host} is this server: a move brings what another one has")));
    }
    let rate = match args.value("--rate") {
        None => MOVE_RATE_DEFAULT,
        Some(text) => match text.parse() {
            Ok(rate) if (1..=RATE_MAX).contains(&rate) => rate,
            _ => return Err(AdminAnswer::failed("--rate is a number of requests in a second, from 1")),
        },
    };
    let new = match &source {
        SourceAddress::Riak(_) => {
            let (types, queue) = (riak_types(&args)?, riak_queue(&args)?);
            NewMove { source, types, rate, queue, s3: None }
        }
        SourceAddress::S3(_) => {
            let s3 = Some(s3_terms(&call, &args).await?);
            NewMove { source, types: Vec::new(), rate, queue: String::new(), s3 }
        }
    };
    let order = call.context.mover.start(new).await.map_err(refusal)?;
    Ok(AdminAnswer::done(format!(
        "a move from {} begins: {rate} requests a second at most; `kv-admin move status` shows it",
        order.source
    )))
}

/// The bucket types of a move from a Riak.
fn riak_types(args: &ParsedArgs<'_>) -> Result<Vec<Bytes>, AdminAnswer> {
    let is_given = |name: &&str| args.value(name).is_some() || args.has(name);
    if let Some(option) = ["--buckets", "--secret-file", "--owner", "--acls"].into_iter().find(is_given) {
        return Err(AdminAnswer::failed(format!("{option} is for moves from s3://")));
    }
    let types: Vec<_> = args.value("--types").unwrap_or(DEFAULT_TYPE).split(',').map(str::trim).collect();
    if types.iter().any(|name| name.is_empty()) {
        return Err(AdminAnswer::failed("--types has names of bucket types, separated by commas"));
    }
    Ok(types.into_iter().map(|name| name.to_owned().into()).collect())
}

/// The replication queue of a move from a Riak.
fn riak_queue(args: &ParsedArgs<'_>) -> Result<String, AdminAnswer> {
    let name = args.value("--queue").unwrap_or(MOVE_QUEUE_DEFAULT);
    parse_queue_name(name).map_err(|why| AdminAnswer::failed(format!("--queue: {why}")))
}

/// The terms of a move from an S3 store.
async fn s3_terms(call: &CommandCall<'_>, args: &ParsedArgs<'_>) -> Result<S3MoveTerms, AdminAnswer> {
    if args.value("--types").is_some() {
        return Err(AdminAnswer::failed("--types is for moves from riak://; --buckets names the buckets of s3://"));
    }
    if args.value("--queue").is_some() {
        return Err(AdminAnswer::failed("--queue is for moves from riak://"));
    }
    let secret = args.secret(call.request)?.filter(|secret| !secret.is_empty());
    let secret = secret.ok_or_else(|| AdminAnswer::failed("--secret-file names the file with the key's secret"))?;
    let buckets: Vec<_> =
        args.value("--buckets").into_iter().flat_map(|names| names.split(',')).map(str::trim).collect();
    if buckets.iter().any(|name| name.is_empty()) {
        return Err(AdminAnswer::failed("--buckets has names of buckets, separated by commas"));
    }
    let users = &call.objects().users;
    let failed = |error: larder_s3::Error| AdminAnswer::failed(error.to_string());
    let owner = match args.value("--owner") {
        Some(email) => users.find_by_email(email).await.map_err(failed)?.ok_or_else(|| {
            AdminAnswer::failed(format!("no user has the e-mail address {}", shown(email.as_bytes())))
        })?,
        None => users.admin().await.map_err(failed)?.ok_or_else(|| {
            AdminAnswer::failed(
                "there is no S3 admin to own the buckets: start the S3 interface, or name --owner EMAIL",
            )
        })?,
    };
    let buckets = buckets.into_iter().map(str::to_owned).collect();
    Ok(S3MoveTerms { secret, buckets, owner: owner.id.clone(), acls: args.has("--acls") })
}

pub(super) async fn verify(call: CommandCall<'_>) -> CommandResult {
    let args = ParsedArgs::parse(call.args, VERIFY_OPTIONS).map_err(AdminAnswer::failed)?;
    if !args.plain.is_empty() {
        return Err(AdminAnswer::usage("move verify [--repair]"));
    }
    let choice = if args.has("--repair") { MoveWish::Repair } else { MoveWish::Verify };
    wish(&call, choice, "all keys are compared; `kv-admin move status` shows what differs").await
}

pub(super) async fn pause(call: CommandCall<'_>) -> CommandResult {
    wish(&call, MoveWish::Pause, "the move stops until `kv-admin move resume`").await
}

pub(super) async fn resume(call: CommandCall<'_>) -> CommandResult {
    wish(&call, MoveWish::Run, "the move goes on").await
}

pub(super) async fn cancel(call: CommandCall<'_>) -> CommandResult {
    wish(&call, MoveWish::Cancel, "the move ends; what it copied stays, and a new start from the same source goes on")
        .await
}

pub(super) async fn finish(call: CommandCall<'_>) -> CommandResult {
    let text = "the move is finished; what it knew of the source is removed";
    forced_wish(&call, MoveWish::Finish, "move finish [--force]", text).await
}

pub(super) async fn back(call: CommandCall<'_>) -> CommandResult {
    let text = "changes go back to the Riak, which fetches them from /queuename/back; `kv-admin move finish` ends it";
    forced_wish(&call, MoveWish::Back, "move back [--force]", text).await
}

/// A wish that the move may refuse unless it is forced.
async fn forced_wish(call: &CommandCall<'_>, wish: MoveWish, usage: &'static str, text: &str) -> CommandResult {
    let args = ParsedArgs::parse(call.args, FORCE_OPTIONS).map_err(AdminAnswer::failed)?;
    if !args.plain.is_empty() {
        return Err(AdminAnswer::usage(usage));
    }
    call.context.mover.wish(wish, args.has("--force")).await.map_err(refusal)?;
    Ok(AdminAnswer::done(text))
}

async fn wish(call: &CommandCall<'_>, wish: MoveWish, text: &str) -> CommandResult {
    call.context.mover.wish(wish, false).await.map_err(refusal)?;
    Ok(AdminAnswer::done(text))
}

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let status = call.context.mover.status().await.map_err(|error| AdminAnswer::failed(reasons(&error)))?;
    let now = call.gateway().context().now();
    match (status, call.json) {
        (None, true) => Ok(AdminAnswer::json(&json!({ "phase": null }))),
        (None, false) => Ok(AdminAnswer::done("No move was started")),
        (Some(status), true) => Ok(AdminAnswer::json(&Value::Object(status.to_json(now)))),
        (Some(status), false) => Ok(AdminAnswer::done(status_text(&status, now))),
    }
}

fn refusal(refusal: MoveRefusal) -> AdminAnswer {
    match refusal {
        MoveRefusal::Refused(text) => AdminAnswer::failed(text),
        MoveRefusal::Failed(error) => AdminAnswer::failed(reasons(&error)),
    }
}

fn status_text(status: &MoveStatus, now: Timestamp) -> String {
    let mut text = status.title() + "\n";
    for MoveReportLine { name, text: line } in status.report(now) {
        // Writing into a text does not fail.
        let _ = writeln!(text, "{name:<15}{line}");
    }
    text
}
