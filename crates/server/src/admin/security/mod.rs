//! `security`: users, groups, sources and grants of Riak's protocols, with Riak's texts. No answer has a password.

mod print;

use std::sync::Arc;

use larder_core::rules::security::{AccessRules, GrantChange, GrantTarget, RoleKind, RoleOptions, SecurityRefusal};
use larder_core::security::SecurityError;
use larder_kv_admin::frame::AdminAnswer;
use larder_net::CipherList;
use serde_json::json;

use super::command::{CommandCall, CommandResult, reasons, shown};

pub(super) use print::{print_grants, print_group, print_groups, print_sources, print_user, print_users};

/// Longest list of ciphers, in bytes.
const CIPHERS_BYTES_MAX: usize = 8 * 1024;
const GRANT_USAGE: &str = "Usage: grant <permissions> on (<type> [bucket]|any) to <users>";
const REVOKE_USAGE: &str = "Usage: revoke <permissions> on <type> [bucket] from <users>";
/// The note to the switch of security on a server that nobody can use then.
const NO_TLS: &str = "Warning: no listener of this gateway offers TLS, so it refuses all clients of Riak's protocols from now on. \
                      Start it with --tls-cert and --tls-key, or undo this with `kv-admin security disable`.";

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    Ok(security_status(&*rules(&call).await?, call.json))
}

pub(super) async fn enable(call: CommandCall<'_>) -> CommandResult {
    call.gateway().security().set_enabled(true).await.map_err(refused)?;
    let answer = security_status(&*rules(&call).await?, call.json);
    let warning = if call.gateway().context().config.offers_tls { String::new() } else { format!("{NO_TLS}\n") };
    Ok(AdminAnswer { stderr: warning, ..answer })
}

pub(super) async fn disable(call: CommandCall<'_>) -> CommandResult {
    call.gateway().security().set_enabled(false).await.map_err(refused)?;
    Ok(security_status(&*rules(&call).await?, call.json))
}

pub(super) async fn add_user(call: CommandCall<'_>) -> CommandResult {
    add(call, RoleKind::User).await
}

pub(super) async fn add_group(call: CommandCall<'_>) -> CommandResult {
    add(call, RoleKind::Group).await
}

pub(super) async fn alter_user(call: CommandCall<'_>) -> CommandResult {
    alter(call, RoleKind::User).await
}

pub(super) async fn alter_group(call: CommandCall<'_>) -> CommandResult {
    alter(call, RoleKind::Group).await
}

pub(super) async fn del_user(call: CommandCall<'_>) -> CommandResult {
    delete(call, RoleKind::User).await
}

pub(super) async fn del_group(call: CommandCall<'_>) -> CommandResult {
    delete(call, RoleKind::Group).await
}

pub(super) async fn add_source(call: CommandCall<'_>) -> CommandResult {
    let [users, cidr, method, options @ ..] = call.args else { return Err(bad_call()) };
    call.gateway().security().add_source(users, cidr, method, options).await.map_err(refused)?;
    Ok(AdminAnswer::done("Successfully added source"))
}

pub(super) async fn del_source(call: CommandCall<'_>) -> CommandResult {
    let [users, cidr] = call.args else { return Err(bad_call()) };
    call.gateway().security().delete_source(users, cidr).await.map_err(refused)?;
    Ok(AdminAnswer::done("Deleted source"))
}

pub(super) async fn grant(call: CommandCall<'_>) -> CommandResult {
    change_grants(call, GrantChange::Grant, "to", GRANT_USAGE).await?;
    Ok(AdminAnswer::done("Successfully granted"))
}

pub(super) async fn revoke(call: CommandCall<'_>) -> CommandResult {
    change_grants(call, GrantChange::Revoke, "from", REVOKE_USAGE).await?;
    Ok(AdminAnswer::done("Successfully revoked"))
}

pub(super) async fn ciphers(call: CommandCall<'_>) -> CommandResult {
    if let [list] = call.args {
        if list.len() > CIPHERS_BYTES_MAX {
            return Err(refused(SecurityRefusal::TooLong("list of ciphers", CIPHERS_BYTES_MAX).into()));
        }
        if CipherList::parse(list).offered.is_empty() {
            return Err(refused(SecurityRefusal::NoCipher.into()));
        }
        call.gateway().security().set_ciphers(list).await.map_err(refused)?;
    }
    let rules = rules(&call).await?;
    let usual = larder_net::CIPHER_NAMES.join(":");
    let list = rules.settings().ciphers.as_deref().unwrap_or(&usual);
    let CipherList { offered, others } = CipherList::parse(list);
    if call.json {
        return Ok(AdminAnswer::json(&json!({"configured": list, "valid": offered, "unknown": others})));
    }
    let mut text =
        format!("Configured ciphers\n\n{list}\n\nValid ciphers({})\n\n{}\n\n", offered.len(), offered.join(":"));
    if !others.is_empty() {
        text += &format!("Unknown/Unsupported ciphers({})\n\n{}\n\n", others.len(), shown(others.join(":").as_bytes()));
    }
    Ok(AdminAnswer::done(text))
}

/// The options of a role. A password may come from a file or from standard input: `password=@FILE`, `password=-`.
fn options(call: &CommandCall<'_>, words: &[&str]) -> Result<RoleOptions, AdminAnswer> {
    let mut read = Vec::with_capacity(words.len());
    for word in words {
        let content = call.content(word).map_err(AdminAnswer::failed)?;
        let is_read = content != *word && word.starts_with("password=");
        read.push(if is_read {
            format!("password={}", content.trim_end_matches(['\n', '\r']))
        } else {
            (*word).to_owned()
        });
    }
    let words: Vec<&str> = read.iter().map(String::as_str).collect();
    RoleOptions::parse(&words).map_err(|error| refused(error.into()))
}

async fn add(call: CommandCall<'_>, kind: RoleKind) -> CommandResult {
    let [name, words @ ..] = call.args else { return Err(bad_call()) };
    let options = options(&call, words)?;
    call.gateway().security().add_role(kind, name, options).await.map_err(refused)?;
    print::role(&*rules(&call).await?, kind, name, call.json)
}

async fn alter(call: CommandCall<'_>, kind: RoleKind) -> CommandResult {
    let [name, words @ ..] = call.args else { return Err(bad_call()) };
    let options = options(&call, words)?;
    call.gateway().security().alter_role(kind, name, options).await.map_err(refused)?;
    print::role(&*rules(&call).await?, kind, name, call.json)
}

async fn delete(call: CommandCall<'_>, kind: RoleKind) -> CommandResult {
    let name = call.args[0];
    call.gateway().security().delete_role(kind, name).await.map_err(refused)?;
    Ok(AdminAnswer::done(format!("Successfully deleted {}", shown(name.as_bytes()))))
}

/// `P1,P2 on any to R`, or with a type or a type and a bucket in the place of `any`.
async fn change_grants(call: CommandCall<'_>, change: GrantChange, to: &str, usage: &str) -> Result<(), AdminAnswer> {
    let (permissions, target, roles) = match call.args {
        [permissions, "on", "any", word, roles] if *word == to => (permissions, GrantTarget::Any, roles),
        [permissions, "on", of_type, word, roles] if *word == to => {
            (permissions, GrantTarget::Type((*of_type).to_owned()), roles)
        }
        // `any` has no buckets: a grant on a type of this name would match nothing.
        [permissions, "on", of_type, bucket, word, roles] if *word == to && *of_type != "any" => {
            (permissions, GrantTarget::Bucket((*of_type).to_owned(), (*bucket).to_owned()), roles)
        }
        _ => return Err(AdminAnswer::failed(usage)),
    };
    call.gateway().security().change_grants(change, permissions, &target, roles).await.map_err(refused)
}

async fn rules(call: &CommandCall<'_>) -> Result<Arc<AccessRules>, AdminAnswer> {
    call.gateway().security().refreshed_rules().await.map_err(|error| refused(error.into()))
}

fn security_status(rules: &AccessRules, json: bool) -> AdminAnswer {
    let enabled = rules.settings().enabled;
    if json {
        return AdminAnswer::json(&json!({ "enabled": enabled }));
    }
    AdminAnswer::done(if enabled { "Enabled" } else { "Disabled" })
}

fn refused(error: SecurityError) -> AdminAnswer {
    AdminAnswer::failed(match &error {
        SecurityError::Refused(refusal) => shown(refusal.to_string().as_bytes()),
        SecurityError::Gateway(error) => reasons(error),
    })
}

/// The answer to arguments that the table of commands keeps from here.
fn bad_call() -> AdminAnswer {
    AdminAnswer::usage("security <command>")
}
