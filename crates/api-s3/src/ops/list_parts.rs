//! `GET /key?uploadId=U`: lists the parts of an open upload in pages.

use bytes::Bytes;
use hyper::header::HeaderName;
use larder_rows::limits::S3_PAGE_MAX;
use larder_s3::encryption::EncryptionChoice;
use larder_s3::parts::{ListParts, ListedParts};
use larder_s3::uploads::AbortDate;
use larder_s3_rules::{Algorithm, Checksum, Etag, Part, SystemHeader, Upload, dates};

use super::encryption;
use super::listing_document::{self, DisplayNames, EncodingType};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

const ABORT_DATE: HeaderName = HeaderName::from_static("x-amz-abort-date");
const ABORT_RULE: HeaderName = HeaderName::from_static("x-amz-abort-rule-id");

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let (mut request, encoding) = decode(&call.bucket, &call.key, &call.query)?;
    request.encryption = encryption::named(call)?;
    let listed = call.objects.uploads.list_parts(&call.caller, &request).await?;
    let ids = [listed.upload.initiator.as_str(), listed.upload.owner.as_str()];
    let names = DisplayNames::load(&call.objects, ids.into_iter().collect()).await;
    let mut response = response::document(document(&request, encoding, &listed, &names));
    write_abort_date(&mut response, &listed.abort_date);
    Ok(response)
}

/// Writes when the lifecycle will abort the upload.
pub(super) fn write_abort_date(response: &mut S3Response, date: &AbortDate) {
    if let Some((at, rule)) = date {
        response::set(response, ABORT_DATE, dates::http(*at));
        response::set(response, ABORT_RULE, rule.as_str());
    }
}

/// The storage class of the upload's object.
pub(super) fn storage_class(upload: &Upload) -> String {
    let class = upload.headers.iter().find(|(name, _)| *name == SystemHeader::StorageClass);
    class.map_or_else(|| "STANDARD".into(), |(_, value)| String::from_utf8_lossy(value).into_owned())
}

fn decode(bucket: &str, key: &Bytes, query: &S3Query) -> Result<(ListParts, EncodingType), S3Error> {
    let request = ListParts {
        bucket: bucket.to_owned(),
        key: key.clone(),
        upload: query.get("uploadId").unwrap_or_default().to_owned(),
        after: listing_document::number("part-number-marker", query.get("part-number-marker"), 0)?,
        max: listing_document::page("max-parts", query.get("max-parts"), S3_PAGE_MAX)?,
        encryption: EncryptionChoice::default(),
    };
    Ok((request, EncodingType::from_param(query.get("encoding-type"))?))
}

fn document(request: &ListParts, encoding: EncodingType, listed: &ListedParts, names: &DisplayNames) -> Bytes {
    let ListedParts { upload, page, .. } = listed;
    let mut xml = XmlWriter::new("ListPartsResult");
    xml.text("Bucket", &request.bucket)
        .text("Key", encoding.encode_key(&request.key))
        .text("UploadId", &request.upload);
    names.write(&mut xml, "Initiator", &upload.initiator);
    names.write(&mut xml, "Owner", &upload.owner);
    xml.text("StorageClass", storage_class(upload));
    xml.value("PartNumberMarker", request.after).value("NextPartNumberMarker", page.next_marker);
    xml.value("MaxParts", request.max).value("IsTruncated", page.truncated);
    encoding.write(&mut xml);
    if let Some((algorithm, kind)) = upload.checksum {
        xml.text("ChecksumAlgorithm", algorithm.name()).text("ChecksumType", kind.name());
    }
    for part in &page.parts {
        xml.element("Part", |xml| write_part(xml, part, upload.checksum.map(|(algorithm, _)| algorithm)));
    }
    xml.finish()
}

fn write_part(xml: &mut XmlWriter, part: &Part, algorithm: Option<Algorithm>) {
    xml.value("PartNumber", part.number).text("LastModified", dates::iso(part.modified));
    xml.text("ETag", format!("\"{}\"", Etag::from_md5(part.md5))).value("Size", part.length);
    if let (Some(algorithm), Some(digest)) = (algorithm, &part.checksum) {
        xml.text(algorithm.element(), Checksum::full(algorithm, digest.clone()).text());
    }
}

#[cfg(test)]
mod tests {
    use larder_s3_rules::part::PartsPage;
    use larder_s3_rules::{BucketId, ChecksumKind, ObjectLock, UploadState};
    use proptest::prelude::*;

    use super::*;
    use larder_rows::Timestamp;

    fn decoded(query: &str) -> Result<(ListParts, EncodingType), S3Error> {
        decode("b", &Bytes::from_static(b"k"), &S3Query::parse(Some(query)))
    }

    fn listed(checksum: Option<(Algorithm, ChecksumKind)>) -> ListedParts {
        let upload = Upload {
            bucket: BucketId([1; 16]),
            key: Bytes::from_static(b"a b/c"),
            initiator: "i".into(),
            owner: "o".into(),
            initiated: Timestamp(1),
            headers: vec![],
            meta: vec![],
            tags: vec![],
            acl: None,
            checksum,
            encryption: None,
            lock: ObjectLock::default(),
            state: UploadState::Open,
        };
        let part = |number| Part {
            number,
            md5: [0x11; 16],
            length: 5_242_880,
            blob: None,
            modified: Timestamp(1_289_422_114_123_456),
            checksum: checksum.map(|_| Bytes::from_static(&[0, 0, 0, 1])),
        };
        let page = PartsPage { parts: vec![part(2), part(3)], truncated: true, next_marker: 3 };
        ListedParts { upload, page, abort_date: None }
    }

    fn text(query: &str, listed: &ListedParts) -> String {
        let key = Bytes::from_static(b"a b/c");
        let (request, encoding) = decode("example-bucket", &key, &S3Query::parse(Some(query))).unwrap();
        let names = DisplayNames::fixed(&[("i", "tea"), ("o", "milk")]);
        String::from_utf8(document(&request, encoding, listed, &names).to_vec()).unwrap()
    }

    #[test]
    fn elements_are_in_the_order_of_the_api() {
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListPartsResult \
            xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>example-bucket</Bucket><Key>a b/c</Key>\
            <UploadId>U</UploadId>\
            <Initiator><ID>i</ID><DisplayName>tea</DisplayName></Initiator><Owner><ID>o</ID>\
            <DisplayName>milk</DisplayName></Owner>\
            <StorageClass>STANDARD</StorageClass><PartNumberMarker>1</PartNumberMarker>\
            <NextPartNumberMarker>3</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>true</IsTruncated>\
            <Part><PartNumber>2</PartNumber><LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;11111111111111111111111111111111&quot;</ETag><Size>5242880</Size></Part>\
            <Part><PartNumber>3</PartNumber><LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;11111111111111111111111111111111&quot;</ETag><Size>5242880</Size></Part></ListPartsResult>";
        assert_eq!(text("uploadId=U&max-parts=2&part-number-marker=1", &listed(None)), expected);
    }

    #[test]
    fn checksum_elements_stand_between_is_truncated_and_the_parts() {
        let text = text("uploadId=U&encoding-type=url", &listed(Some((Algorithm::Crc32, ChecksumKind::Composite))));
        assert!(text.contains("<Key>a%20b/c</Key>"), "{text}");
        assert!(
            text.contains(
                "</IsTruncated><EncodingType>url</EncodingType><ChecksumAlgorithm>CRC32</ChecksumAlgorithm>\
             <ChecksumType>COMPOSITE</ChecksumType><Part>"
            ),
            "{text}"
        );
        assert!(text.contains("</Size><ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part>"), "{text}");
    }

    #[test]
    fn an_empty_page_has_next_marker_0() {
        let page = PartsPage { parts: vec![], truncated: false, next_marker: 0 };
        let text = text("uploadId=U&part-number-marker=77", &ListedParts { page, ..listed(None) });
        assert!(
            text.contains(
                "<PartNumberMarker>77</PartNumberMarker><NextPartNumberMarker>0</NextPartNumberMarker>\
             <MaxParts>1000</MaxParts><IsTruncated>false</IsTruncated></ListPartsResult>"
            ),
            "{text}"
        );
    }

    #[test]
    fn page_parameters_are_decoded_or_refused() {
        for (query, after, max) in [
            ("uploadId=U", 0, 1000),
            ("uploadId=U&max-parts=&part-number-marker=", 0, 1000),
            ("uploadId=U&max-parts=2000", 0, 1000),
            ("uploadId=U&max-parts=0", 0, 0),
            ("uploadId=U&max-parts=2&max-parts=x&part-number-marker=1", 1, 2),
            ("uploadId=U&part-number-marker=2147483647", 2_147_483_647, 1000),
        ] {
            let (request, _) = decoded(query).unwrap();
            assert_eq!((request.after, request.max), (after, max), "{query}");
        }
        assert_eq!(decoded("uploadId").unwrap().0.upload, "");
        for (query, name, words) in [
            ("max-parts=-1", "max-parts", "must be an integer between 0 and 2147483647"),
            ("max-parts=x", "max-parts", "not an integer or within integer range"),
            ("max-parts=2147483648", "max-parts", "not an integer or within integer range"),
            ("part-number-marker=-1", "part-number-marker", "must be an integer between 0 and 2147483647"),
            ("part-number-marker=1.5", "part-number-marker", "not an integer or within integer range"),
            ("encoding-type=x", "encoding-type", "Invalid Encoding Method"),
        ] {
            let error = decoded(query).unwrap_err();
            assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", name), "{query}");
            assert!(error.message.contains(words), "{query}: {}", error.message);
        }
    }

    proptest! {
        #[test]
        fn any_query_is_decoded_or_refused(query: String) {
            let _ = decoded(&query);
            let _ = decoded(&format!("uploadId={query}&max-parts={query}&part-number-marker={query}"));
        }
    }
}
