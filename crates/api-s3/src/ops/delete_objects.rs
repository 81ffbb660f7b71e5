//! `POST /bucket?delete`: deletes many objects, each with its own outcome.

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH};
use larder_rows::limits::DELETE_OBJECTS_MAX;
use larder_s3::Caller;
use larder_s3::delete::DeletedObject;
use larder_s3::get::VersionSpec;
use larder_s3::object_lock::GovernanceBypass;

use super::{conditions, listing_document, lock_headers, object_headers, upload_body};
use crate::auth::AuthScheme;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::target::check_key;
use crate::xml::{XmlReader, XmlWriter};

/// Deletes that run concurrently.
const CONCURRENT_DELETES: usize = 8;

/// The decoded request.
#[derive(Debug, PartialEq, Eq)]
struct DeleteRequest {
    quiet: bool,
    items: Vec<DeleteItem>,
}

/// An object to delete.
#[derive(Debug, Default, PartialEq, Eq)]
struct DeleteItem {
    key: String,
    version: Option<String>,
    etag: Option<String>,
    /// A condition that is not offered.
    unsupported: Option<String>,
}

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    // Version 2 clients predate the requirement of a digest.
    let old = matches!(call.scheme, Some(AuthScheme::V2Header | AuthScheme::V2Query));
    if !old {
        upload_body::require_digest(&call.headers)?;
    }
    let bypass = lock_headers::bypass(&call.headers)?;
    let request = decode(&upload_body::document(call).await?)?;
    // A missing bucket fails the whole request; missing permissions fail each key.
    call.objects.buckets.find(&call.bucket).await?;
    // Attack: a policy of many stars would take its steps for each key.
    let caller = call.caller.with_work(request.items.len());
    // Chunks run one after another, so that one request cannot occupy the store with a thousand deletes.
    let mut outcomes = Vec::with_capacity(request.items.len());
    for items in request.items.chunks(CONCURRENT_DELETES) {
        outcomes.extend(join_all(items.iter().map(|item| delete(call, &caller, item, bypass))).await);
        // Denied deletes wait for nothing: without this a long policy would hold the thread for all of them.
        tokio::task::yield_now().await;
    }
    Ok(response::document(document(&request, &outcomes)))
}

async fn delete(
    call: &S3Call,
    caller: &Caller,
    item: &DeleteItem,
    bypass: GovernanceBypass,
) -> Result<DeletedObject, S3Error> {
    if item.key.is_empty() {
        return Err(S3Error::new(Code::UserKeyMustBeSpecified, "The key of an object must not be empty."));
    }
    check_key(item.key.as_bytes())?;
    if let Some(name) = &item.unsupported {
        return Err(S3Error::element_not_offered(name));
    }
    let key = Bytes::copy_from_slice(item.key.as_bytes());
    let version = item.version.clone().map_or(VersionSpec::Current, VersionSpec::Id);
    let if_match = item.etag.clone().map(|etag| vec![etag]);
    Ok(call.objects.delete(caller, &call.bucket, &key, &version, if_match, bypass).await?)
}

fn decode(document: &[u8]) -> Result<DeleteRequest, S3Error> {
    let mut xml = XmlReader::open(document, "Delete")?;
    let mut request = DeleteRequest { quiet: false, items: Vec::new() };
    while let Some(name) = xml.next_child()? {
        match name {
            "Quiet" => request.quiet = xml.text()?.trim().eq_ignore_ascii_case("true"),
            // Bound: each object is a request of its own to the store.
            "Object" if request.items.len() < DELETE_OBJECTS_MAX => request.items.push(item(&mut xml)?),
            "Object" => return Err(Code::MalformedXML.into()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    if request.items.is_empty() { Err(Code::MalformedXML.into()) } else { Ok(request) }
}

/// A key is taken verbatim, with its leading and trailing blanks.
fn item(xml: &mut XmlReader<'_>) -> Result<DeleteItem, S3Error> {
    let (mut item, mut key) = (DeleteItem::default(), None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Key" => key = Some(xml.text()?),
            "VersionId" => item.version = Some(xml.text()?.trim().to_owned()).filter(|version| !version.is_empty()),
            "ETag" => item.etag = Some(conditions::unquoted(&xml.text()?).to_owned()),
            // A condition: without it the object would be deleted unasked.
            _ => item.unsupported = Some(xml.set_aside()?),
        }
    }
    item.key = key.ok_or(Code::MalformedXML)?;
    Ok(item)
}

fn document(request: &DeleteRequest, outcomes: &[Result<DeletedObject, S3Error>]) -> Bytes {
    let mut xml = XmlWriter::new("DeleteResult");
    for (item, outcome) in request.items.iter().zip(outcomes) {
        match outcome {
            Ok(_) if request.quiet => {}
            Ok(deleted) => drop(xml.element("Deleted", |xml| write_deleted(xml, item, deleted))),
            Err(error) => {
                xml.element("Error", |xml| {
                    xml.text("Key", &item.key).optional_text("VersionId", item.version.as_ref());
                    xml.text("Code", error.code.name()).text("Message", &error.message);
                });
            }
        }
    }
    xml.finish()
}

fn write_deleted(xml: &mut XmlWriter, item: &DeleteItem, deleted: &DeletedObject) {
    xml.text("Key", &item.key).optional_text("VersionId", item.version.as_ref());
    if deleted.marker {
        xml.value("DeleteMarker", true).optional_text("DeleteMarkerVersionId", deleted.version_id.as_ref());
    }
}

/// Set if a delete marker was created or deleted.
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
pub(super) async fn run_single(call: &S3Call) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let if_match = conditions::etags(&call.headers, IF_MATCH);
    let bypass = lock_headers::bypass(&call.headers)?;
    let deleted = call.objects.delete(&call.caller, &call.bucket, &call.key, &version, if_match, bypass).await?;
    let mut response = response::empty(StatusCode::NO_CONTENT);
    object_headers::write_version(&mut response, deleted.version_id.as_deref());
    if deleted.marker {
        response.headers_mut().insert(DELETE_MARKER, HeaderValue::from_static("true"));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(key: &str, version: Option<&str>) -> DeleteItem {
        DeleteItem { key: key.into(), version: version.map(Into::into), ..DeleteItem::default() }
    }

    #[test]
    fn a_list_of_objects_is_parsed() {
        let read = decode(
            b"<?xml version=\"1.0\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object>\
                <Key> a&amp;b </Key>\
              </Object> <Object><VersionId>v</VersionId><Key>k</Key><ETag>\"e\"</ETag></Object><Object><Key/></Object>\
              <Object><Key>s</Key><Size>1</Size></Object><Quiet>true</Quiet></Delete>",
        )
        .unwrap();
        let with_etag = DeleteItem { etag: Some("e".into()), ..item("k", Some("v")) };
        let unsupported = DeleteItem { unsupported: Some("Size".to_owned()), ..item("s", None) };
        assert_eq!(
            read,
            DeleteRequest { quiet: true, items: vec![item(" a&b ", None), with_etag, item("", None), unsupported] }
        );
    }

    #[test]
    fn an_object_was_deleted_without_the_condition_that_its_client_sent() {
        let read = decode(b"<Delete><Object><Key>k</Key><IfOlder><Days>3</Days></IfOlder></Object></Delete>").unwrap();
        assert_eq!(read.items, [DeleteItem { unsupported: Some("IfOlder".to_owned()), ..item("k", None) }]);
    }

    #[test]
    fn keys_may_contain_escaped_control_characters() {
        let read = decode(b"<Delete><Object><Key>a&#x1;&#xD;&#10;b&#x7F;</Key></Object></Delete>").unwrap();
        assert_eq!(read.items, [item("a\u{1}\r\nb\u{7f}", None)]);
    }

    #[test]
    fn invalid_lists_are_refused() {
        let many = |count| format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(count));
        assert_eq!(decode(many(1000).as_bytes()).unwrap().items.len(), 1000);
        for bad in [
            many(1001),
            many(0),
            "<Delete><Object/></Delete>".into(),
            "<Other/>".into(),
            String::new(),
            "<Delete>".into(),
        ] {
            assert_eq!(decode(bad.as_bytes()).unwrap_err().code.name(), "MalformedXML");
        }
    }

    #[test]
    fn every_object_has_its_own_outcome() {
        let mut request = DeleteRequest {
            quiet: false,
            items: vec![item("a", None), item("b", Some("v1")), item("c", None), item("d", None)],
        };
        let marker = |id: &str| DeletedObject { marker: true, version_id: Some(id.into()) };
        let outcomes =
            [Ok(DeletedObject::default()), Ok(marker("v1")), Ok(marker("v2")), Err(Code::AccessDenied.into())];
        let text = |request: &DeleteRequest| {
            let text = String::from_utf8(document(request, &outcomes).to_vec()).unwrap();
            text.split_once("03-01/\">").unwrap().1.to_owned()
        };
        let error =
            "<Error><Key>d</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error></DeleteResult>";
        let expected = format!(
            "<Deleted><Key>a</Key></Deleted><Deleted><Key>b</Key><VersionId>v1</VersionId>\
                <DeleteMarker>true</DeleteMarker>\
             <DeleteMarkerVersionId>v1</DeleteMarkerVersionId></Deleted><Deleted><Key>c</Key>\
             <DeleteMarker>true</DeleteMarker>\
             <DeleteMarkerVersionId>v2</DeleteMarkerVersionId></Deleted>{error}"
        );
        assert_eq!(text(&request), expected);
        request.quiet = true;
        assert_eq!(text(&request), error);
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>, text in "(<|>|/|Delete|Object|Key|k| |&|;)*") {
            let _ = (decode(&bytes), decode(text.as_bytes()));
        }
    }
}
