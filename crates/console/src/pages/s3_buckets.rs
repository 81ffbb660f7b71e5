//! The buckets of the S3 side, and the keys of one by prefix. Buckets are created and deleted here, and files uploaded.

use bytes::Bytes;
use hyper::StatusCode;
use larder_rows::limits::S3_KEY_BYTES_MAX;
use larder_s3::acl::AclChoice;
use larder_s3::list::ListObjects;
use larder_s3_rules::listing::KeyOrPrefix;
use larder_s3_rules::{S3Action, Versioning};
use maud::{Markup, html};

use super::s3_links::{LINES_SHOWN, below, folders, to_bucket, to_s3_object, to_settings, to_uploads};
use super::s3_uploads::{PART_BYTES, PARTS_MAX};
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, moment_cell, pager, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};
use crate::units;

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
                    thead { tr { th { "Bucket" } th { "Created" } th { "Versioning" } th {} } }
                    tbody {
                        @for bucket in &shown_buckets {
                            tr {
                                td.name { a href=(to_bucket(&bucket.name).text()) { (shown(bucket.name.as_bytes())) } }
                                (moment_cell(bucket.created))
                                td { (versioning(bucket.versioning)) }
                                td.act { a href=(to_settings(&bucket.name).text()) { "Settings" } }
                            }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| Href::to("/s3")), next))
        @if call.may_change() { (create_form(call)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "S3 buckets", &body)))
}

fn create_form(call: &ConsoleCall<'_>) -> Markup {
    html! {
        section.panel {
            h2 { "Create a bucket" }
            form.fields method="post" action="/s3/create" {
                (csrf(call.session))
                label for="bucket" { "Name" }
                input id="bucket" name="bucket" required minlength="3" maxlength="63" autocomplete="off" spellcheck="false";
                p.unit { "3 to 63 small letters, digits, dots and hyphens. The S3 administrator owns it." }
                button type="submit" { "Create" }
            }
        }
    }
}

/// `POST /s3/create`.
pub(super) async fn create(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.form.text("bucket");
    // The API answers its owner that it is there, as AWS does; a person would take that for a new bucket.
    if call.objects.buckets.find(&name).await.is_ok() {
        return Err(ConsoleFault::new(StatusCode::CONFLICT, "There is a bucket of this name."));
    }
    let caller = call.s3_caller(S3Action::CreateBucket).await?;
    call.objects.buckets.create(&caller, &name, AclChoice::Private, None).await?;
    Ok(redirect(to_bucket(&name).with("done", b"bucket-created")))
}

/// `POST /s3/delete`.
pub(super) async fn delete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.text("bucket");
    // The name is typed again: what is gone with a bucket, its policy and its rules, does not come back.
    if call.form.text("confirm") != name {
        return Err(ConsoleFault::bad("The name that was typed is another one. The bucket is not deleted."));
    }
    let caller = call.s3_caller(S3Action::DeleteBucket).await?;
    call.objects.buckets.delete(&caller, &name).await?;
    Ok(redirect(Href::to("/s3").with("done", b"bucket-deleted")))
}

/// `GET /s3/bucket`.
pub(super) async fn bucket(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, prefix, after) = (call.query.text("bucket"), call.query.bytes("prefix"), call.query.bytes("after"));
    if prefix.len() > S3_KEY_BYTES_MAX {
        return Err(ConsoleFault::bad(format!("The prefix is longer than {S3_KEY_BYTES_MAX} bytes.")));
    }
    let request = ListObjects {
        bucket: name.clone(),
        prefix: prefix.clone(),
        delimiter: Bytes::from_static(b"/"),
        after: after.clone(),
        max: LINES_SHOWN,
    };
    let caller = call.s3_caller(S3Action::ListBucket).await?;
    let listing = call.objects.list(&caller, &request).await?;
    let first = to_bucket(&name).with("prefix", &prefix);
    let next = listing.next.map(|next| first.clone().with("after", &next));
    let (steps, here) = folders(&name, &prefix);
    let body = html! {
        (trail(&steps, &here))
        div.head {
            h1 { (here) }
            a href=(to_settings(&name).text()) { "Settings" }
            a href=(to_uploads(&name).text()) { "Open uploads" }
        }
        @if call.may_change() { (upload_form(call, &name, &prefix)) }
        div.scroll {
            @if listing.lines.is_empty() { p.empty { "No objects." } }
            @else {
                table {
                    thead { tr { th { "Key" } th.number { "Size" } th { "Changed" } } }
                    tbody {
                        @for line in &listing.lines {
                            @match line {
                                KeyOrPrefix::Prefix(folder) => {
                                    tr {
                                        td.name { a href=(to_bucket(&name).with("prefix", folder).text()) { (below(&prefix, folder)) } }
                                        td {} td {}
                                    }
                                }
                                KeyOrPrefix::Key(key, entry) => {
                                    tr {
                                        td.name { a href=(to_s3_object(&name, key).text()) { (below(&prefix, key)) } }
                                        td.number { (units::bytes(entry.object.as_ref().map_or(0, |object| object.length))) }
                                        (moment_cell(entry.modified))
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
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, &here, &body)))
}

/// A form that stores files below a prefix. A script sends each file with its progress, a large one in parts; without it the
/// browser sends one.
fn upload_form(call: &ConsoleCall<'_>, bucket: &str, prefix: &[u8]) -> Markup {
    let action = |path| Href::to(path).with("bucket", bucket.as_bytes()).with("prefix", prefix).text();
    html! {
        form.upload method="post" enctype="multipart/form-data" action=(action("/s3/object/store"))
            data-upload=(bucket) data-prefix=[std::str::from_utf8(prefix).ok()]
            data-part-bytes=(PART_BYTES) data-parts-max=(PARTS_MAX)
        {
            (csrf(call.session))
            label for="file" { "Upload files" }
            input id="file" type="file" name="file" required;
            button type="submit" { "Upload" }
            div.transfers aria-live="polite" {}
        }
    }
}

fn versioning(versioning: Versioning) -> &'static str {
    match versioning {
        Versioning::Off => "off",
        Versioning::Enabled => "enabled",
        Versioning::Suspended => "suspended",
    }
}
