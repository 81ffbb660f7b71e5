//! Uploads: a file in one piece, and multipart uploads, which the script of the console begins, sends and completes; those that
//! are open, each with its parts and the bytes that it holds.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::Error;
use larder_s3::complete::{CompleteUpload, ListedPart};
use larder_s3::encryption::EncryptionChoice;
use larder_s3::get::GetObject;
use larder_s3::list::ListObjects;
use larder_s3::parts::{ListParts, PartAddress};
use larder_s3::put::{ChecksumWanted, ObjectMetadata, PutObject, UploadBody, WriteConditions};
use larder_s3::uploads::{CreateUpload, ListUploads};
use larder_s3_rules::listing::KeyOrPrefix;
use larder_s3_rules::{Part, S3Action, SystemHeader, UploadId};
use maud::{Markup, html};

use super::s3_links::{LINES_SHOWN, checked_key, new_key, to_bucket, to_uploads};
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::file_form::{ArrivingFile, FileForm};
use crate::frame::{ConsoleSection, csrf, framed, pager, trail};
use crate::href::Href;
use crate::reply::{self, ChangeTarget, ConsoleReply, page, redirect};
use crate::units;

/// Bytes of a part that the script sends: a file that is longer goes in parts.
pub(super) const PART_BYTES: u64 = 16 * 1024 * 1024;
/// Most parts of an upload.
pub(super) const PARTS_MAX: u16 = 10_000;
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
    let at = UploadAddress::from_call(call)?;
    let after = call.query.text("after").parse().unwrap_or(0);
    let caller = call.s3_caller(S3Action::ListMultipartUploadParts).await?;
    let found = call.objects.uploads.list_parts(&caller, &at.parts(after, LINES_SHOWN)).await?;
    let held = stored_parts(call, &at).await?;
    let held_bytes = held.iter().map(|part| part.length).sum();
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
                div { dt { "Parts" } dd { (units::count(held.len() as u64)) } }
                div { dt { "Bytes held" } dd { (units::bytes(held_bytes)) } }
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
    let at = UploadAddress::from_call(call)?;
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
    fn from_call(call: &ConsoleCall<'_>) -> Result<Self, ConsoleFault> {
        let query = &call.query;
        Ok(Self { bucket: query.text("bucket"), key: checked_key(query.bytes("key"))?, upload: query.text("upload") })
    }

    fn parts(&self, after: u32, max: usize) -> ListParts {
        ListParts {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            upload: self.upload.clone(),
            after,
            max,
            encryption: EncryptionChoice::default(),
        }
    }
}

/// All parts of an upload, by number.
async fn stored_parts(call: &ConsoleCall<'_>, at: &UploadAddress) -> Result<Vec<Part>, ConsoleFault> {
    let caller = call.s3_caller(S3Action::ListMultipartUploadParts).await?;
    let (mut parts, mut after) = (Vec::new(), 0);
    loop {
        let page = call.objects.uploads.list_parts(&caller, &at.parts(after, PARTS_READ)).await?.page;
        parts.extend(page.parts);
        if !page.truncated {
            return Ok(parts);
        }
        after = u32::from(page.next_marker);
    }
}

/// `POST /s3/object/store`: a file becomes the object of its name below the prefix, or of the key in the link.
pub(super) async fn store(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let form = call.file_form().await?;
    let (bucket, prefix) = (call.query.text("bucket"), call.query.bytes("prefix"));
    let key = match call.query.given("key") {
        Some(key) => key,
        None if form.name.is_empty() => return Err(ConsoleFault::bad("Choose a file.")),
        None => [&prefix[..], form.name.as_bytes()].concat().into(),
    };
    let key = new_key(key)?;
    let target = ChangeTarget(format!("{}/{}", shown(bucket.as_bytes()), shown(&key)));
    let FileForm { media_type, file, .. } = form;
    let request = PutObject {
        bucket: bucket.clone(),
        key,
        metadata: media_metadata(media_type)?,
        upload_body: arriving(file),
        conditions: WriteConditions::default(),
    };
    let caller = call.s3_caller(S3Action::PutObject).await?;
    call.objects.put(&caller, request).await?;
    // A script has no use for the page.
    let mut reply = match call.query.given("script") {
        Some(_) => reply::text("stored".to_owned()),
        None => redirect(to_bucket(&bucket).with("prefix", &prefix).with("done", b"stored")),
    };
    reply.extensions_mut().insert(target);
    Ok(reply)
}

/// `POST /s3/upload/begin`: answers the id of the upload.
pub(super) async fn begin(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let media_type = call.form.given("media").map(|_| call.form.text("media"));
    let (bucket, key) = (call.query.text("bucket"), new_key(call.query.bytes("key"))?);
    let caller = call.s3_caller(S3Action::PutObject).await?;
    let (metadata, conditions) = (media_metadata(media_type)?, WriteConditions::default());
    let request = CreateUpload { bucket, key, metadata, checksum: None, conditions };
    let created = call.objects.uploads.create(&caller, request).await?;
    Ok(reply::text(created.id.text()))
}

/// `POST /s3/upload/part`.
pub(super) async fn store_part(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let UploadAddress { bucket, key, upload } = UploadAddress::from_call(call)?;
    let number = call.query.text("number").parse().ok().filter(|number| (1..=PARTS_MAX).contains(number));
    let number = number.ok_or_else(|| ConsoleFault::bad("A part has a number from 1 to 10,000."))?;
    let form = call.file_form().await?;
    let caller = call.s3_caller(S3Action::PutObject).await?;
    let at =
        PartAddress { bucket, key, upload, number, encryption: larder_s3::encryption::EncryptionChoice::default() };
    call.objects.uploads.put_part(&caller, &at, arriving(form.file)).await?;
    Ok(reply::text(number.to_string()))
}

/// `POST /s3/upload/complete`: makes an object of all parts that are stored, if they are as many and as long as the file.
pub(super) async fn complete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let at = UploadAddress::from_call(call)?;
    let length =
        call.form.text("length").parse().map_err(|_| ConsoleFault::bad("The length of the file is missing."))?;
    let listed = |part: &Part| ListedPart { number: part.number.into(), etag: hex::encode(part.md5), checksum: None };
    let parts = match stored_parts(call, &at).await {
        // The answer to the first completion may have been lost: the same again has the same answer.
        Err(fault) if fault.status == StatusCode::NOT_FOUND && has_become_object(call, &at).await? => {
            return Ok(reply::text("stored".to_owned()));
        }
        parts => parts?.iter().map(listed).collect(),
    };
    let UploadAddress { bucket, key, upload } = at;
    let request = CompleteUpload {
        bucket,
        key,
        upload,
        parts,
        conditions: WriteConditions::default(),
        checksum: None,
        checksum_kind: None,
        // A part that is missing would make a shorter object.
        length: Some(length),
        encryption: larder_s3::encryption::EncryptionChoice::default(),
    };
    let caller = call.s3_caller(S3Action::PutObject).await?;
    call.objects.uploads.complete(&caller, request).await?;
    Ok(reply::text("stored".to_owned()))
}

/// Whether the current object of the key is the one that this upload became.
async fn has_become_object(call: &ConsoleCall<'_>, at: &UploadAddress) -> Result<bool, ConsoleFault> {
    let caller = call.s3_caller(S3Action::GetObject).await?;
    let current = GetObject { bucket: at.bucket.clone(), key: at.key.clone(), ..GetObject::default() };
    let upload = match call.objects.head(&caller, &current).await {
        Ok(current) => current.version.object.and_then(|object| object.upload),
        Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(upload.is_some() && upload == UploadId::from_text(&at.upload))
}

/// The metadata of a file with this media type.
fn media_metadata(media_type: Option<String>) -> Result<ObjectMetadata, ConsoleFault> {
    let media_type = media_type.filter(|media| !media.is_empty());
    // An answer of the API could not have it in its header.
    if media_type.as_ref().is_some_and(|media| !media.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
        return Err(ConsoleFault::bad("The media type has other characters than a header may have."));
    }
    let headers = media_type.map(|media| (SystemHeader::ContentType, Bytes::from(media))).into_iter().collect();
    Ok(ObjectMetadata { headers, ..ObjectMetadata::default() })
}

fn arriving(file: ArrivingFile) -> UploadBody {
    UploadBody { stream: Box::new(file), length: None, md5: None, checksum: ChecksumWanted::Default }
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
