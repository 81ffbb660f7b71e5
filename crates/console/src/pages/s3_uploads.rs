//! Open uploads: those of a bucket, and one with its parts and the bytes that it holds.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::list::ListObjects;
use larder_s3::parts::ListParts;
use larder_s3::rules::listing::KeyOrPrefix;
use larder_s3::rules::{S3Action, UploadId};
use larder_s3::uploads::ListUploads;
use maud::{Markup, html};

use super::s3::{LINES_SHOWN, to_bucket, to_uploads};
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, pager, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};
use crate::units;

/// Parts of one read of the sum: an upload has 10,000 at most, so the sum takes ten reads.
const PARTS_READ: usize = 1000;

/// `GET /s3/uploads`.
pub(super) async fn uploads(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, after) = (call.query.text("bucket"), call.query.bytes("after"));
    let upload = UploadId::from_text(&call.query.text("upload"));
    let objects =
        ListObjects { bucket: name.clone(), after: after.clone(), max: LINES_SHOWN, ..ListObjects::default() };
    let caller = call.s3_caller(S3Action::ListBucketMultipartUploads).await?;
    let (found, last) = call.objects.uploads.list(&caller, &ListUploads { objects, upload }).await?;
    let next = found.next.zip(last);
    let next = next.map(|(key, id)| to_uploads(&name).with("after", &key).with("upload", id.text().as_bytes()));
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned()), (to_bucket(&name), shown(name.as_bytes()))], "Open uploads"))
        h1 { "Open uploads of " (shown(name.as_bytes())) }
        div.scroll {
            @if found.lines.is_empty() { p.empty { "No upload is open." } }
            @else {
                table {
                    thead { tr { th { "Key" } th { "Begun" } th { "Upload" } } }
                    tbody {
                        @for line in &found.lines {
                            @if let KeyOrPrefix::Key(key, (id, entry)) = line {
                                tr {
                                    td.name { a href=(to_upload(&name, key, &id.text()).text()) { (shown(key)) } }
                                    td { (units::moment(entry.initiated)) }
                                    td { code { (id.text()) } }
                                }
                            }
                        }
                    }
                }
            }
        }
        (pager((!after.is_empty()).then(|| to_uploads(&name)), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "Open uploads", &body)))
}

/// `GET /s3/upload`.
pub(super) async fn upload(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let at = UploadAddress::from_call(call);
    let after = call.query.text("after").parse().unwrap_or(0);
    let caller = call.s3_caller(S3Action::ListMultipartUploadParts).await?;
    let found = call.objects.uploads.list_parts(&caller, &at.parts(after, LINES_SHOWN)).await?;
    let held = held_bytes(call, &at).await?;
    let link = || to_upload(&at.bucket, &at.key, &at.upload);
    let next = found.page.truncated.then(|| link().with("after", found.page.next_marker.to_string().as_bytes()));
    let name = shown(&at.key);
    let steps = [
        (Href::to("/s3"), "S3".to_owned()),
        (to_bucket(&at.bucket), shown(at.bucket.as_bytes())),
        (to_uploads(&at.bucket), "Open uploads".to_owned()),
    ];
    let body = html! {
        (trail(&steps, &name))
        h1 { "Upload of " (name) }
        section {
            dl.rows {
                div { dt { "Begun" } dd { (units::moment(found.upload.initiated)) } }
                div { dt { "Parts" } dd { (units::count(held.parts)) } }
                div { dt { "Bytes held" } dd { (units::bytes(held.bytes)) } }
                div { dt { "Upload" } dd { code { (shown(at.upload.as_bytes())) } } }
                @if let Some((at, rule)) = &found.abort_date {
                    div { dt { "Aborted by a rule" } dd { (units::moment(*at)) ", " (shown(rule.as_bytes())) } }
                }
            }
        }
        div.scroll {
            @if found.page.parts.is_empty() { p.empty { "No parts." } }
            @else {
                table {
                    thead { tr { th.number { "Part" } th.number { "Size" } th { "Stored" } } }
                    tbody {
                        @for part in &found.page.parts {
                            tr {
                                td.number { (part.number) }
                                td.number { (units::bytes(part.length)) }
                                td { (units::moment(part.modified)) }
                            }
                        }
                    }
                }
            }
        }
        (pager((after > 0).then(link), next))
        @if call.may_change() { (abort_form(call, &at)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "Upload", &body)))
}

/// `POST /s3/upload/abort`.
pub(super) async fn abort(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let at = UploadAddress::from_call(call);
    let caller = call.s3_caller(S3Action::AbortMultipartUpload).await?;
    call.objects.uploads.abort(&caller, &at.bucket, &at.key, &at.upload, None).await?;
    Ok(redirect(to_uploads(&at.bucket).with("done", b"aborted")))
}

/// The upload in the link of a page.
struct UploadAddress {
    bucket: String,
    key: Bytes,
    upload: String,
}

impl UploadAddress {
    fn from_call(call: &ConsoleCall<'_>) -> Self {
        let query = &call.query;
        Self { bucket: query.text("bucket"), key: query.bytes("key"), upload: query.text("upload") }
    }

    fn parts(&self, after: u32, max: usize) -> ListParts {
        ListParts { bucket: self.bucket.clone(), key: self.key.clone(), upload: self.upload.clone(), after, max }
    }
}

/// The parts of an upload together.
#[derive(Default)]
struct HeldParts {
    parts: u64,
    bytes: u64,
}

async fn held_bytes(call: &ConsoleCall<'_>, at: &UploadAddress) -> Result<HeldParts, ConsoleFault> {
    let caller = call.s3_caller(S3Action::ListMultipartUploadParts).await?;
    let (mut held, mut after) = (HeldParts::default(), 0);
    loop {
        let page = call.objects.uploads.list_parts(&caller, &at.parts(after, PARTS_READ)).await?.page;
        held.parts += page.parts.len() as u64;
        held.bytes += page.parts.iter().map(|part| part.length).sum::<u64>();
        if !page.truncated {
            return Ok(held);
        }
        after = u32::from(page.next_marker);
    }
}

fn abort_form(call: &ConsoleCall<'_>, at: &UploadAddress) -> Markup {
    let action = Href::to("/s3/upload/abort")
        .with("bucket", at.bucket.as_bytes())
        .with("key", &at.key)
        .with("upload", at.upload.as_bytes());
    html! {
        details {
            summary { "Abort the upload" }
            form method="post" action=(action.text()) {
                (csrf(call.session))
                p { "Its parts are removed. Its client gets an error with its next request." }
                button.danger type="submit" { "Abort" }
            }
        }
    }
}

fn to_upload(bucket: &str, key: &[u8], id: &str) -> Href {
    Href::to("/s3/upload").with("bucket", bucket.as_bytes()).with("key", key).with("upload", id.as_bytes())
}
