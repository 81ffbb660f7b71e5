//! One S3 object: its metadata, tags and versions, a preview, and a link to share. It is downloaded, tagged and deleted here;
//! [`super::s3_metadata`] edits its metadata.

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use larder_rows::limits::OBJECT_TAGS_MAX;
use larder_s3::Error;
use larder_s3::get::{FoundObject, ObjectReader};
use larder_s3::list::{ListObjects, ListVersions};
use larder_s3::object_lock::GovernanceBypass;
use larder_s3_rules::listing::KeyOrPrefix;
use larder_s3_rules::{Object, Retention, S3Action, SystemHeader, Tag, Version, tags};
use maud::{Markup, PreEscaped, html};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use super::s3_links::{LINES_SHOWN, ObjectLink, above_object, below, to_bucket, to_s3_object};
use super::s3_metadata::metadata_form;
use crate::call::ConsoleCall;
use crate::escaped::{shown, shown_lines};
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, moment_cell, pager, trail};
use crate::json_layout::indented;
use crate::reply::{self, ConsoleReply, PIECE_BYTES, page, redirect};
use crate::settings::SharedObject;
use crate::units;

/// Longest text that the page shows, in bytes.
const TEXT_BYTES_SHOWN: u64 = 64 * 1024;
/// Longest picture that the page shows, in bytes.
const PICTURE_BYTES_SHOWN: u64 = 16 * 1024 * 1024;
/// The media types of pictures that the page shows: none of them can hold a script.
const PICTURES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
/// Characters of a tag that a line would take for others: they are percent-encoded there.
const TAG_SIGNS: &AsciiSet = &CONTROLS.add(b' ').add(b'=').add(b'%');
/// The times for which a link is valid, in seconds.
const VALIDITIES: &[(u64, &str)] = &[(3_600, "an hour"), (86_400, "a day"), (604_800, "a week")];

/// Reads an object.
async fn open(call: &ConsoleCall<'_>, link: &ObjectLink) -> Result<(FoundObject, ObjectReader), ConsoleFault> {
    let caller = call.s3_caller(link.spec_action(S3Action::GetObject)).await?;
    Ok(call.objects.get(&caller, &link.get()).await?)
}

/// `GET /s3/object`: an object with its versions.
pub(super) async fn object(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let mut link = ObjectLink::from_call(call)?;
    // The parameters of a further page of versions name the last one before it.
    let after = link.version.take();
    let versions = versions(call, &link, after).await?;
    let caller = call.s3_caller(S3Action::GetObject).await?;
    let shown_object = match call.objects.head(&caller, &link.get()).await {
        Ok(FoundObject { version, .. }) => match &version.object {
            Some(object) => Some(object_body(call, &link, &version, object).await),
            None => None,
        },
        Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let name = below(&link.key, &link.key);
    let body = html! {
        (trail(&above_object(&link.bucket, &link.key), &name))
        h1 { (name) }
        @match shown_object {
            Some(shown_object) => (shown_object),
            None => p { "There is no current object with this key." },
        }
        (versions)
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, &name, &body)))
}

async fn object_body(call: &ConsoleCall<'_>, link: &ObjectLink, version: &Version, object: &Object) -> Markup {
    // Damaged bytes take neither the metadata nor the way to delete them along.
    let preview = preview_body(call, link, object).await;
    let preview = preview.unwrap_or_else(|fault| {
        html! { section.problem { @for reason in &fault.reasons { p { "No preview. " (reason) } } } }
    });
    html! {
        div.actions {
            a.button href=(link.to("/s3/object/download").text()) { "Download" }
            @if call.may_change() && call.settings.share.is_some() { (share_form(call, link)) }
        }
        (metadata(version, object))
        (preview)
        @if call.may_change() {
            (metadata_form(call, link, version, object))
            (tags_form(call, link, object))
            (delete_form(call, link, "Delete the object", "In a bucket with versioning its versions stay, below a delete marker."))
        }
    }
}

fn metadata(version: &Version, object: &Object) -> Markup {
    html! {
        dl.rows {
            div { dt { "Size" } dd { (units::bytes(object.length())) } }
            div { dt { "Last modified" } dd { (units::moment(version.modified)) " UTC" } }
            div { dt { "Entity tag" } dd { code { (object.etag.to_string()) } } }
            @if let Some(Retention { mode, until }) = object.lock.retention {
                div { dt { "Retained until" } dd { (units::moment(until)) " UTC, " (mode.name()) } }
            }
            @if object.lock.legal_hold == Some(true) { div { dt { "Legal hold" } dd { "on" } } }
            @for (header, value) in &object.headers { div { dt { (header.name()) } dd { (shown(value)) } } }
            @for (name, value) in &object.meta { div { dt { "x-amz-meta-" (shown(name.as_bytes())) } dd { (shown(value)) } } }
            @for tag in &object.tags { div { dt { "Tag " code { (shown(tag.key.as_bytes())) } } dd { (shown(tag.value.as_bytes())) } } }
        }
    }
}

/// The picture, or the beginning of the text.
async fn preview_body(call: &ConsoleCall<'_>, link: &ObjectLink, object: &Object) -> Result<Markup, ConsoleFault> {
    if picture(object).is_some() {
        let source = link.to("/s3/object/preview").text();
        return Ok(html! { section.preview { h2 { "Preview" } img src=(source) alt="The object as a picture"; } });
    }
    let (_, mut reader) = open(call, link).await?;
    let mut text = Vec::new();
    while (text.len() as u64) < TEXT_BYTES_SHOWN.min(object.length()) {
        let piece = reader.next(PIECE_BYTES).await?;
        if piece.is_empty() {
            break;
        }
        text.extend_from_slice(&piece);
        // The first bytes tell bytes from text.
        if text.contains(&0) {
            return Ok(html! {});
        }
    }
    text.truncate(usize::try_from(TEXT_BYTES_SHOWN).unwrap_or(usize::MAX));
    let is_whole = text.len() as u64 == object.length();
    // A cut may be within a character.
    let end = match std::str::from_utf8(&text) {
        Ok(text) => text.len(),
        Err(error) if !is_whole && error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return Ok(html! {}),
    };
    text.truncate(end);
    let laid_out = if is_whole { indented(&text) } else { None };
    Ok(html! {
        @if !text.is_empty() {
            section.preview {
                h2 { "Preview" }
                pre tabindex="0" { (laid_out.unwrap_or_else(|| shown_lines(&text))) }
                @if !is_whole { p.unit { "The first " (units::bytes(text.len() as u64)) " of " (units::bytes(object.length())) "." } }
            }
        }
    })
}

/// The media type of an object that the page shows as a picture.
fn picture(object: &Object) -> Option<&'static str> {
    let media = object.header(SystemHeader::ContentType).filter(|_| object.length() <= PICTURE_BYTES_SHOWN)?;
    let essence = media.split(|byte| *byte == b';').next()?.trim_ascii();
    PICTURES.iter().find(|known| essence.eq_ignore_ascii_case(known.as_bytes())).copied()
}

fn share_form(call: &ConsoleCall<'_>, link: &ObjectLink) -> Markup {
    html! {
        form method="post" action=(link.to("/s3/object/share").text()) {
            (csrf(call.session))
            label for="seconds" { "Share for" }
            select id="seconds" name="seconds" { @for (seconds, name) in VALIDITIES { option value=(seconds) { (name) } } }
            button.plain type="submit" { "Make a link" }
        }
    }
}

fn tags_form(call: &ConsoleCall<'_>, link: &ObjectLink, object: &Object) -> Markup {
    let part = |text: &str| percent_encode(text.as_bytes(), TAG_SIGNS).to_string();
    let lines: Vec<String> = object.tags.iter().map(|tag| format!("{}={}", part(&tag.key), part(&tag.value))).collect();
    html! {
        details {
            summary { "Edit the tags" }
            form.fields method="post" action=(link.to("/s3/object/tags").text()) {
                (csrf(call.session))
                label for="tags" { "A tag a line: name=value, with %3D for = and %20 for a space" }
                textarea id="tags" name="tags" rows="4" spellcheck="false" { (PreEscaped("\n")) (lines.join("\n")) }
                button type="submit" { "Store" }
            }
        }
    }
}

fn delete_form(call: &ConsoleCall<'_>, link: &ObjectLink, title: &str, text: &str) -> Markup {
    html! {
        details {
            summary { (title) }
            form method="post" action=(link.to("/s3/object/delete").text()) {
                (csrf(call.session))
                p { (text) }
                button.danger type="submit" { "Delete" }
            }
        }
    }
}

/// A page of versions, after the version `after`.
async fn versions(call: &ConsoleCall<'_>, link: &ObjectLink, after: Option<String>) -> Result<Markup, ConsoleFault> {
    let begin = if after.is_some() { link.key.clone() } else { Bytes::new() };
    let objects = ListObjects {
        bucket: link.bucket.clone(),
        prefix: link.key.clone(),
        delimiter: Bytes::new(),
        after: begin,
        max: LINES_SHOWN,
    };
    let caller = call.s3_caller(S3Action::ListBucketVersions).await?;
    let listing = call.objects.list_versions(&caller, &ListVersions { objects, version: after.clone() }).await?;
    let lines: Vec<_> = listing
        .lines
        .iter()
        .filter_map(|line| match line {
            KeyOrPrefix::Key(key, version) if *key == link.key => Some(version),
            _ => None,
        })
        .collect();
    let next = listing.next.filter(|(last, _)| *last == link.key).and_then(|(_, id)| id);
    let next = next.map(|id| to_s3_object(&link.bucket, &link.key).with("version", id.as_bytes()));
    Ok(html! {
        h2 { "Versions" }
        div.scroll {
            @if lines.is_empty() { p.empty { "No version of this key." } }
            @else {
                table {
                    thead { tr { th { "Version" } th { "Written" } th.number { "Size" } th {} } }
                    tbody {
                        @for listed in &lines {
                            tr {
                                td {
                                    code { (shown(listed.version_id.as_bytes())) }
                                    @if listed.latest { " " span.tag.good { "current" } }
                                    @if listed.version.object.is_none() { " " span.tag { "delete marker" } }
                                }
                                (moment_cell(listed.version.modified))
                                td.number { @if let Some(object) = &listed.version.object { (units::bytes(object.length())) } }
                                td.act { (version_actions(call, link, &listed.version_id, listed.version.object.is_some())) }
                            }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| to_s3_object(&link.bucket, &link.key)), next))
    })
}

fn version_actions(call: &ConsoleCall<'_>, link: &ObjectLink, version: &str, has_bytes: bool) -> Markup {
    let version = ObjectLink { bucket: link.bucket.clone(), key: link.key.clone(), version: Some(version.to_owned()) };
    html! {
        @if has_bytes { a href=(version.to("/s3/object/download").text()) { "Download" } }
        @if call.may_change() { (delete_form(call, &version, "Delete", "This version is deleted for good.")) }
    }
}

/// `GET /s3/object/download`.
pub(super) async fn download(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let link = ObjectLink::from_call(call)?;
    let (_, reader) = open(call, &link).await?;
    let name = link.key.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(b"object");
    // Whatever type the object names, the browser saves it and runs nothing.
    Ok(bytes_reply(reader, &HeaderValue::from_static("application/octet-stream"), Some(name)))
}

/// `GET /s3/object/preview`: a picture.
pub(super) async fn preview(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (found, reader) = open(call, &ObjectLink::from_call(call)?).await?;
    let media = found.version.object.as_ref().and_then(picture);
    let media = media.ok_or_else(|| ConsoleFault::not_found("This object has no preview."))?;
    Ok(bytes_reply(reader, &HeaderValue::from_static(media), None))
}

fn bytes_reply(reader: ObjectReader, media: &HeaderValue, name: Option<&[u8]>) -> ConsoleReply {
    let length = reader.left();
    let pieces = stream::unfold(reader, |mut reader| async move {
        match reader.next(PIECE_BYTES).await {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some((Ok(piece), reader)),
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), reader)),
        }
    });
    reply::object(Box::pin(pieces), length, media, name)
}

/// `POST /s3/object/share`: shows a link that gives the object to anyone who has it.
pub(super) async fn share(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let link = ObjectLink::from_call(call)?;
    let make = call.settings.share.as_ref();
    let make =
        make.ok_or_else(|| ConsoleFault::not_found("The S3 interface has no address: no link can lead to it."))?;
    // Browsers resolve such a segment before they send the address, which then has another signature.
    if link.key.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b"..") {
        return Err(ConsoleFault::bad("A key with the segment . or .. cannot be shared: browsers change its address."));
    }
    let seconds: u64 = call.form.text("seconds").parse().unwrap_or_default();
    let (seconds, name) = VALIDITIES.iter().find(|(known, _)| *known == seconds).copied().unwrap_or(VALIDITIES[0]);
    let caller = call.s3_caller(link.spec_action(S3Action::GetObject)).await?;
    call.objects.head(&caller, &link.get()).await?;
    let signer = call.s3_admin().await?;
    let version = link.version.as_deref();
    let now = call.gateway().context().now();
    let address = make(&signer, &SharedObject { bucket: &link.bucket, key: &link.key, version, seconds, now });
    let body = html! {
        (trail(&above_object(&link.bucket, &link.key), &below(&link.key, &link.key)))
        h1 { "Link to " (shown(&link.key)) }
        p { "Anyone who has this link reads the object for " (name) ". It ends earlier if the administrator's secret is replaced." }
        pre id="share" tabindex="0" { (address) }
        p.unit { "Readers elsewhere have to reach this address: --s3-public-url names the one that clients use." }
        p { a href=(to_s3_object(&link.bucket, &link.key).text()) { "Back to the object" } }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "Link", &body)))
}

/// `POST /s3/object/tags`.
pub(super) async fn tag(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let link = ObjectLink::from_call(call)?;
    let text = call.form.text("tags");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tags: Vec<Tag> = lines
        .map(|line| {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let part = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
            Tag { key: part(key), value: part(value) }
        })
        .collect();
    tags::validate(&tags, OBJECT_TAGS_MAX).map_err(|error| ConsoleFault::sentence(&error.to_string()))?;
    let caller = call.s3_caller(link.spec_action(S3Action::PutObjectTagging)).await?;
    call.objects.put_object_tags(&caller, &link.bucket, &link.key, &link.spec(), tags).await?;
    Ok(redirect(to_s3_object(&link.bucket, &link.key).with("done", b"tagged")))
}

/// `POST /s3/object/delete`: the object, or a version of it for good.
pub(super) async fn delete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let link = ObjectLink::from_call(call)?;
    let caller = call.s3_caller(S3Action::DeleteObject).await?;
    call.objects.delete(&caller, &link.bucket, &link.key, &link.spec(), None, GovernanceBypass::Absent).await?;
    let to = match link.version {
        Some(_) => to_s3_object(&link.bucket, &link.key),
        None => to_bucket(&link.bucket),
    };
    Ok(redirect(to.with("done", b"deleted")))
}
