//! `GET /key?attributes`: selected attributes of an object.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::LAST_MODIFIED;
use larder_rows::limits::S3_PAGE_MAX;
use larder_s3::get::{GetObject, ReadWindow};
use larder_s3_rules::{Checksum, ManifestPart, Object, ObjectBody, dates};

use super::{conditions, encryption, listing_document, object_headers};
use crate::call::{S3Call, joined};
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

const ATTRIBUTES: &str = "x-amz-object-attributes";
const MAX_PARTS: &str = "x-amz-max-parts";
const MARKER: &str = "x-amz-part-number-marker";

/// Attribute names.
const KNOWN: &[&str] = &["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

/// The decoded request.
#[derive(Debug, PartialEq, Eq)]
struct AttributesRequest {
    names: Vec<String>,
    after: u32,
    max: usize,
}

impl AttributesRequest {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|requested| requested == name)
    }
}

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let requested = decode(&call.headers)?;
    let request = GetObject {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        version: listing_document::version(&call.query),
        window: ReadWindow::Whole,
        conditions: conditions::read_conditions(&call.headers),
        customer_key: None,
    };
    let request = GetObject { customer_key: encryption::read_key(call, &request).await?, ..request };
    let max = if requested.has("ObjectParts") { requested.max } else { 0 };
    let (found_object, parts, more) =
        call.objects.object_attributes(&call.caller, &request, requested.after, max).await?;
    encryption::check_read(&call.headers)?;
    let object = found_object.version.object.as_ref().ok_or(Code::NoSuchKey)?;
    let mut response = response::document(document(&requested, object, &parts, more));
    response::set(&mut response, LAST_MODIFIED, dates::http(found_object.version.modified));
    object_headers::write_version(&mut response, found_object.version_id.as_deref());
    Ok(response)
}

fn decode(headers: &HeaderMap) -> Result<AttributesRequest, S3Error> {
    let value = joined(headers, ATTRIBUTES).unwrap_or_default();
    let value = String::from_utf8_lossy(&value);
    let names: Vec<String> =
        value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        return Err(S3Error::argument(
            ATTRIBUTES,
            "",
            "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty",
        ));
    }
    if names.iter().any(|name| !KNOWN.contains(&name.as_str())) {
        return Err(S3Error::argument(ATTRIBUTES, &*value, "Invalid attribute name specified."));
    }
    Ok(AttributesRequest {
        names,
        after: listing_document::number(MARKER, listing_document::header(headers, MARKER), 0)?,
        max: listing_document::page(MAX_PARTS, listing_document::header(headers, MAX_PARTS), S3_PAGE_MAX)?,
    })
}

fn document(requested: &AttributesRequest, object: &Object, parts: &[ManifestPart], more: bool) -> Bytes {
    let mut xml = XmlWriter::new("GetObjectAttributesResponse");
    if requested.has("ETag") {
        xml.text("ETag", object.etag.to_string());
    }
    if let (true, Some(checksum)) = (requested.has("Checksum"), &object.checksum) {
        xml.element("Checksum", |xml| {
            // Without the number of parts, unlike everywhere else.
            let value = Checksum { parts: None, ..checksum.clone() };
            xml.text(checksum.algorithm.element(), value.text()).text("ChecksumType", checksum.kind().name());
        });
    }
    if let (true, ObjectBody::Parts { count, .. }) = (requested.has("ObjectParts"), &object.body) {
        xml.element("ObjectParts", |xml| write_parts(xml, requested, object, *count, parts, more));
    }
    if requested.has("StorageClass") {
        xml.text("StorageClass", object_headers::storage_class(object));
    }
    if requested.has("ObjectSize") {
        xml.value("ObjectSize", object.length());
    }
    xml.finish()
}

/// Writes the part list only where the object's checksum is made of those of its parts; otherwise AWS reports their count alone.
fn write_parts(
    xml: &mut XmlWriter,
    requested: &AttributesRequest,
    object: &Object,
    count: u32,
    parts: &[ManifestPart],
    more: bool,
) {
    xml.value("PartsCount", count);
    let Some(composite) = object.checksum.as_ref().filter(|checksum| checksum.parts.is_some()) else { return };
    xml.value("PartNumberMarker", requested.after);
    xml.value("NextPartNumberMarker", parts.last().map_or(0, |part| part.number));
    xml.value("MaxParts", requested.max).value("IsTruncated", more);
    for part in parts {
        let Some(digest) = &part.checksum else { continue };
        xml.element("Part", |xml| {
            xml.value("PartNumber", part.number).value("Size", part.length);
            xml.text(composite.algorithm.element(), Checksum::full(composite.algorithm, digest.clone()).text());
        });
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use larder_s3_rules::{Algorithm, VersionId};
    use proptest::prelude::*;

    use super::*;

    fn decoded(pairs: &[(&'static str, &str)]) -> Result<AttributesRequest, S3Error> {
        let pairs =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        decode(&pairs.collect())
    }

    fn text(names: &str, object: &Object, parts: &[ManifestPart]) -> String {
        let requested = decoded(&[(ATTRIBUTES, names), (MARKER, "1"), (MAX_PARTS, "2")]).unwrap();
        let text = String::from_utf8(document(&requested, object, parts, true).to_vec()).unwrap();
        text.split_once("03-01/\">").unwrap().1.to_owned()
    }

    #[test]
    fn only_requested_attributes_are_written() {
        let mut object = object_headers::tests::object();
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
            "<ETag>44444444444444444444444444444444</ETag><Checksum><ChecksumCRC32>AAAAAA==</ChecksumCRC32>\
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
    fn invalid_attribute_headers_are_refused() {
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
