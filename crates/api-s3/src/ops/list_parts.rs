//! `GET /key?uploadId=U`: the parts of an upload that is open, page by page.

use bytes::Bytes;
use hyper::header::HeaderName;
use larder_gateway::objects::parts::{ListParts, PartsPage};
use larder_gateway::objects::uploads::AbortDate;
use larder_model::limits::S3_PAGE_MAX;
use larder_model::objects::{Algorithm, Checksum, Etag, Part, SystemHeader, Upload};

use super::names::Names;
use super::params;
use super::spelling::Spelling;
use crate::call::Call;
use crate::dates;
use crate::errors::Fault;
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::xml::Xml;

const ABORT_DATE: HeaderName = HeaderName::from_static("x-amz-abort-date");
const ABORT_RULE: HeaderName = HeaderName::from_static("x-amz-abort-rule-id");

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let (request, spelling) = decode(&call.bucket, &call.key, &call.query)?;
    let page = call.objects.list_parts(&call.caller, &request).await?;
    let ids = [page.upload.initiator.as_str(), page.upload.owner.as_str()];
    let names = Names::of(&call.objects, ids.into_iter().collect()).await;
    let mut reply = reply::document(document(&request, spelling, &page, &names));
    say_abort_date(&mut reply, &page.abort_date);
    Ok(reply)
}

/// When the lifecycle will give an upload up.
pub(super) fn say_abort_date(reply: &mut Reply, date: &AbortDate) {
    if let Some((at, rule)) = date {
        reply::set(reply, ABORT_DATE, dates::http(*at));
        reply::set(reply, ABORT_RULE, rule.as_str());
    }
}

/// The storage class of an object that is being made.
pub(super) fn class_of(upload: &Upload) -> String {
    let class = upload.headers.iter().find(|(name, _)| *name == SystemHeader::StorageClass);
    class.map_or_else(|| "STANDARD".into(), |(_, value)| String::from_utf8_lossy(value).into_owned())
}

fn decode(bucket: &str, key: &Bytes, query: &Query) -> Result<(ListParts, Spelling), Fault> {
    let request = ListParts {
        bucket: bucket.to_owned(),
        key: key.clone(),
        upload: query.get("uploadId").unwrap_or_default().to_owned(),
        after: params::number("part-number-marker", query.get("part-number-marker"), 0)?,
        max: params::page("max-parts", query.get("max-parts"), S3_PAGE_MAX)?,
    };
    Ok((request, Spelling::of(query.get("encoding-type"))?))
}

fn document(request: &ListParts, spelling: Spelling, page: &PartsPage, names: &Names) -> Bytes {
    let upload = &page.upload;
    let mut xml = Xml::new("ListPartsResult");
    xml.text("Bucket", &request.bucket).text("Key", spelling.of_key(&request.key)).text("UploadId", &request.upload);
    names.write(&mut xml, "Initiator", &upload.initiator);
    names.write(&mut xml, "Owner", &upload.owner);
    xml.text("StorageClass", class_of(upload));
    xml.value("PartNumberMarker", request.after).value("NextPartNumberMarker", page.next_marker);
    xml.value("MaxParts", request.max).value("IsTruncated", page.truncated);
    spelling.say(&mut xml);
    if let Some((algorithm, kind)) = upload.checksum {
        xml.text("ChecksumAlgorithm", algorithm.name()).text("ChecksumType", kind.name());
    }
    for part in &page.parts {
        xml.within("Part", |xml| write_part(xml, part, upload.checksum.map(|(algorithm, _)| algorithm)));
    }
    xml.finish()
}

fn write_part(xml: &mut Xml, part: &Part, algorithm: Option<Algorithm>) {
    xml.value("PartNumber", part.number).text("LastModified", dates::iso(part.modified));
    xml.text("ETag", format!("\"{}\"", Etag::of_md5(part.md5))).value("Size", part.length);
    if let (Some(algorithm), Some(digest)) = (algorithm, &part.checksum) {
        xml.text(algorithm.element(), Checksum::full(algorithm, digest.clone()).text());
    }
}

#[cfg(test)]
mod tests {
    use larder_model::objects::{BucketId, ChecksumKind, UploadState};
    use proptest::prelude::*;

    use super::*;

    fn decoded(query: &str) -> Result<(ListParts, Spelling), Fault> {
        decode("b", &Bytes::from_static(b"k"), &Query::of(Some(query)))
    }

    fn page(checksum: Option<(Algorithm, ChecksumKind)>) -> PartsPage {
        let upload = Upload {
            bucket: BucketId([1; 16]),
            key: Bytes::from_static(b"a b/c"),
            initiator: "i".into(),
            owner: "o".into(),
            initiated: 1,
            headers: vec![],
            meta: vec![],
            tags: vec![],
            acl: None,
            checksum,
            state: UploadState::Open,
        };
        let part = |number| Part {
            number,
            md5: [0x11; 16],
            length: 5_242_880,
            blob: None,
            modified: 1_289_422_114_123_456,
            checksum: checksum.map(|_| Bytes::from_static(&[0, 0, 0, 1])),
        };
        PartsPage { upload, parts: vec![part(2), part(3)], truncated: true, next_marker: 3, abort_date: None }
    }

    fn text(query: &str, page: &PartsPage) -> String {
        let key = Bytes::from_static(b"a b/c");
        let (request, spelling) = decode("example-bucket", &key, &Query::of(Some(query))).unwrap();
        let names = Names::fixed(&[("i", "tea"), ("o", "milk")]);
        String::from_utf8(document(&request, spelling, page, &names).to_vec()).unwrap()
    }

    #[test]
    fn the_order_of_the_document() {
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
        assert_eq!(text("uploadId=U&max-parts=2&part-number-marker=1", &page(None)), expected);
    }

    #[test]
    fn checksums_come_between_is_truncated_and_the_parts() {
        let text = text("uploadId=U&encoding-type=url", &page(Some((Algorithm::Crc32, ChecksumKind::Composite))));
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
    fn an_empty_page() {
        let page = PartsPage { parts: vec![], truncated: false, next_marker: 0, ..page(None) };
        let text = text("uploadId=U&part-number-marker=77", &page);
        assert!(
            text.contains(
                "<PartNumberMarker>77</PartNumberMarker><NextPartNumberMarker>0</NextPartNumberMarker>\
             <MaxParts>1000</MaxParts><IsTruncated>false</IsTruncated></ListPartsResult>"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_can_be_asked() {
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
            let fault = decoded(query).unwrap_err();
            assert_eq!((fault.code.name(), fault.extras[0].1.as_str()), ("InvalidArgument", name), "{query}");
            assert!(fault.message.contains(words), "{query}: {}", fault.message);
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
