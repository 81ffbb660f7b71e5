//! The users of the S3 side with their keys. A secret is shown once, on the page that answers its creation.

use hyper::StatusCode;
use larder_rows::Timestamp;
use larder_s3::users::{NewKey, NewUser, UserChange};
use larder_s3_rules::{AccessKey, KeyLimits, User};
use maud::{Markup, html};

use super::s3_links::LINES_SHOWN;
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, pager, trail};
use crate::href::Href;
use crate::reply::{ChangeTarget, ConsoleReply, page, redirect};
use crate::units;

/// Most days until a key expires.
const DAYS_MAX: u64 = 36_500;
/// Microseconds of a day.
const DAY_MICROS: u64 = 86_400_000_000;

/// `GET /s3/users`.
pub(super) async fn users(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let after = call.query.text("after");
    let users = call.objects.users.list(&after, LINES_SHOWN + 1).await?;
    let (shown_users, more) = users.split_at(users.len().min(LINES_SHOWN));
    let last = shown_users.last().filter(|_| !more.is_empty());
    let next = last.map(|last| Href::to("/s3/users").with("after", last.id.as_bytes()));
    let now = call.gateway().context().now();
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned())], "Users"))
        h1 { "S3 users and keys" }
        @if shown_users.is_empty() { p { "No users." } }
        @for user in shown_users { (user_card(call, user, now)) }
        (pager((!after.is_empty()).then(|| Href::to("/s3/users")), next))
        @if call.may_change() { (create_form(call)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "S3 users", &body)))
}

fn create_form(call: &ConsoleCall<'_>) -> Markup {
    html! {
        section.panel {
            h2 { "Create a user" }
            form.fields method="post" action="/s3/users/create" {
                (csrf(call.session))
                label for="name" { "Name" }
                input id="name" name="name" required autocomplete="off";
                label for="email" { "E-mail address" }
                input id="email" name="email" type="email" required autocomplete="off";
                button type="submit" { "Create" }
            }
        }
    }
}

fn user_card(call: &ConsoleCall<'_>, user: &User, now: Timestamp) -> Markup {
    html! {
        section.panel {
            div.head {
                h2 { (shown(user.name.as_bytes())) }
                @if user.admin { span.tag.good { "admin" } }
                @if !user.enabled { span.tag.bad { "disabled" } }
                span.unit { (shown(user.email.as_bytes())) }
            }
            dl.rows {
                div { dt { "Key" } dd { code { (shown(user.key_id.as_bytes())) } } }
                @for key in &user.further_keys {
                    div {
                        dt { "Further key" }
                        dd {
                            code { (shown(key.id.as_bytes())) } " " span.unit { (limits(key, now)) }
                            @if call.may_change() { (button(call, "/s3/keys/revoke", &key.id, "Revoke", "plain")) }
                        }
                    }
                }
                @for (what, names) in [("Policies", &user.policies), ("Groups", &user.groups)] {
                    @if !names.is_empty() { div { dt { (what) } dd { code { (names.join(" ")) } } } }
                }
                div { dt { "Created" } dd { (units::moment(user.created)) } }
                div { dt { "Canonical id" } dd { code { (shown(user.id.as_bytes())) } } }
            }
            @if call.may_change() { (changes(call, user)) }
        }
    }
}

fn changes(call: &ConsoleCall<'_>, user: &User) -> Markup {
    let id = &user.key_id;
    html! {
        details {
            summary { "Add a key" }
            form.fields method="post" action="/s3/keys/create" {
                (csrf(call.session))
                input type="hidden" name="id" value=(id);
                label { "Buckets that it may use, with spaces between; none for all" input name="buckets" autocomplete="off" spellcheck="false"; }
                label { "Begin of the keys that it may use" input name="prefix" autocomplete="off" spellcheck="false"; }
                label { "Days until it expires; none for never" input name="days" type="number" min="1" max="36500"; }
                label { "Rights" select name="rights" { option value="all" { "reads and writes" } option value="reads" { "reads only" } } }
                button type="submit" { "Add" }
            }
        }
        details {
            summary { "Change the user" }
            div.actions {
                form method="post" action="/s3/users/switch" {
                    (csrf(call.session))
                    input type="hidden" name="id" value=(id);
                    input type="hidden" name="switch" value=(if user.enabled { "off" } else { "on" });
                    button.danger[user.enabled] type="submit" { @if user.enabled { "Disable" } @else { "Enable" } }
                }
                (button(call, "/s3/users/rotate", id, "Replace the secret", "danger"))
                @if !user.admin { (button(call, "/s3/users/delete", id, "Delete", "danger")) }
            }
        }
    }
}

/// A form of one button about a key.
fn button(call: &ConsoleCall<'_>, path: &str, id: &str, name: &str, class: &str) -> Markup {
    html! {
        form method="post" action=(path) {
            (csrf(call.session))
            input type="hidden" name="id" value=(id);
            button class=(class) type="submit" { (name) }
        }
    }
}

fn limits(key: &AccessKey, now: Timestamp) -> String {
    let limits = &key.limits;
    let mut parts = Vec::new();
    if limits.read_only {
        parts.push("reads only".to_owned());
    }
    if !limits.buckets.is_empty() {
        parts.push(format!("buckets {}", shown(limits.buckets.join(", ").as_bytes())));
    }
    if !limits.prefixes.is_empty() {
        parts.push(format!("prefixes {}", shown(limits.prefixes.join(", ").as_bytes())));
    }
    if let Some(expires) = limits.expires {
        let verb = if expires <= now { "expired" } else { "expires" };
        parts.push(format!("{verb} {}", units::moment(expires)));
    }
    parts.join("; ")
}

/// `POST /s3/users/create`.
pub(super) async fn create(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (email, name) = (call.form.text("email"), call.form.text("name"));
    let user = call.objects.users.create_user(NewUser { email, name, ..NewUser::default() }).await?;
    Ok(secret_page(call, "The user is created", &user.key_id, &user.secret))
}

/// `POST /s3/users/switch`.
pub(super) async fn switch(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    // What the button said, not the contrary of what is: the user may have changed since the page was made.
    let enabled = call.form.switch()?;
    let change = UserChange { enabled: Some(enabled), ..UserChange::default() };
    call.objects.users.update(&call.form.text("id"), change).await?;
    Ok(redirect(Href::to("/s3/users").with("done", if enabled { b"user-enabled" } else { b"user-disabled" })))
}

/// `POST /s3/users/rotate`.
pub(super) async fn rotate(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let change = UserChange { new_secret: true, ..UserChange::default() };
    let user = call.objects.users.update(&call.form.text("id"), change).await?;
    Ok(secret_page(call, "The secret is replaced", &user.key_id, &user.secret))
}

/// `POST /s3/users/delete`.
pub(super) async fn delete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let id = call.form.text("id");
    if call.objects.users.find_by_key(&id).await?.admin {
        return Err(ConsoleFault::bad("The S3 administrator cannot be deleted."));
    }
    call.objects.users.delete(&id).await?;
    Ok(redirect(Href::to("/s3/users").with("done", b"user-deleted")))
}

/// `POST /s3/keys/create`.
pub(super) async fn create_key(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (buckets, prefix, days) = (call.form.text("buckets"), call.form.text("prefix"), call.form.text("days"));
    let expires = match days.trim() {
        "" => None,
        days => {
            let days = days.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
            let days = days.ok_or_else(|| ConsoleFault::bad(format!("The days are a number from 1 to {DAYS_MAX}.")))?;
            Some(call.gateway().context().now().saturating_add(days * DAY_MICROS))
        }
    };
    let limits = KeyLimits {
        read_only: call.form.word("rights", &["all", "reads"])? == "reads",
        buckets: buckets.split_whitespace().map(str::to_owned).collect(),
        prefixes: Some(prefix).filter(|prefix| !prefix.is_empty()).into_iter().collect(),
        expires,
    };
    let new = NewKey { limits, ..NewKey::default() };
    let (_, key) = call.objects.users.add_key(&call.form.text("id"), new).await?;
    let mut reply = secret_page(call, "The key is added", &key.id, &key.secret);
    let target = format!("{}: {}", shown(call.form.text("id").as_bytes()), shown(key.id.as_bytes()));
    reply.extensions_mut().insert(ChangeTarget(target));
    Ok(reply)
}

/// `POST /s3/keys/revoke`.
pub(super) async fn revoke_key(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    call.objects.users.revoke_key(&call.form.text("id")).await?;
    Ok(redirect(Href::to("/s3/users").with("done", b"key-revoked")))
}

/// The only page that shows a secret.
fn secret_page(call: &ConsoleCall<'_>, title: &str, id: &str, secret: &str) -> ConsoleReply {
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned()), (Href::to("/s3/users"), "Users".to_owned())], title))
        h1 { (title) }
        p { "The secret is shown now, and not again." }
        dl.rows {
            div { dt { "Access key id" } dd { code id="key-id" { (id) } } }
            div { dt { "Secret access key" } dd { code id="secret" { (secret) } } }
        }
        p { a href="/s3/users" { "Users and keys" } }
    };
    page(StatusCode::OK, framed(call, ConsoleSection::S3, title, &body))
}
