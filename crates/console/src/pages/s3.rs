//! The S3 side: buckets, their keys by prefix, the versions of a key, and the users with their keys, without secrets.

use bytes::Bytes;
use hyper::StatusCode;
use larder_rows::Timestamp;
use larder_s3::list::{ListObjects, ListVersions};
use larder_s3::rules::listing::KeyOrPrefix;
use larder_s3::rules::{AccessKey, S3Action, User, Versioning};
use maud::{Markup, html};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, framed, pager, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page};
use crate::units;

/// Lines of a page.
pub(super) const LINES_SHOWN: usize = 100;

/// `GET /s3`.
pub(super) async fn buckets(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let after = call.query.given("after").map(|_| call.query.text("after"));
    let all = call.objects.buckets.all().await?;
    let mut following = all.iter().filter(|bucket| after.as_ref().is_none_or(|after| bucket.name > *after));
    let shown_buckets: Vec<_> = following.by_ref().take(LINES_SHOWN).collect();
    let last = shown_buckets.last().filter(|_| following.next().is_some());
    let next = last.map(|last| Href::to("/s3").with("after", last.name.as_bytes()));
    let body = html! {
        div.head { h1 { "S3 buckets" } a href="/s3/users" { "Users and keys" } }
        div.scroll {
            @if shown_buckets.is_empty() { p.empty { "No buckets." } }
            @else {
                table {
                    thead { tr { th { "Bucket" } th { "Created" } th { "Versioning" } th { "Uploads" } } }
                    tbody {
                        @for bucket in &shown_buckets {
                            tr {
                                td { a href=(to_bucket(&bucket.name).text()) { (shown(bucket.name.as_bytes())) } }
                                td { (units::moment(bucket.created)) }
                                td { (versioning(bucket.versioning)) }
                                td { a href=(to_uploads(&bucket.name).text()) { "Open uploads" } }
                            }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| Href::to("/s3")), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "S3 buckets", &body)))
}

/// `GET /s3/bucket`.
pub(super) async fn bucket(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, prefix, after) = (call.query.text("bucket"), call.query.bytes("prefix"), call.query.bytes("after"));
    let request = ListObjects {
        bucket: name.clone(),
        prefix: prefix.clone(),
        delimiter: Bytes::from_static(b"/"),
        after: after.clone(),
        max: LINES_SHOWN,
    };
    let caller = call.s3_caller(S3Action::ListBucket).await?;
    let found = call.objects.list(&caller, &request).await?;
    let first = to_bucket(&name).with("prefix", &prefix);
    let next = found.next.map(|next| first.clone().with("after", &next));
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned()), (to_bucket(&name), shown(name.as_bytes()))], &shown(&prefix)))
        div.head { h1 { (shown(name.as_bytes())) } a href=(to_uploads(&name).text()) { "Open uploads" } }
        div.scroll {
            @if found.lines.is_empty() { p.empty { "No objects." } }
            @else {
                table {
                    thead { tr { th { "Key" } th.number { "Size" } th { "Changed" } } }
                    tbody {
                        @for line in &found.lines {
                            @match line {
                                KeyOrPrefix::Prefix(one) => {
                                    tr { td.name { a href=(to_bucket(&name).with("prefix", one).text()) { (shown(one)) } } td {} td {} }
                                }
                                KeyOrPrefix::Key(key, entry) => {
                                    tr {
                                        td.name { a href=(to_versions(&name, key).text()) { (shown(key)) } }
                                        td.number { (units::bytes(entry.object.as_ref().map_or(0, |object| object.length))) }
                                        td { (units::moment(entry.modified)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        (pager((!after.is_empty()).then_some(first), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, &shown(name.as_bytes()), &body)))
}

/// `GET /s3/object`: the versions of a key.
pub(super) async fn versions(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, key) = (call.query.text("bucket"), call.query.bytes("key"));
    let version = call.query.given("version").map(|_| call.query.text("version"));
    let after = if version.is_some() { key.clone() } else { Bytes::new() };
    let objects =
        ListObjects { bucket: name.clone(), prefix: key.clone(), delimiter: Bytes::new(), after, max: LINES_SHOWN };
    let caller = call.s3_caller(S3Action::ListBucketVersions).await?;
    let found = call.objects.list_versions(&caller, &ListVersions { objects, version: version.clone() }).await?;
    let lines: Vec<_> = found
        .lines
        .iter()
        .filter_map(|line| match line {
            KeyOrPrefix::Key(one, listed) if *one == key => Some(listed),
            _ => None,
        })
        .collect();
    let next = found.next.filter(|(last, _)| *last == key).and_then(|(_, id)| id);
    let next = next.map(|id| to_versions(&name, &key).with("version", id.as_bytes()));
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned()), (to_bucket(&name), shown(name.as_bytes()))], &shown(&key)))
        h1 { (shown(&key)) }
        div.scroll {
            @if lines.is_empty() { p.empty { "No version of this key." } }
            @else {
                table {
                    thead { tr { th { "Version" } th { "Written" } th.number { "Size" } th {} } }
                    tbody {
                        @for one in &lines {
                            tr {
                                td { code { (shown(one.version_id.as_bytes())) } }
                                td { (units::moment(one.version.modified)) }
                                td.number { @if let Some(object) = &one.version.object { (units::bytes(object.length())) } }
                                td {
                                    @if one.latest { span.tag.good { "current" } " " }
                                    @if one.version.object.is_none() { span.tag { "delete marker" } }
                                }
                            }
                        }
                    }
                }
            }
        }
        (pager(version.map(|_| to_versions(&name, &key)), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, &shown(&key), &body)))
}

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
        @for user in shown_users { (user_card(user, now)) }
        (pager((!after.is_empty()).then(|| Href::to("/s3/users")), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "S3 users", &body)))
}

fn user_card(user: &User, now: Timestamp) -> Markup {
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
                    div { dt { "Further key" } dd { code { (shown(key.id.as_bytes())) } " " span.unit { (limits(key, now)) } } }
                }
                div { dt { "Created" } dd { (units::moment(user.created)) } }
                div { dt { "Canonical id" } dd { code { (shown(user.id.as_bytes())) } } }
            }
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

fn versioning(versioning: Versioning) -> &'static str {
    match versioning {
        Versioning::Off => "off",
        Versioning::Enabled => "enabled",
        Versioning::Suspended => "suspended",
    }
}

pub(super) fn to_bucket(name: &str) -> Href {
    Href::to("/s3/bucket").with("bucket", name.as_bytes())
}

pub(super) fn to_uploads(name: &str) -> Href {
    Href::to("/s3/uploads").with("bucket", name.as_bytes())
}

fn to_versions(bucket: &str, key: &[u8]) -> Href {
    Href::to("/s3/object").with("bucket", bucket.as_bytes()).with("key", key)
}
