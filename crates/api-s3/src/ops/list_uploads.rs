//! `GET /bucket?uploads`: lists open uploads.

use bytes::Bytes;
use larder_s3::list::{KeyOrPrefix, ListingPage};
use larder_s3::uploads::ListUploads;
use larder_s3_rules::{UploadEntry, UploadId, dates};

use super::list_objects::{list_request, write_prefixes};
use super::listing_document::{DisplayNames, EncodingType};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

/// A page, and the upload of its last key after which the next page begins.
type UploadsPage = (ListingPage<(UploadId, UploadEntry)>, Option<UploadId>);

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let (request, encoding) = decode(&call.bucket, &call.query)?;
    let page = call.objects.uploads.list(&call.caller, &request).await?;
    let names = DisplayNames::load(&call.objects, user_ids(&page).collect()).await;
    Ok(response::document(document(&request, encoding, &page, &names)))
}

fn decode(bucket: &str, query: &S3Query) -> Result<(ListUploads, EncodingType), S3Error> {
    let (mut objects, encoding) = list_request(bucket, query, "max-uploads")?;
    objects.after = Bytes::copy_from_slice(query.get("key-marker").unwrap_or_default().as_bytes());
    // An upload marker without a key marker is ignored.
    let marker = query.non_empty("upload-id-marker").filter(|_| !objects.after.is_empty());
    let upload = match marker {
        None => None,
        Some(text) => {
            let bad = || S3Error::argument("upload-id-marker", text, "Invalid uploadId marker");
            Some(UploadId::from_text(text).ok_or_else(bad)?)
        }
    };
    Ok((ListUploads { objects, upload }, encoding))
}

fn user_ids((page, _): &UploadsPage) -> impl Iterator<Item = &str> {
    let entries = page.lines.iter().filter_map(|line| match line {
        KeyOrPrefix::Key(_, (_, entry)) => Some(entry),
        KeyOrPrefix::Prefix(_) => None,
    });
    entries.flat_map(|entry| [entry.initiator.as_str(), entry.owner.as_str()])
}

fn document(request: &ListUploads, encoding: EncodingType, (page, next): &UploadsPage, names: &DisplayNames) -> Bytes {
    let list = &request.objects;
    let mut xml = XmlWriter::new("ListMultipartUploadsResult");
    xml.text("Bucket", &list.bucket).text("KeyMarker", encoding.encode_key(&list.after));
    xml.text("UploadIdMarker", request.upload.map(|upload| upload.text()).unwrap_or_default());
    xml.text("NextKeyMarker", page.next.as_ref().map(|key| encoding.encode_key(key)).unwrap_or_default());
    xml.text("NextUploadIdMarker", next.map(|upload| upload.text()).unwrap_or_default());
    xml.text("Prefix", encoding.encode_key(&list.prefix));
    super::list_objects::write_delimiter(&mut xml, list, encoding);
    encoding.write(&mut xml);
    xml.value("MaxUploads", list.max).value("IsTruncated", page.next.is_some());
    for line in &page.lines {
        if let KeyOrPrefix::Key(key, (id, entry)) = line {
            xml.element("Upload", |xml| {
                xml.text("Key", encoding.encode_key(key)).text("UploadId", id.text());
                write_entry(xml, entry, names);
            });
        }
    }
    write_prefixes(&mut xml, &page.lines, encoding);
    xml.finish()
}

fn write_entry(xml: &mut XmlWriter, entry: &UploadEntry, names: &DisplayNames) {
    names.write(xml, "Initiator", &entry.initiator);
    names.write(xml, "Owner", &entry.owner);
    xml.text("StorageClass", entry.storage_class.as_deref().unwrap_or("STANDARD"));
    xml.text("Initiated", dates::iso(entry.initiated));
    if let Some((algorithm, kind)) = entry.checksum {
        xml.text("ChecksumAlgorithm", algorithm.name()).text("ChecksumType", kind.name());
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3_rules::{Algorithm, ChecksumKind};
    use proptest::prelude::*;

    use super::*;

    fn text(query: &str, page: &UploadsPage) -> String {
        let (request, encoding) = decode("b", &S3Query::parse(Some(query))).unwrap();
        let document = document(&request, encoding, page, &DisplayNames::fixed(&[("i", "tea"), ("o", "milk")]));
        String::from_utf8(document.to_vec()).unwrap().split_once("03-01/\">").unwrap().1.to_owned()
    }

    #[test]
    fn elements_are_in_the_order_of_the_api() {
        let id = UploadId([7; 16]);
        let entry = UploadEntry {
            initiated: Timestamp(1_289_422_114_123_456),
            initiator: "i".into(),
            owner: "o".into(),
            storage_class: None,
            checksum: Some((Algorithm::Sha256, ChecksumKind::Composite)),
        };
        let lines = vec![
            KeyOrPrefix::Prefix(Bytes::from_static(b"a/")),
            KeyOrPrefix::Key(Bytes::from_static(b"k"), (id, entry)),
        ];
        let page = (ListingPage { lines, next: Some(Bytes::from_static(b"k")) }, Some(id));
        let id = id.text();
        let expected = format!(
            "<Bucket>b</Bucket><KeyMarker>j</KeyMarker><UploadIdMarker>{id}</UploadIdMarker>\
                <NextKeyMarker>k</NextKeyMarker>\
             <NextUploadIdMarker>{id}</NextUploadIdMarker><Prefix/><Delimiter>/</Delimiter><MaxUploads>2</MaxUploads>\
             <IsTruncated>true</IsTruncated><Upload><Key>k</Key><UploadId>{id}</UploadId>\
             <Initiator><ID>i</ID><DisplayName>tea</DisplayName></Initiator><Owner><ID>o</ID>\
             <DisplayName>milk</DisplayName></Owner>\
             <StorageClass>STANDARD</StorageClass><Initiated>2010-11-10T20:48:34.123Z</Initiated>\
             <ChecksumAlgorithm>SHA256</ChecksumAlgorithm><ChecksumType>COMPOSITE</ChecksumType></Upload>\
             <CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListMultipartUploadsResult>"
        );
        assert_eq!(
            text(&format!("uploads&delimiter=/&key-marker=j&upload-id-marker={id}==&max-uploads=2"), &page),
            expected
        );
    }

    #[test]
    fn an_upload_marker_needs_a_key_marker() {
        let decoded = |query| decode("b", &S3Query::parse(Some(query))).map(|(request, _)| request.upload);
        assert_eq!(decoded("uploads&upload-id-marker=nonsense").unwrap(), None);
        let error = decoded("uploads&key-marker=k&upload-id-marker=nonsense").unwrap_err();
        assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", "upload-id-marker"));
        assert_eq!(decoded("uploads&max-uploads=-1").unwrap_err().extras[0].1, "max-uploads");
    }

    proptest! {
        #[test]
        fn any_query_is_decoded_or_refused(query: String) {
            let query = format!("key-marker=k&upload-id-marker={query}&max-uploads={query}");
            let _ = decode("b", &S3Query::parse(Some(&query)));
        }
    }
}
