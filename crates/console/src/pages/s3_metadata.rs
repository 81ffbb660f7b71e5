//! The metadata of an S3 object as a form: headers, and user metadata as lines. A change copies the object onto itself, as S3
//! clients do: the bytes stay, and a bucket with versioning gets another version.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use larder_core::Error;
use larder_s3::acl::AclChoice;
use larder_s3::copy::{CopyObject, NEVER_COPIED, check_copied_size};
use larder_s3::encryption::EncryptionChoice;
use larder_s3::put::{ObjectMetadata, WriteConditions, stored_encoding};
use larder_s3_rules::{Object, ObjectLock, S3Action, SystemHeader, Version, VersionId};
use maud::{Markup, PreEscaped, html};

use super::s3_links::{ObjectLink, to_s3_object};
use crate::call::ConsoleCall;
use crate::escaped::shown_lines;
use crate::faults::ConsoleFault;
use crate::frame::csrf;
use crate::reply::{ConsoleReply, redirect};

/// The headers that the form edits. A storage class changes nothing here, and stays as it is.
const EDITED: &[(SystemHeader, &str)] = &[
    (SystemHeader::ContentType, "Content type"),
    (SystemHeader::CacheControl, "Cache control"),
    (SystemHeader::ContentDisposition, "Content disposition"),
    (SystemHeader::ContentEncoding, "Content encoding"),
    (SystemHeader::ContentLanguage, "Content language"),
    (SystemHeader::Expires, "Expires"),
    (SystemHeader::WebsiteRedirect, "Website redirect"),
];
/// The begin of the names of user metadata.
const META: &str = "x-amz-meta-";
/// Most pairs of user metadata: an answer of S3 has each as a header, and clients read a bounded number.
const PAIRS_MAX: usize = 64;
/// Most bytes of all headers that the form edits, as S3 has for those of a request.
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// A change that came between the page and its form.
const CHANGED: Error = Error::Changed;

/// The form, or the reason why there is none.
pub(super) fn metadata_form(call: &ConsoleCall<'_>, link: &ObjectLink, version: &Version, object: &Object) -> Markup {
    let refused = check_copied_size(object).err().map(ConsoleFault::from);
    html! {
        details {
            summary { "Edit the metadata" }
            @match (refused, FormMetadata::editable(object)) {
                (Some(fault), _) => { @for reason in &fault.reasons { p { (reason) } } }
                (None, None) => p { "It has characters that a form does not give back unchanged. An S3 client can replace it." },
                (None, Some(form)) => (fields(call, link, version, &form)),
            }
        }
    }
}

fn fields(call: &ConsoleCall<'_>, link: &ObjectLink, version: &Version, form: &FormMetadata) -> Markup {
    html! {
        form.fields method="post" action=(link.to("/s3/object/metadata").text()) {
            (csrf(call.session))
            input type="hidden" name="seen" value=(version.id.text());
            @for ((header, label), value) in EDITED.iter().zip(&form.headers) {
                label { (label) input name=(header.name()) value=(value) autocomplete="off" spellcheck="false"; }
            }
            label for="meta" { "User metadata, a pair a line: name=value, without x-amz-meta-" }
            textarea id="meta" name="meta" rows="4" spellcheck="false" { (PreEscaped("\n")) (form.meta) }
            p.unit { "The object is copied onto itself. In a bucket with versioning this adds a version." }
            button type="submit" { "Store" }
        }
    }
}

/// `POST /s3/object/metadata`.
pub(super) async fn edit(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let link = ObjectLink::from_call(call)?;
    let metadata = FormMetadata::from_call(call)?.decode()?;
    let seen = VersionId::from_text(&call.form.text("seen"));
    let seen = seen.ok_or_else(|| ConsoleFault::bad("The form names no version. Load the page again."))?;
    let caller = call.s3_caller(S3Action::GetObject).await?;
    let found = call.objects.head(&caller, &link.get()).await.map_err(changed_if_gone)?;
    let object = found.version.object.filter(|_| found.version.id == seen).ok_or(CHANGED)?;
    let is_encrypted = object.encryption.is_some();
    let mut own: Vec<_> =
        metadata.headers.iter().filter(|(header, _)| NEVER_COPIED.contains(header)).cloned().collect();
    own.extend(object.headers.into_iter().filter(|(header, _)| *header == SystemHeader::StorageClass));
    let to = to_s3_object(&link.bucket, &link.key);
    let request = CopyObject {
        source: link.get(),
        bucket: link.bucket,
        key: link.key,
        replace: Some(metadata),
        tags: None,
        acl: AclChoice::default(),
        // The object becomes the administrator's, and its owner must not lose it by that.
        keeps_acl: true,
        own,
        changes_more: false,
        // One under a customer's key was refused above.
        encryption: if is_encrypted { EncryptionChoice::Server } else { EncryptionChoice::BucketDefault },
        checksum: None,
        lock: ObjectLock::default(),
        // Race: a client may write since the page was shown, and the form would take its metadata back.
        conditions: WriteConditions { if_version: Some(seen), ..WriteConditions::default() },
    };
    let caller = call.s3_caller(S3Action::PutObject).await?;
    call.objects.copy(&caller, request).await.map_err(changed_if_gone)?;
    Ok(redirect(to.with("done", b"described")))
}

/// The fault of a change. An object that is gone since its page was shown has changed.
fn changed_if_gone(error: larder_s3::Error) -> ConsoleFault {
    use larder_s3::Error as E;
    match error {
        E::NoSuchKey | E::DeleteMarker { .. } | E::PreconditionFailed(_) | E::ConditionalConflict => CHANGED.into(),
        other => other.into(),
    }
}

/// The values of the form.
struct FormMetadata {
    /// As [`EDITED`].
    headers: Vec<String>,
    /// A pair a line.
    meta: String,
}

impl FormMetadata {
    /// The metadata of an object, if the form gives it back as it is and shows all that it holds.
    fn editable(object: &Object) -> Option<Self> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).ok();
        let value = |header: SystemHeader| object.header(header).map_or(Some(String::new()), text);
        let lines: Option<Vec<String>> =
            object.meta.iter().map(|(name, value)| Some(format!("{name}={}", text(value)?))).collect();
        let headers: Option<Vec<String>> = EDITED.iter().map(|(header, _)| value(*header)).collect();
        let form = Self { headers: headers?, meta: lines?.join("\n") };
        let decoded = form.decode().ok()?;
        let is_edited = |(header, _): &&(SystemHeader, Bytes)| *header != SystemHeader::StorageClass;
        let has_all = object.headers.iter().filter(is_edited).all(|pair| decoded.headers.contains(pair));
        (has_all && decoded.meta == object.meta).then_some(form)
    }

    /// The values that a form has.
    ///
    /// # Errors
    /// A form without one of them, whose header would be taken from the object; bytes that are no text.
    fn from_call(call: &ConsoleCall<'_>) -> Result<Self, ConsoleFault> {
        let value = |name: &str| {
            if !call.form.has(name) {
                return Err(ConsoleFault::bad(format!("The form has no field {name}. Load the page again.")));
            }
            let bytes = call.form.bytes(name);
            String::from_utf8(bytes.to_vec()).map_err(|_| ConsoleFault::bad(format!("The field {name} is no UTF-8.")))
        };
        let headers: Result<_, _> = EDITED.iter().map(|(header, _)| value(header.name())).collect();
        Ok(Self { headers: headers?, meta: value("meta")? })
    }

    /// The metadata, as a request of S3 with these headers would store it.
    ///
    /// # Errors
    /// A name or a value that no header has; a name that stands twice; too many of them.
    fn decode(&self) -> Result<ObjectMetadata, ConsoleFault> {
        let mut metadata = ObjectMetadata::default();
        for ((header, label), value) in EDITED.iter().zip(&self.headers) {
            let value = header_value(label, value)?;
            let value = if *header == SystemHeader::ContentEncoding { stored_encoding(&value) } else { Some(value) };
            metadata.headers.extend(value.filter(|value| !value.is_empty()).map(|value| (*header, value)));
        }
        if metadata.headers.iter().map(|(_, value)| value.len()).sum::<usize>() > HEADER_BYTES_MAX {
            return Err(ConsoleFault::bad(format!("The headers together have more than {HEADER_BYTES_MAX} bytes.")));
        }
        for line in self.meta.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) = pair(line)?;
            if metadata.meta.iter().any(|(other, _)| *other == name) {
                return Err(ConsoleFault::bad(format!("The metadata {name} stands twice.")));
            }
            if metadata.meta.len() == PAIRS_MAX {
                return Err(ConsoleFault::bad(format!("There are more than {PAIRS_MAX} pairs of user metadata.")));
            }
            metadata.meta.push((name, value));
        }
        metadata.check_size().map_err(too_large)?;
        Ok(metadata)
    }
}

/// The fault of metadata that S3 refuses for its size.
fn too_large(error: larder_s3::Error) -> ConsoleFault {
    match error {
        larder_s3::Error::Gateway(Error::MetadataTooLarge { bytes, max }) => ConsoleFault::bad(format!(
            "The user metadata has {bytes} bytes, names and values together; S3 allows {max}."
        )),
        other => other.into(),
    }
}

/// A line of user metadata: its name in lower case, and its value.
fn pair(line: &str) -> Result<(String, Bytes), ConsoleFault> {
    let refused = |why: &str| ConsoleFault::bad(format!("This line of user metadata {why}: {}", line.trim()));
    let (name, value) = line.split_once('=').ok_or_else(|| refused("is not name=value"))?;
    let header = HeaderName::from_bytes(format!("{META}{}", name.trim()).as_bytes());
    let header = header.map_err(|_| refused("has a name that no header can have"))?;
    let name = header.as_str().strip_prefix(META).unwrap_or_default();
    if name.is_empty() {
        return Err(refused("has no name"));
    }
    if name.starts_with(META) {
        return Err(refused("has a name with x-amz-meta-, which S3 adds itself"));
    }
    Ok((name.to_owned(), header_value(name, value)?))
}

/// The bytes of a header's value.
fn header_value(name: &str, value: &str) -> Result<Bytes, ConsoleFault> {
    let value = Bytes::copy_from_slice(value.trim().as_bytes());
    let refused = || ConsoleFault::bad(format!("{name} has a character that no header can have, such as a line end."));
    HeaderValue::from_bytes(&value).map_err(|_| refused())?;
    // A header may have others, but nobody would see them in the form, and the next edit would be refused.
    if shown_lines(&value).as_bytes() != value {
        return Err(ConsoleFault::bad(format!("{name} has an invisible character.")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(content_type: &str, meta: &str) -> FormMetadata {
        let mut headers = vec![String::new(); EDITED.len()];
        content_type.clone_into(&mut headers[0]);
        FormMetadata { headers, meta: meta.to_owned() }
    }

    #[test]
    fn lines_become_metadata_as_headers_would() {
        let given = form(" text/plain ", "A=1\r\n\r\n b = x=y \nempty=\né=\u{1f375}");
        assert!(given.decode().is_err(), "a name of other letters");
        let metadata = form(" text/plain ", "A=1\r\n\r\n b = x=y \nempty=\ntea=\u{1f375}").decode().unwrap();
        assert_eq!(metadata.headers, [(SystemHeader::ContentType, Bytes::from_static(b"text/plain"))]);
        let pairs: Vec<_> = metadata.meta.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
        assert_eq!(pairs, [("a", &b"1"[..]), ("b", b"x=y"), ("empty", b""), ("tea", "\u{1f375}".as_bytes())]);
    }

    #[test]
    fn names_and_values_that_no_header_has_are_refused() {
        let long = format!("a={}", "v".repeat(2048));
        let many: String = (0..=PAIRS_MAX).map(|at| format!("k{at}=v\n")).collect();
        for meta in ["a", "=v", "a b=c", "a:b=c", "a=1\nA=2", "a=\u{7}", "x-amz-meta-a=1", "<b>=1", &long, &many] {
            assert!(form("", meta).decode().is_err(), "{meta}");
        }
        assert!(form("", &long[..2049]).decode().is_ok());
        for media in ["a\r\nx: y", "a\0", "a\u{7f}", &"v".repeat(HEADER_BYTES_MAX + 1)] {
            assert!(form(media, "").decode().is_err(), "{media:?}");
        }
    }

    #[test]
    fn the_framing_of_a_body_is_no_encoding() {
        let mut given = form("", "");
        "aws-chunked".clone_into(&mut given.headers[3]);
        assert!(given.decode().unwrap().headers.is_empty());
    }
}
