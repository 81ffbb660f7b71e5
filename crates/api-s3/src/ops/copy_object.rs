//! `PUT /key` with `x-amz-copy-source`: a copy of an object.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use larder_gateway::objects::copy::{Copied, CopyObject};
use larder_gateway::objects::get::{GetObject, Window};

use super::copy_source::{COPY_SOURCE, CopySource};
use super::{about, checksums, conditions, describe, grants, owner, params};
use crate::call::Call;
use crate::dates;
use crate::errors::Fault;
use crate::reply::{self, Reply};
use crate::xml::Xml;

/// The version that was copied.
pub(super) const SOURCE_VERSION: HeaderName = HeaderName::from_static("x-amz-copy-source-version-id");

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let request = decode(&call.bucket, &call.key, &call.headers)?;
    owner::expected(call, owner::OF_SOURCE, &request.source.bucket).await?;
    let copied = call.objects.copy(&call.caller, request).await?;
    let mut reply = reply::document(document(&copied));
    describe::version(&mut reply, copied.stored.version_id.as_deref());
    if let Some(version) = &copied.source_version {
        reply::set(&mut reply, SOURCE_VERSION, version.as_str());
    }
    Ok(reply)
}

/// The source that the headers name, with its conditions.
///
/// # Errors
/// 400 `InvalidArgument`.
pub(super) fn source(headers: &HeaderMap, window: Window) -> Result<GetObject, Fault> {
    let CopySource { bucket, key, version } =
        CopySource::parse(params::header(headers, COPY_SOURCE).unwrap_or_default())?;
    Ok(GetObject { bucket, key, version, window, conditions: conditions::of_source(headers) })
}

fn decode(bucket: &str, key: &Bytes, headers: &HeaderMap) -> Result<CopyObject, Fault> {
    about::refuse_unbuilt(headers)?;
    let replace = about::replaces(headers, "x-amz-metadata-directive")?.then(|| about::of(headers)).transpose()?;
    let tags = if about::replaces(headers, "x-amz-tagging-directive")? {
        Some(about::tags(headers)?.unwrap_or_default())
    } else {
        None
    };
    Ok(CopyObject {
        source: source(headers, Window::Whole)?,
        bucket: bucket.to_owned(),
        key: key.clone(),
        replace,
        tags,
        acl: grants::of(headers)?,
        own: about::of_copy(headers)?,
        changes_more: about::changes_more(headers),
        checksum: checksums::algorithm(headers)?,
        conditions: conditions::of_write(headers),
    })
}

fn document(copied: &Copied) -> Bytes {
    let mut xml = Xml::new("CopyObjectResult");
    let version = &copied.stored.version;
    xml.text("LastModified", dates::iso(version.modified));
    if let Some(object) = &version.object {
        xml.text("ETag", describe::quoted(object.etag));
        checksums::write(&mut xml, object.checksum.as_ref());
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use larder_gateway::objects::acl::AclChoice;
    use larder_gateway::objects::get::VersionSpec;
    use larder_gateway::objects::put::Stored;
    use larder_model::objects::SystemHeader;
    use proptest::prelude::*;

    use super::*;

    fn decoded(pairs: &[(&'static str, &str)]) -> Result<CopyObject, Fault> {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        decode("b", &Bytes::from_static(b"k"), &headers)
    }

    #[test]
    fn what_is_taken_over_and_what_is_not() {
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
    fn what_is_refused() {
        for (pairs, code) in [
            (vec![], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-metadata-directive", "MOVE")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-tagging-directive", "x")], "InvalidArgument"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-checksum-algorithm", "x")], "InvalidRequest"),
            (vec![("x-amz-copy-source", "s/k"), ("x-amz-server-side-encryption", "AES256")], "NotImplemented"),
        ] {
            assert_eq!(decoded(&pairs).map(|_| ()).unwrap_err().code.name(), code, "{pairs:?}");
        }
    }

    #[test]
    fn the_document() {
        let version = super::describe::tests::found_object(0..100, false).version;
        let stored = Stored { version, version_id: None };
        let text = String::from_utf8(document(&Copied { stored, source_version: None }).to_vec()).unwrap();
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
            let _ = decode("b", &Bytes::new(), &headers);
        }
    }
}
