//! `POST /bucket?delete`: many objects at once, each with its own outcome.

use bytes::Bytes;
use futures_util::future::join_all;
use larder_gateway::objects::delete::Deleted;
use larder_gateway::objects::get::VersionSpec;
use larder_model::limits::DELETE_OBJECTS_MAX;

use super::{conditions, incoming};
use crate::auth::Scheme;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

/// How many are deleted at a time.
const AT_ONCE: usize = 8;

/// What is to be deleted.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    quiet: bool,
    items: Vec<Item>,
}

/// One of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Item {
    key: String,
    version: Option<String>,
    etag: Option<String>,
    /// Whether it has a condition that is not checked here.
    unbuilt: bool,
}

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    // Clients of version 2 do not know that they have to.
    let old = matches!(call.scheme, Some(Scheme::V2Header | Scheme::V2Query));
    if !old && !incoming::has_digest(&call.headers)? {
        return Err(Fault::invalid("Missing required header for this request: Content-MD5 OR x-amz-checksum-*"));
    }
    let request = decode(&incoming::document(call).await?)?;
    // Who may delete nothing at all is told of each key; a bucket that is not there is not.
    call.objects.bucket(&call.bucket).await?;
    let mut outcomes = Vec::with_capacity(request.items.len());
    for items in request.items.chunks(AT_ONCE) {
        outcomes.extend(join_all(items.iter().map(|item| delete(call, item))).await);
    }
    Ok(reply::document(document(&request, &outcomes)))
}

async fn delete(call: &Call, item: &Item) -> Result<Deleted, Fault> {
    if item.key.is_empty() {
        return Err(Fault::new(Code::UserKeyMustBeSpecified, "The key of an object must not be empty."));
    }
    if item.unbuilt {
        return Err(Code::NotImplemented.into());
    }
    let key = Bytes::copy_from_slice(item.key.as_bytes());
    let version = item.version.clone().map_or(VersionSpec::Current, VersionSpec::Id);
    let if_match = item.etag.clone().map(|etag| vec![etag]);
    Ok(call.objects.delete(&call.caller, &call.bucket, &key, &version, if_match).await?)
}

fn decode(document: &[u8]) -> Result<Request, Fault> {
    let mut xml = Reader::open(document, "Delete")?;
    let mut request = Request { quiet: false, items: Vec::new() };
    while let Some(name) = xml.child()? {
        match name {
            "Quiet" => request.quiet = xml.text()?.trim().eq_ignore_ascii_case("true"),
            "Object" if request.items.len() < DELETE_OBJECTS_MAX => request.items.push(item(&mut xml)?),
            "Object" => return Err(Code::MalformedXML.into()),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    if request.items.is_empty() { Err(Code::MalformedXML.into()) } else { Ok(request) }
}

/// The text of a key counts as it is, blanks at its ends too.
fn item(xml: &mut Reader<'_>) -> Result<Item, Fault> {
    let (mut item, mut key) = (Item::default(), None);
    while let Some(name) = xml.child()? {
        match name {
            "Key" => key = Some(xml.text()?),
            "VersionId" => item.version = Some(xml.text()?.trim().to_owned()).filter(|version| !version.is_empty()),
            "ETag" => item.etag = Some(conditions::unquoted(&xml.text()?).to_owned()),
            "LastModifiedTime" | "Size" => {
                item.unbuilt = true;
                xml.skip()?;
            }
            _ => xml.skip()?,
        }
    }
    item.key = key.ok_or(Code::MalformedXML)?;
    Ok(item)
}

fn document(request: &Request, outcomes: &[Result<Deleted, Fault>]) -> Bytes {
    let mut xml = Xml::new("DeleteResult");
    for (item, outcome) in request.items.iter().zip(outcomes) {
        match outcome {
            Ok(_) if request.quiet => {}
            Ok(deleted) => drop(xml.within("Deleted", |xml| write_deleted(xml, item, deleted))),
            Err(fault) => {
                xml.within("Error", |xml| {
                    xml.text("Key", &item.key).maybe("VersionId", item.version.as_ref());
                    xml.text("Code", fault.code.name()).text("Message", &fault.message);
                });
            }
        }
    }
    xml.finish()
}

fn write_deleted(xml: &mut Xml, item: &Item, deleted: &Deleted) {
    xml.text("Key", &item.key).maybe("VersionId", item.version.as_ref());
    if deleted.marker {
        xml.value("DeleteMarker", true).maybe("DeleteMarkerVersionId", deleted.version_id.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(key: &str, version: Option<&str>) -> Item {
        Item { key: key.into(), version: version.map(Into::into), ..Item::default() }
    }

    #[test]
    fn documents() {
        let read = decode(
            b"<?xml version=\"1.0\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object>\
                <Key> a&amp;b </Key>\
              </Object> <Object><VersionId>v</VersionId><Key>k</Key><ETag>\"e\"</ETag></Object><Object><Key/></Object>\
              <Object><Key>s</Key><Size>1</Size></Object><Quiet>true</Quiet></Delete>",
        )
        .unwrap();
        let with_etag = Item { etag: Some("e".into()), ..item("k", Some("v")) };
        let unbuilt = Item { unbuilt: true, ..item("s", None) };
        assert_eq!(read, Request { quiet: true, items: vec![item(" a&b ", None), with_etag, item("", None), unbuilt] });
    }

    #[test]
    fn keys_that_xml_has_no_place_for() {
        let read = decode(b"<Delete><Object><Key>a&#x1;&#xD;&#10;b&#x7F;</Key></Object></Delete>").unwrap();
        assert_eq!(read.items, [item("a\u{1}\r\nb\u{7f}", None)]);
    }

    #[test]
    fn documents_that_are_refused() {
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
    fn every_key_has_its_outcome() {
        let mut request = Request {
            quiet: false,
            items: vec![item("a", None), item("b", Some("v1")), item("c", None), item("d", None)],
        };
        let marker = |id: &str| Deleted { marker: true, version_id: Some(id.into()) };
        let outcomes = [Ok(Deleted::default()), Ok(marker("v1")), Ok(marker("v2")), Err(Code::AccessDenied.into())];
        let text = |request: &Request| {
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
