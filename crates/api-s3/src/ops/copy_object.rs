//! `PUT /key` with `x-amz-copy-source`: copies an object.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use larder_rows::Timestamp;
use larder_s3::copy::{CopiedObject, CopyObject};
use larder_s3::encryption::EncryptionChoice;
use larder_s3::get::{GetObject, ReadWindow};
use larder_s3_rules::dates;

use super::copy_source::{COPY_SOURCE, CopySource};
use super::{
    checksums, conditions, encryption, grants, listing_document, lock_headers, object_headers, object_metadata,
};
use crate::call::{EXPECTED_SOURCE_OWNER, S3Call};
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

/// The version of the source.
pub(super) const SOURCE_VERSION: HeaderName = HeaderName::from_static("x-amz-copy-source-version-id");

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let mut request = decode(&call.bucket, &call.key, &call.headers, call.now)?;
    request.encryption = encryption::choice(call).await?;
    request.source.customer_key = encryption::source_key(call)?;
    call.check_expected_owner(EXPECTED_SOURCE_OWNER, &request.source.bucket).await?;
    let copied = call.objects.copy(&call.caller, request).await?;
    let mut response = response::document(document(&copied));
    object_headers::write_version(&mut response, copied.stored.version_id.as_deref());
    object_headers::write_expiry(&mut response, copied.stored.expires.as_ref());
    let kind = copied.stored.version.object.as_ref().and_then(|object| object.encryption_kind());
    encryption::write_headers(&mut response, kind, &call.headers);
    if let Some(version) = &copied.source_version {
        response::set(&mut response, SOURCE_VERSION, version.as_str());
    }
    Ok(response)
}

/// Decodes the source and its conditions, but its key.
///
/// # Errors
/// 400 `InvalidArgument`.
pub(super) fn source(headers: &HeaderMap, window: ReadWindow) -> Result<GetObject, S3Error> {
    let CopySource { bucket, key, version } =
        CopySource::parse(listing_document::header(headers, COPY_SOURCE).unwrap_or_default())?;
    let conditions = conditions::source_conditions(headers);
    Ok(GetObject { bucket, key, version, window, conditions, customer_key: None })
}

/// Decodes a copy at `now`, but its encryption and that of its source.
fn decode(bucket: &str, key: &Bytes, headers: &HeaderMap, now: Timestamp) -> Result<CopyObject, S3Error> {
    object_metadata::check_supported(headers)?;
    let replace = object_metadata::is_replace(headers, "x-amz-metadata-directive")?
        .then(|| object_metadata::metadata_from_headers(headers, now))
        .transpose()?;
    let tags = if object_metadata::is_replace(headers, "x-amz-tagging-directive")? {
        Some(object_metadata::tags(headers)?.unwrap_or_default())
    } else {
        None
    };
    Ok(CopyObject {
        source: source(headers, ReadWindow::Whole)?,
        bucket: bucket.to_owned(),
        key: key.clone(),
        replace,
        tags,
        acl: grants::acl_from_headers(headers)?,
        keeps_acl: false,
        own: object_metadata::copied_headers(headers)?,
        changes_more: object_metadata::changes_more(headers) || encryption::is_named(headers),
        encryption: EncryptionChoice::BucketDefault,
        checksum: checksums::algorithm(headers)?,
        lock: lock_headers::lock_from_headers(headers, now)?,
        conditions: conditions::write_conditions(headers),
    })
}

fn document(copied: &CopiedObject) -> Bytes {
    let mut xml = XmlWriter::new("CopyObjectResult");
    let version = &copied.stored.version;
    xml.text("LastModified", dates::iso(version.modified));
    if let Some(object) = &version.object {
        xml.text("ETag", object_headers::quoted(object.etag));
        checksums::write(&mut xml, object.checksum.as_ref());
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use larder_s3::acl::AclChoice;
    use larder_s3::get::VersionSpec;
    use larder_s3::put::StoredVersion;
    use larder_s3_rules::SystemHeader;
    use proptest::prelude::*;

    use super::*;

    fn decoded(pairs: &[(&'static str, &str)]) -> Result<CopyObject, S3Error> {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        decode("b", &Bytes::from_static(b"k"), &headers, Timestamp::ZERO)
    }

    #[test]
    fn directives_decide_what_a_copy_takes_over() {
        let source = ("x-amz-copy-source", "/s/a%20b?versionId=v");
        let plain =
            decoded(&[source, ("x-amz-meta-a", "1"), ("x-amz-tagging", "k=v"), ("x-amz-acl", "public-read")]).unwrap();
        assert_eq!((plain.source.bucket.as_str(), &plain.source.key[..]), ("s", &b"a b"[..]));
        assert_eq!(plain.source.version, VersionSpec::Id("v".into()));
        assert!(plain.source.conditions.always_precondition);
        assert!(plain.replace.is_none() && plain.tags.is_none() && !plain.changes_more);
        assert!(matches!(plain.acl, AclChoice::Canned(_)));
        let cold = decoded(&[source, ("x-amz-storage-class", "GLACIER"), ("content-type", "text/css")]).unwrap();
        assert_eq!(cold.own, [(SystemHeader::StorageClass, Bytes::from_static(b"GLACIER"))]);
        let replaced = decoded(&[
            source,
            ("x-amz-metadata-directive", "REPLACE"),
            ("x-amz-tagging-directive", "REPLACE"),
            ("x-amz-meta-a", "1"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-checksum-algorithm", "SHA256"),
        ])
        .unwrap();
        assert_eq!(replaced.replace.unwrap().meta.len(), 1);
        assert_eq!((replaced.tags, replaced.changes_more), (Some(vec![]), true));
        assert_eq!(replaced.checksum.unwrap().name(), "SHA256");
    }

    #[test]
    fn invalid_copy_headers_are_refused() {
        for (pairs, code) in [
            (vec![], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-metadata-directive", "MOVE")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-tagging-directive", "x")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-checksum-algorithm", "x")], "InvalidRequest"),
        ] {
            assert_eq!(decoded(&pairs).map(|_| ()).unwrap_err().code.name(), code, "{pairs:?}");
        }
    }

    #[test]
    fn the_result_document() {
        let version = super::object_headers::tests::found_object(0..100, false).version;
        let stored = StoredVersion { version, version_id: None, expires: None };
        let text = String::from_utf8(document(&CopiedObject { stored, source_version: None }).to_vec()).unwrap();
        let expected = "03-01/\"><LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;44444444444444444444444444444444&quot;</ETag><ChecksumCRC32>AAAAAQ==</ChecksumCRC32>\
            <ChecksumType>FULL_OBJECT</ChecksumType></CopyObjectResult>";
        assert!(text.ends_with(expected), "{text}");
    }

    proptest! {
        #[test]
        fn any_headers_are_decoded_or_refused(source: String, directive: String) {
            let header = |text: &str| HeaderValue::from_str(text).ok();
            let mut headers = HeaderMap::new();
            header(&source).map(|value| headers.insert(COPY_SOURCE, value));
            header(&directive).map(|value| headers.insert("x-amz-metadata-directive", value));
            let _ = decode("b", &Bytes::new(), &headers, Timestamp::ZERO);
        }
    }
}
