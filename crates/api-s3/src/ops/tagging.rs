//! `?tagging`: the tags of buckets and of objects.

use bytes::Bytes;
use hyper::StatusCode;
use larder_rows::limits::{BUCKET_TAGS_MAX, OBJECT_TAGS_MAX};
use larder_s3::{Configuration, Error};
use larder_s3_rules::Tag;
use larder_s3_rules::tags::{self, TagError};

use super::{listing_document, object_headers, object_metadata, upload_body};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

pub(super) async fn get_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    if bucket.tags.is_empty() {
        return Err(Error::NoConfiguration(Configuration::Tags).into());
    }
    Ok(response::document(write(&bucket.tags)))
}

pub(super) async fn put_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let tags = read_bucket(&upload_body::document(call).await?)?;
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.tags.clone_from(&tags)).await
}

pub(super) async fn delete_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.tags.clear()).await
}

pub(super) async fn get_object(call: &S3Call) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let tagging = call.objects.object_tags(&call.caller, &call.bucket, &call.key, &version).await;
    let (tags, version_id) = tagging.map_err(named_marker)?;
    let mut response = response::document(write(&tags));
    object_headers::write_version(&mut response, version_id.as_deref());
    Ok(response)
}

pub(super) async fn put_object(call: &S3Call) -> Result<S3Response, S3Error> {
    let tags = read_object(&upload_body::document(call).await?)?;
    replace(call, tags, StatusCode::OK).await
}

pub(super) async fn delete_object(call: &S3Call) -> Result<S3Response, S3Error> {
    replace(call, Vec::new(), StatusCode::NO_CONTENT).await
}

/// The tags of a bucket in their document.
///
/// # Errors
/// As [`read`].
pub(super) fn read_bucket(document: &[u8]) -> Result<Vec<Tag>, S3Error> {
    read(document, BUCKET_TAGS_MAX)
}

/// The tags of an object in their document.
///
/// # Errors
/// As [`read`].
pub(super) fn read_object(document: &[u8]) -> Result<Vec<Tag>, S3Error> {
    read(document, OBJECT_TAGS_MAX)
}

async fn replace(call: &S3Call, tags: Vec<Tag>, status: StatusCode) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let mut caller = call.caller.clone();
    // Bucket policies test the tags of this document; a tagging header has no meaning here.
    caller.access_context.request_tags.clone_from(&tags);
    let replaced = call.objects.put_object_tags(&caller, &call.bucket, &call.key, &version, tags).await;
    let version_id = replaced.map_err(named_marker)?;
    let mut response = response::empty(status);
    object_headers::write_version(&mut response, version_id.as_deref());
    Ok(response)
}

/// A delete marker has no tags, also where it is the current version: AWS answers as if the request named it.
fn named_marker(error: Error) -> Error {
    match error {
        Error::DeleteMarker { id, null, modified, .. } => Error::DeleteMarker { id, null, modified, current: false },
        other => other,
    }
}

/// Parses a document with at most `max` tags.
///
/// # Errors
/// 400 `MalformedXML`, or the error of invalid tags.
pub(super) fn read(document: &[u8], max: usize) -> Result<Vec<Tag>, S3Error> {
    let mut xml = XmlReader::open(document, "Tagging")?;
    let mut tags = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "TagSet" => tags = Some(set(&mut xml, max)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    let tags = tags.ok_or(Code::MalformedXML)?;
    tags::validate(&tags, max).map_err(|error| object_metadata::tag_error(&error))?;
    Ok(tags)
}

/// Parses the tags below an element, at most `max`.
///
/// # Errors
/// 400 `MalformedXML`, or the error of too many tags.
pub(super) fn set(xml: &mut XmlReader<'_>, max: usize) -> Result<Vec<Tag>, S3Error> {
    let mut tags = Vec::new();
    while let Some(name) = xml.next_child()? {
        match name {
            "Tag" if tags.len() < max => tags.push(tag(xml)?),
            "Tag" => return Err(object_metadata::tag_error(&TagError::TooMany(max))),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(tags)
}

/// Parses a tag; lifecycle filters use it too.
///
/// # Errors
/// 400 `MalformedXML`.
pub(super) fn tag(xml: &mut XmlReader<'_>) -> Result<Tag, S3Error> {
    let (mut key, mut value) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Key" => key = Some(xml.text()?),
            "Value" => value = Some(xml.text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    let (key, value) = key.zip(value).ok_or(Code::MalformedXML)?;
    Ok(Tag { key, value })
}

/// Writes a tag.
pub(super) fn write_tag(xml: &mut XmlWriter, tag: &Tag) {
    xml.element("Tag", |xml| {
        xml.text("Key", &tag.key).text("Value", &tag.value);
    });
}

fn write(tags: &[Tag]) -> Bytes {
    let mut xml = XmlWriter::new("Tagging");
    xml.element("TagSet", |xml| tags.iter().for_each(|tag| write_tag(xml, tag)));
    xml.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(tags: &str) -> Result<Vec<Tag>, &'static str> {
        read(format!("<Tagging><TagSet>{tags}</TagSet></Tagging>").as_bytes(), 10).map_err(|error| error.code.name())
    }

    #[test]
    fn the_document_is_written_and_read_back() {
        let tags = [Tag { key: "k+".into(), value: String::new() }, Tag { key: "l".into(), value: " v ".into() }];
        let document = write(&tags);
        let text = std::str::from_utf8(&document).unwrap();
        let expected = "03-01/\"><TagSet><Tag><Key>k+</Key><Value/></Tag><Tag><Key>l</Key>\
            <Value> v </Value></Tag></TagSet></Tagging>";
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(read(&document, 2).unwrap(), tags);
        assert_eq!(read(&write(&[]), 2).unwrap(), []);
    }

    #[test]
    fn invalid_tags_are_refused() {
        let tag = |key: &str| format!("<Tag><Key>{key}</Key><Value/></Tag>");
        assert_eq!(parsed("<Tag><Key>k</Key></Tag>"), Err("MalformedXML"));
        assert_eq!(parsed(&tag("")), Err("InvalidTag"));
        assert_eq!(parsed(&tag(&"k".repeat(129))), Err("InvalidTag"));
        assert_eq!(parsed(&[tag("k"), tag("k")].concat()), Err("InvalidTag"));
        let many = |count: usize| (0..count).map(|at| tag(&at.to_string())).collect::<String>();
        assert_eq!(parsed(&many(10)).map(|tags| tags.len()), Ok(10));
        assert_eq!(parsed(&many(11)), Err("BadRequest"));
        assert_eq!(read(b"<Tagging/>", 10).unwrap_err().code.name(), "MalformedXML");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>, text in "(<|>|/|Tagging|TagSet|Tag|Key|Value|x)*") {
            let _ = (read(&bytes, 10), read(text.as_bytes(), 10));
        }
    }
}
