//! `GET /key?attributes`: what is known of an object, as asked for.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::LAST_MODIFIED;
use larder_gateway::objects::get::{GetObject, Window};
use larder_model::limits::S3_PAGE_MAX;
use larder_model::objects::{Checksum, ManifestPart, Object, ObjectBody};

use super::{conditions, describe, params};
use crate::call::{Call, joined};
use crate::dates;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::Xml;

const ATTRIBUTES: &str = "x-amz-object-attributes";
const MAX_PARTS: &str = "x-amz-max-parts";
const MARKER: &str = "x-amz-part-number-marker";

/// What can be asked for.
const KNOWN: &[&str] = &["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    names: Vec<String>,
    after: u32,
    max: usize,
}

impl Asked {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|asked| asked == name)
    }
}

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let asked = decode(&call.headers)?;
    let request = GetObject {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        version: params::version(&call.query),
        window: Window::Whole,
        conditions: conditions::of_read(&call.headers),
    };
    let max = if asked.has("ObjectParts") { asked.max } else { 0 };
    let (found, parts, more) = call.objects.object_attributes(&call.caller, &request, asked.after, max).await?;
    let object = found.version.object.as_ref().ok_or(Code::NoSuchKey)?;
    let mut reply = reply::document(document(&asked, object, &parts, more));
    reply::set(&mut reply, LAST_MODIFIED, dates::http(found.version.modified));
    describe::version(&mut reply, found.version_id.as_deref());
    Ok(reply)
}

fn decode(headers: &HeaderMap) -> Result<Asked, Fault> {
    let value = joined(headers, ATTRIBUTES).unwrap_or_default();
    let value = String::from_utf8_lossy(&value);
    let names: Vec<String> =
        value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        return Err(Fault::argument(
            ATTRIBUTES,
            "",
            "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty",
        ));
    }
    if names.iter().any(|name| !KNOWN.contains(&name.as_str())) {
        return Err(Fault::argument(ATTRIBUTES, &*value, "Invalid attribute name specified."));
    }
    Ok(Asked {
        names,
        after: params::number(MARKER, params::header(headers, MARKER), 0)?,
        max: params::page(MAX_PARTS, params::header(headers, MAX_PARTS), S3_PAGE_MAX)?,
    })
}

fn document(asked: &Asked, object: &Object, parts: &[ManifestPart], more: bool) -> Bytes {
    let mut xml = Xml::new("GetObjectAttributesResponse");
    if asked.has("ETag") {
        xml.text("ETag", object.etag.to_string());
    }
    if let (true, Some(checksum)) = (asked.has("Checksum"), &object.checksum) {
        xml.within("Checksum", |xml| super::checksums::write(xml, Some(checksum)));
    }
    if let (true, ObjectBody::Parts { count, .. }) = (asked.has("ObjectParts"), &object.body) {
        xml.within("ObjectParts", |xml| write_parts(xml, asked, object, *count, parts, more));
    }
    if asked.has("StorageClass") {
        xml.text("StorageClass", describe::class(object));
    }
    if asked.has("ObjectSize") {
        xml.value("ObjectSize", object.length());
    }
    xml.finish()
}

/// The parts one by one only where they have checksums: without, AWS tells no more than how many there are.
fn write_parts(xml: &mut Xml, asked: &Asked, object: &Object, count: u32, parts: &[ManifestPart], more: bool) {
    xml.value("PartsCount", count).value("PartNumberMarker", asked.after);
    xml.value("NextPartNumberMarker", parts.last().map_or(0, |part| part.number));
    xml.value("MaxParts", asked.max).value("IsTruncated", more);
    let Some(algorithm) = object.checksum.as_ref().map(|checksum| checksum.algorithm) else { return };
    for part in parts {
        let Some(digest) = &part.checksum else { continue };
        xml.within("Part", |xml| {
            xml.value("PartNumber", part.number).value("Size", part.length);
            xml.text(algorithm.element(), Checksum::full(algorithm, digest.clone()).text());
        });
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use larder_model::objects::{Algorithm, VersionId};
    use proptest::prelude::*;

    use super::*;

    fn decoded(pairs: &[(&'static str, &str)]) -> Result<Asked, Fault> {
        let pairs =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        decode(&pairs.collect())
    }

    fn text(names: &str, object: &Object, parts: &[ManifestPart]) -> String {
        let asked = decoded(&[(ATTRIBUTES, names), (MARKER, "1"), (MAX_PARTS, "2")]).unwrap();
        let text = String::from_utf8(document(&asked, object, parts, true).to_vec()).unwrap();
        text.split_once("03-01/\">").unwrap().1.to_owned()
    }

    #[test]
    fn what_was_asked_for_and_nothing_else() {
        let mut object = describe::tests::object();
        assert_eq!(text("ObjectSize", &object, &[]), "<ObjectSize>100</ObjectSize></GetObjectAttributesResponse>");
        assert_eq!(text("ObjectParts", &object, &[]), "</GetObjectAttributesResponse>");
        object.body = ObjectBody::Parts { manifest: VersionId([0; 16]), count: 5, length: 70 };
        let digest = Some(Bytes::from_static(&[0, 0, 0, 2]));
        let part = ManifestPart { number: 3, length: 7, blob: None, checksum: digest };
        object.checksum =
            Some(Checksum { algorithm: Algorithm::Crc32, digest: Bytes::from_static(&[0; 4]), parts: Some(5) });
        let all = text("ETag, Checksum,ObjectParts ,StorageClass,ObjectSize", &object, std::slice::from_ref(&part));
        let counts = "<ObjectParts><PartsCount>5</PartsCount><PartNumberMarker>1</PartNumberMarker>\
            <NextPartNumberMarker>3</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>true</IsTruncated>";
        let expected = format!(
            "<ETag>44444444444444444444444444444444</ETag><Checksum><ChecksumCRC32>AAAAAA==-5</ChecksumCRC32>\
             <ChecksumType>COMPOSITE</ChecksumType></Checksum>{counts}<Part><PartNumber>3</PartNumber><Size>7</Size>\
             <ChecksumCRC32>AAAAAg==</ChecksumCRC32></Part></ObjectParts><StorageClass>GLACIER</StorageClass>\
             <ObjectSize>70</ObjectSize></GetObjectAttributesResponse>"
        );
        assert_eq!(all, expected);
        let bare = ManifestPart { checksum: None, ..part };
        let expected = format!("{counts}</ObjectParts></GetObjectAttributesResponse>");
        assert_eq!(text("ObjectParts", &object, &[bare]), expected);
    }

    #[test]
    fn what_is_refused() {
        for pairs in [
            vec![],
            vec![(ATTRIBUTES, " ,")],
            vec![(ATTRIBUTES, "ETag,Colour")],
            vec![(ATTRIBUTES, "ETag"), (MAX_PARTS, "-1")],
            vec![(ATTRIBUTES, "ETag"), (MARKER, "x")],
        ] {
            assert_eq!(decoded(&pairs).unwrap_err().code.name(), "InvalidArgument", "{pairs:?}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(value: String) {
            let Ok(value) = HeaderValue::from_str(&value) else { return Ok(()) };
            for name in [ATTRIBUTES, MAX_PARTS, MARKER] {
                let mut headers = HeaderMap::new();
                headers.insert(ATTRIBUTES, HeaderValue::from_static("ETag"));
                headers.insert(name, value.clone());
                let _ = decode(&headers);
            }
        }
    }
}
