//! `GET /bucket?versions`: lists versions and delete markers, newest first for each key.

use bytes::Bytes;
use larder_s3::list::{KeyOrPrefix, ListVersions, ListedVersion, VersionsPage};
use larder_s3_rules::dates;
use larder_s3_rules::entry::ListedObject;

use super::list_objects::{list_request, write_delimiter, write_object, write_prefixes};
use super::listing_document::{DisplayNames, EncodingType};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let (request, encoding) = decode(&call.bucket, &call.query)?;
    let page = call.objects.list_versions(&call.caller, &request).await?;
    let names = DisplayNames::load(&call.objects, owners(&page).collect()).await;
    Ok(response::document(document(&request, encoding, &page, &names)))
}

fn decode(bucket: &str, query: &S3Query) -> Result<(ListVersions, EncodingType), S3Error> {
    let (mut objects, encoding) = list_request(bucket, query, "max-keys")?;
    objects.after = Bytes::copy_from_slice(query.get("key-marker").unwrap_or_default().as_bytes());
    let version = query.non_empty("version-id-marker");
    if let (Some(version), true) = (version, objects.after.is_empty()) {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(S3Error::argument("version-id-marker", version, message));
    }
    Ok((ListVersions { objects, version: version.map(str::to_owned) }, encoding))
}

fn owners(page: &VersionsPage) -> impl Iterator<Item = &str> {
    page.lines.iter().filter_map(|line| match line {
        KeyOrPrefix::Key(_, listed) => Some(listed.version.owner.as_str()),
        KeyOrPrefix::Prefix(_) => None,
    })
}

fn document(request: &ListVersions, encoding: EncodingType, page: &VersionsPage, names: &DisplayNames) -> Bytes {
    let list = &request.objects;
    let mut xml = XmlWriter::new("ListVersionsResult");
    xml.text("Name", &list.bucket).text("Prefix", encoding.encode_key(&list.prefix));
    xml.text("KeyMarker", encoding.encode_key(&list.after));
    xml.text("VersionIdMarker", request.version.as_deref().unwrap_or_default());
    if let Some((key, version)) = &page.next {
        xml.text("NextKeyMarker", encoding.encode_key(key)).optional_text("NextVersionIdMarker", version.as_ref());
    }
    xml.value("MaxKeys", list.max);
    write_delimiter(&mut xml, list, encoding);
    encoding.write(&mut xml);
    xml.value("IsTruncated", page.next.is_some());
    for line in &page.lines {
        if let KeyOrPrefix::Key(key, listed) = line {
            write_version(&mut xml, &encoding.encode_key(key), listed, names);
        }
    }
    write_prefixes(&mut xml, &page.lines, encoding);
    xml.finish()
}

fn write_version(xml: &mut XmlWriter, key: &str, listed: &ListedVersion, names: &DisplayNames) {
    let object = listed.version.object.as_ref().map(ListedObject::from_object);
    xml.element(if object.is_some() { "Version" } else { "DeleteMarker" }, |xml| {
        xml.text("Key", key).text("VersionId", &listed.version_id).value("IsLatest", listed.latest);
        xml.text("LastModified", dates::iso(listed.version.modified));
        if let Some(object) = &object {
            write_object(xml, object);
        }
        names.write(xml, "Owner", &listed.version.owner);
        if let Some(object) = &object {
            xml.text("StorageClass", object.storage_class.as_deref().unwrap_or("STANDARD"));
        }
    });
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3_rules::{Etag, Object, ObjectBody, ObjectLock, Version, VersionId};
    use proptest::prelude::*;

    use super::*;

    fn listed(object: bool, latest: bool, version_id: &str) -> ListedVersion {
        let object = object.then(|| Object {
            body: ObjectBody::Inline(Bytes::from_static(b"1234567")),
            etag: Etag::from_md5([0x33; 16]),
            headers: vec![],
            meta: vec![],
            tags: vec![],
            acl: None,
            checksum: None,
            upload: None,
            encryption: None,
            lock: ObjectLock::default(),
        });
        let version = Version {
            id: VersionId([0; 16]),
            null: false,
            modified: Timestamp(1_289_422_114_123_456),
            owner: "o".into(),
            object,
        };
        ListedVersion { version, version_id: version_id.into(), latest }
    }

    fn text(query: &str, page: &VersionsPage) -> String {
        let (request, encoding) = decode("b", &S3Query::parse(Some(query))).unwrap();
        let document = document(&request, encoding, page, &DisplayNames::fixed(&[("o", "tea")]));
        String::from_utf8(document.to_vec()).unwrap().split_once("03-01/\">").unwrap().1.to_owned()
    }

    #[test]
    fn versions_and_markers_are_interleaved() {
        let key = Bytes::from_static(b"k");
        let page = VersionsPage {
            lines: vec![
                KeyOrPrefix::Prefix(Bytes::from_static(b"a/")),
                KeyOrPrefix::Key(key.clone(), listed(false, true, "v2")),
                KeyOrPrefix::Key(key.clone(), listed(true, false, "null")),
            ],
            next: Some((key, Some("null".into()))),
        };
        let owner = "<Owner><ID>o</ID><DisplayName>tea</DisplayName></Owner>";
        let expected = format!(
            "<Name>b</Name><Prefix/><KeyMarker>j</KeyMarker><VersionIdMarker>v9</VersionIdMarker>\
                <NextKeyMarker>k</NextKeyMarker>\
             <NextVersionIdMarker>null</NextVersionIdMarker><MaxKeys>2</MaxKeys><Delimiter>/</Delimiter>\
             <IsTruncated>true</IsTruncated><DeleteMarker><Key>k</Key><VersionId>v2</VersionId>\
             <IsLatest>true</IsLatest>\
             <LastModified>2010-11-10T20:48:34.123Z</LastModified>{owner}</DeleteMarker><Version><Key>k</Key>\
             <VersionId>null</VersionId><IsLatest>false</IsLatest><LastModified>2010-11-10T20:48:34.123Z</LastModified>\
             <ETag>&quot;33333333333333333333333333333333&quot;</ETag>\
             <Size>7</Size>{owner}<StorageClass>STANDARD</StorageClass>\
             </Version><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListVersionsResult>"
        );
        assert_eq!(text("versions&delimiter=/&max-keys=2&key-marker=j&version-id-marker=v9", &page), expected);
    }

    #[test]
    fn an_empty_page_has_empty_markers() {
        let expected = "<Name>b</Name><Prefix/><KeyMarker/><VersionIdMarker/><MaxKeys>1000</MaxKeys>\
            <IsTruncated>false</IsTruncated></ListVersionsResult>";
        assert_eq!(text("versions", &VersionsPage { lines: vec![], next: None }), expected);
    }

    #[test]
    fn a_version_marker_needs_a_key_marker() {
        let error = decode("b", &S3Query::parse(Some("versions&version-id-marker=v"))).unwrap_err();
        assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", "version-id-marker"));
        assert!(decode("b", &S3Query::parse(Some("versions&version-id-marker="))).is_ok());
    }

    proptest! {
        #[test]
        fn any_query_is_decoded_or_refused(query: String) {
            let query = format!("key-marker={query}&version-id-marker={query}&max-keys={query}");
            let _ = decode("b", &S3Query::parse(Some(&query)));
        }
    }
}
