//! `POST /key?uploads`: creates a multipart upload.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use larder_s3::uploads::CreateUpload;
use larder_s3_rules::{Algorithm, ChecksumKind, dates};

use super::list_parts::write_abort_date;
use super::{checksums, conditions, encryption, listing_document, object_metadata};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::errors::gateway::INITIATED;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let checksum = checksum(&call.headers)?;
    let mut metadata = object_metadata::metadata_from_headers(&call.headers, call.now)?;
    metadata.encryption = encryption::choice(call).await?;
    let (bucket, key) = (call.bucket.clone(), call.key.clone());
    let conditions = conditions::write_conditions(&call.headers);
    let request = CreateUpload { bucket, key, metadata, checksum, conditions };
    let created = call.objects.uploads.create(&call.caller, request).await?;
    let mut response = response::document(document(&call.bucket, &call.key, &created.id.text()));
    if let Some((algorithm, kind)) = checksum {
        let name = HeaderName::from_static(checksums::ALGORITHM);
        response.headers_mut().insert(name, HeaderValue::from_static(algorithm.name()));
        response.headers_mut().insert(checksums::TYPE, HeaderValue::from_static(kind.name()));
    }
    write_abort_date(&mut response, &created.abort_date);
    encryption::write_headers(&mut response, created.encryption, &call.headers);
    Ok(response)
}

/// The checksum algorithm and kind of the upload, a permitted pair.
fn checksum(headers: &HeaderMap) -> Result<Option<(Algorithm, ChecksumKind)>, S3Error> {
    match (checksums::algorithm(headers)?, checksums::kind(headers)?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(S3Error::invalid(
            "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
        )),
        (Some(algorithm), kind) => {
            let kind = kind.unwrap_or(algorithm.default_kind());
            if !algorithm.allows(kind) {
                let message = format!(
                    "The {} checksum type cannot be used with the {} checksum algorithm.",
                    kind.name(),
                    algorithm.name().to_lowercase()
                );
                return Err(S3Error::invalid(message));
            }
            Ok(Some((algorithm, kind)))
        }
    }
}

fn document(bucket: &str, key: &[u8], upload: &str) -> Bytes {
    let mut xml = XmlWriter::new("InitiateMultipartUploadResult");
    xml.text("Bucket", bucket).text_lossy("Key", key).text("UploadId", upload);
    xml.finish()
}

pub(super) async fn abort(call: &S3Call) -> Result<S3Response, S3Error> {
    let upload = call.query.get("uploadId").unwrap_or_default();
    let initiated = match listing_document::header(&call.headers, INITIATED) {
        None => None,
        Some(text) => {
            let bad = || S3Error::argument(INITIATED, text, "The date is none.");
            Some(dates::parse_http(text).or_else(|| dates::parse_document_date(text)).ok_or_else(bad)?.as_secs())
        }
    };
    call.objects.uploads.abort(&call.caller, &call.bucket, &call.key, upload, initiated).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(algorithm: Option<&'static str>, kind: Option<&'static str>) -> Result<String, String> {
        let algorithm = algorithm.map(|name| (HeaderName::from_static("x-amz-checksum-algorithm"), name));
        let kind = kind.map(|name| (checksums::TYPE, name));
        let headers = algorithm.into_iter().chain(kind);
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
        let choice = checksum(&headers).map_err(|error| error.code.name().to_owned())?;
        Ok(choice.map_or("none".into(), |(algorithm, kind)| format!("{} {}", algorithm.name(), kind.name())))
    }

    #[test]
    fn only_permitted_checksum_pairs_are_accepted() {
        let refused = Err("InvalidRequest".to_owned());
        for (algorithm, kind, expected) in [
            (None, None, Ok("none")),
            (Some("CRC32"), None, Ok("CRC32 COMPOSITE")),
            (Some("crc32c"), Some("FULL_OBJECT"), Ok("CRC32C FULL_OBJECT")),
            (Some("CRC64NVME"), None, Ok("CRC64NVME FULL_OBJECT")),
            (Some("SHA256"), Some("COMPOSITE"), Ok("SHA256 COMPOSITE")),
            (Some("SHA256"), Some("FULL_OBJECT"), refused.clone()),
            (Some("SHA1"), Some("FULL_OBJECT"), refused.clone()),
            (Some("CRC64NVME"), Some("COMPOSITE"), refused.clone()),
            (None, Some("COMPOSITE"), refused.clone()),
            (Some("MD4"), None, refused.clone()),
            (Some("CRC32"), Some("HALF"), refused),
        ] {
            assert_eq!(requested(algorithm, kind), expected.map(str::to_owned), "{algorithm:?} {kind:?}");
        }
    }

    #[test]
    fn the_result_document() {
        let text = String::from_utf8(document("b", b"a&b", "U").to_vec()).unwrap();
        assert!(text.ends_with(
            "03-01/\"><Bucket>b</Bucket><Key>a&amp;b</Key><UploadId>U</UploadId></InitiateMultipartUploadResult>"
        ));
    }
}
