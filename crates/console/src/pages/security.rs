//! Security of Riak's protocols: users and groups, the networks that they may come from, and their grants. No page has a password.

use std::collections::BTreeMap;

use hyper::StatusCode;
use larder_core::rules::security::{
    AccessRules, GrantChange, GrantTarget, RoleEntry, RoleGrant, RoleKind, RoleOptions, RoleRecord,
};
use maud::{Markup, html};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};

/// The ways in which a user of a network proves to be it.
const METHODS: &[&str] = &["password", "certificate", "trust"];
/// The role that stands for all users.
const ALL: &str = "all";

/// `GET /security`.
pub(super) async fn security(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let rules = call.gateway().security().refreshed_rules().await?;
    let body = html! {
        h1 { "Security of Riak's protocols" }
        (state(call, &rules))
        (roles(call, RoleKind::User, rules.users()))
        (roles(call, RoleKind::Group, rules.groups()))
        (sources(call, &rules))
        (grants(call, &rules))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Security, "Security", &body)))
}

fn state(call: &ConsoleCall<'_>, rules: &AccessRules) -> Markup {
    let is_enabled = rules.settings().enabled;
    let (text, switch, button) = if is_enabled {
        ("Enabled: a request needs a user, its source and its grant.", "off", "Disable")
    } else {
        ("Disabled: requests are taken without a user.", "on", "Enable")
    };
    html! {
        section.panel {
            p { (text) }
            @if !is_enabled && !call.gateway().context().config.offers_tls {
                p { span.tag.changed { "no TLS" } " No listener of this node offers TLS: enabled, security refuses every client here." }
            }
            @if call.may_change() {
                form method="post" action="/security/switch" {
                    (csrf(call.session))
                    input type="hidden" name="switch" value=(switch);
                    button.danger[is_enabled] type="submit" { (button) }
                }
            }
        }
    }
}

fn roles(call: &ConsoleCall<'_>, kind: RoleKind, roles: &BTreeMap<String, RoleEntry>) -> Markup {
    let (title, word) = match kind {
        RoleKind::User => ("Users", "user"),
        RoleKind::Group => ("Groups", "group"),
    };
    html! {
        section.panel {
            h2 { (title) }
            @if roles.is_empty() { p { "None." } }
            @else {
                div.scroll {
                    table {
                        thead { tr { th { "Name" } th { "Groups" } @if kind == RoleKind::User { th { "Password" } } th {} } }
                        tbody { @for (name, entry) in roles { (role_row(call, kind, name, &entry.record)) } }
                    }
                }
            }
            @if call.may_change() {
                details {
                    summary { "Add a " (word) }
                    form.fields method="post" action="/security/roles/add" {
                        (csrf(call.session))
                        input type="hidden" name="kind" value=(word);
                        label { "Name" input name="role" required autocomplete="username" spellcheck="false"; }
                        @if kind == RoleKind::User {
                            label { "Password; empty for none" input name="password" type="password" autocomplete="new-password"; }
                        }
                        label { "Groups, with commas between" input name="groups" autocomplete="off" spellcheck="false"; }
                        button type="submit" { "Add" }
                    }
                }
            }
        }
    }
}

fn role_row(call: &ConsoleCall<'_>, kind: RoleKind, name: &str, record: &RoleRecord) -> Markup {
    let word = if kind == RoleKind::User { "user" } else { "group" };
    html! {
        tr {
            td { (shown(name.as_bytes())) }
            td { (shown(record.groups.join(", ").as_bytes())) }
            @if kind == RoleKind::User { td { @if record.password.is_some() { "set" } @else { "none" } } }
            td {
                @if call.may_change() {
                    @if kind == RoleKind::User {
                        details {
                            summary { "Set the password" }
                            form.fields method="post" action="/security/roles/password" {
                                (csrf(call.session))
                                // Password managers ask for the name beside the password.
                                input type="text" name="role" value=(name) autocomplete="username" hidden;
                                label { "Password" input name="password" type="password" required autocomplete="new-password"; }
                                button type="submit" { "Set" }
                            }
                        }
                    }
                    details {
                        summary { "Delete" }
                        form method="post" action="/security/roles/delete" {
                            (csrf(call.session))
                            input type="hidden" name="kind" value=(word);
                            input type="hidden" name="role" value=(name);
                            button.danger type="submit" { "Delete, with its grants" }
                        }
                    }
                }
            }
        }
    }
}

fn sources(call: &ConsoleCall<'_>, rules: &AccessRules) -> Markup {
    let all = rules.all();
    let of_users = rules
        .users()
        .iter()
        .flat_map(|(name, entry)| entry.record.sources.iter().map(move |source| (name.as_str(), source)));
    let rows: Vec<_> = of_users.chain(all.sources.iter().map(|source| (ALL, source))).collect();
    html! {
        section.panel {
            h2 { "Sources" }
            p.unit { "The networks that users may come from, and how they prove to be who they say." }
            @if rows.is_empty() { p { "None: no user can log in." } }
            @else {
                div.scroll {
                    table {
                        thead { tr { th { "Users" } th { "Network" } th { "Proof" } th {} } }
                        tbody {
                            @for (name, source) in rows {
                                @let network = source.network.to_string();
                                tr {
                                    td { (shown(name.as_bytes())) }
                                    td { code { (network) } }
                                    td { (source.method.word()) }
                                    td {
                                        @if call.may_change() {
                                            form method="post" action="/security/sources/delete" {
                                                (csrf(call.session))
                                                input type="hidden" name="roles" value=(name);
                                                input type="hidden" name="network" value=(network);
                                                button.plain type="submit" { "Delete" }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if call.may_change() {
                details {
                    summary { "Add a source" }
                    form.fields method="post" action="/security/sources/add" {
                        (csrf(call.session))
                        label { "Users, with commas between, or all" input name="roles" value=(ALL) required autocomplete="off" spellcheck="false"; }
                        label { "Network, such as 10.0.0.0/8" input name="network" required autocomplete="off" spellcheck="false"; }
                        label { "Proof" select name="method" { @for method in METHODS { option value=(method) { (method) } } } }
                        button type="submit" { "Add" }
                    }
                }
            }
        }
    }
}

fn grants(call: &ConsoleCall<'_>, rules: &AccessRules) -> Markup {
    let all = rules.all();
    let of_roles = rules.users().iter().chain(rules.groups());
    let of_roles =
        of_roles.flat_map(|(name, entry)| entry.record.grants.iter().map(move |grant| (name.as_str(), grant)));
    let rows: Vec<_> = of_roles.chain(all.grants.iter().map(|grant| (ALL, grant))).collect();
    html! {
        section.panel {
            h2 { "Grants" }
            @if rows.is_empty() { p { "None: no user may do anything." } }
            @else {
                div.scroll {
                    table {
                        thead { tr { th { "To" } th { "On" } th { "Permissions" } } }
                        tbody { @for (name, grant) in rows { (grant_row(name, grant)) } }
                    }
                }
            }
            @if call.may_change() {
                details {
                    summary { "Grant or revoke" }
                    form.fields method="post" action="/security/grants" {
                        (csrf(call.session))
                        label { "Permissions, with commas between" input name="permissions" value="riak_kv.get,riak_kv.put" required autocomplete="off" spellcheck="false"; }
                        label { "Bucket type, or any" input name="type" value="any" required autocomplete="off" spellcheck="false"; }
                        label { "Bucket; empty for all of the type" input name="bucket" autocomplete="off" spellcheck="false"; }
                        label { "Users and groups, with commas between, or all" input name="roles" required autocomplete="off" spellcheck="false"; }
                        label { "Change" select name="change" { option value="grant" { "grant" } option value="revoke" { "revoke" } } }
                        button type="submit" { "Store" }
                    }
                }
            }
        }
    }
}

fn grant_row(name: &str, grant: &RoleGrant) -> Markup {
    let target = match &grant.target {
        GrantTarget::Any => "any".to_owned(),
        GrantTarget::Type(bucket_type) => shown(bucket_type.as_bytes()),
        GrantTarget::Bucket(bucket_type, bucket) => {
            format!("{} / {}", shown(bucket_type.as_bytes()), shown(bucket.as_bytes()))
        }
    };
    let permissions: Vec<&str> = grant.permissions.iter().map(|permission| permission.name()).collect();
    html! { tr { td { (shown(name.as_bytes())) } td { (target) } td { (permissions.join(", ")) } } }
}

/// `POST /security/switch`.
pub(super) async fn switch(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    call.gateway().security().set_enabled(call.form.switch()?).await?;
    Ok(done())
}

/// `POST /security/roles/add`.
pub(super) async fn add_role(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (groups, password) = (call.form.text("groups"), call.form.text("password"));
    let groups = Some(format!("groups={groups}")).filter(|_| !groups.trim().is_empty());
    let password = Some(format!("password={password}")).filter(|_| !password.is_empty());
    let words: Vec<&str> = groups.iter().chain(&password).map(String::as_str).collect();
    let options = RoleOptions::parse(&words).map_err(|refusal| ConsoleFault::sentence(&refusal.to_string()))?;
    call.gateway().security().add_role(kind(call)?, &call.form.text("role"), options).await?;
    Ok(done())
}

/// `POST /security/roles/password`.
pub(super) async fn alter_password(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    if call.form.given("password").is_none() {
        return Err(ConsoleFault::bad("The password is empty."));
    }
    let options = RoleOptions { password: Some(call.form.text("password")), ..RoleOptions::default() };
    call.gateway().security().alter_role(RoleKind::User, &call.form.text("role"), options).await?;
    Ok(done())
}

/// `POST /security/roles/delete`.
pub(super) async fn delete_role(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    call.gateway().security().delete_role(kind(call)?, &call.form.text("role")).await?;
    Ok(done())
}

/// `POST /security/sources/add`.
pub(super) async fn add_source(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (roles, network, method) = (call.form.text("roles"), call.form.text("network"), call.form.text("method"));
    call.gateway().security().add_source(&roles, &network, &method, &[]).await?;
    Ok(done())
}

/// `POST /security/sources/delete`.
pub(super) async fn delete_source(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    call.gateway().security().delete_source(&call.form.text("roles"), &call.form.text("network")).await?;
    Ok(done())
}

/// `POST /security/grants`.
pub(super) async fn change_grants(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let change = match call.form.word("change", &["grant", "revoke"])? {
        "revoke" => GrantChange::Revoke,
        _ => GrantChange::Grant,
    };
    let (bucket_type, bucket) = (call.form.text("type"), call.form.text("bucket"));
    let target = match (bucket_type.as_str(), bucket.is_empty()) {
        ("any", true) => GrantTarget::Any,
        ("any", false) => {
            return Err(ConsoleFault::bad("A bucket needs its type: any means every bucket of every type."));
        }
        (_, true) => GrantTarget::Type(bucket_type),
        (_, false) => GrantTarget::Bucket(bucket_type, bucket),
    };
    let (permissions, roles) = (call.form.text("permissions"), call.form.text("roles"));
    call.gateway().security().change_grants(change, &permissions, &target, &roles).await?;
    Ok(done())
}

fn kind(call: &ConsoleCall<'_>) -> Result<RoleKind, ConsoleFault> {
    let kind = call.form.word("kind", &["user", "group"])?;
    Ok(if kind == "group" { RoleKind::Group } else { RoleKind::User })
}

fn done() -> ConsoleReply {
    redirect(Href::to("/security").with("done", b"security"))
}
