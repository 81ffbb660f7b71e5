//! `PUT /key?partNumber=N&uploadId=U`: stores a part of an upload.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName};
use larder_s3::parts::{PartAddress, StoredPart};
use larder_s3_rules::{Etag, dates};

use super::copy_object::{SOURCE_VERSION, source};
use super::copy_source::{COPY_SOURCE_RANGE, part_window};
use super::get_object::part_number;
use super::{encryption, listing_document, lock_headers, object_headers, object_metadata, upload_body};
use crate::call::{EXPECTED_SOURCE_OWNER, S3Call};
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    object_metadata::check_supported(&call.headers)?;
    lock_headers::check_no_lock(&call.headers)?;
    let at = address(call).await?;
    let (body, failure) = upload_body::bytes(call)?;
    let stored =
        call.objects.uploads.put_part(&call.caller, &at, body).await.map_err(|error| failure.error_for(error))?;
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, ETAG, object_headers::quoted(Etag::from_md5(stored.part.md5)));
    encryption::write_headers(&mut response, stored.encryption, &call.headers);
    if let Some(checksum) = stored.checksum {
        response::set(&mut response, HeaderName::from_static(checksum.algorithm.header()), checksum.text());
    }
    Ok(response)
}

/// Decodes the address of a part. A missing bucket is reported before an invalid part number.
///
/// # Errors
/// `NoSuchBucket`, `InvalidArgument`.
pub(super) async fn address(call: &S3Call) -> Result<PartAddress, S3Error> {
    call.objects.buckets.find(&call.bucket).await?;
    Ok(PartAddress {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        upload: call.query.get("uploadId").unwrap_or_default().to_owned(),
        number: part_number(call.query.get("partNumber").unwrap_or_default())?,
        encryption: encryption::named(call)?,
    })
}

pub(super) async fn copy(call: &S3Call) -> Result<S3Response, S3Error> {
    object_metadata::check_supported(&call.headers)?;
    lock_headers::check_no_lock(&call.headers)?;
    let at = address(call).await?;
    let window = part_window(listing_document::header(&call.headers, COPY_SOURCE_RANGE))?;
    let mut source = source(&call.headers, window)?;
    source.customer_key = encryption::source_key(call)?;
    call.check_expected_owner(EXPECTED_SOURCE_OWNER, &source.bucket).await?;
    let (stored, source_version) = call.objects.copy_part(&call.caller, &source, &at).await?;
    let mut response = response::document(copied_document(&stored));
    encryption::write_headers(&mut response, stored.encryption, &call.headers);
    if let Some(version) = source_version {
        response::set(&mut response, SOURCE_VERSION, version);
    }
    Ok(response)
}

fn copied_document(StoredPart { part, checksum, .. }: &StoredPart) -> Bytes {
    let mut xml = XmlWriter::new("CopyPartResult");
    xml.text("LastModified", dates::iso(part.modified)).text("ETag", object_headers::quoted(Etag::from_md5(part.md5)));
    if let Some(checksum) = checksum {
        xml.text(checksum.algorithm.element(), checksum.text());
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3_rules::{Algorithm, Checksum, Part};

    use super::*;

    #[test]
    fn the_result_document() {
        let digest = Bytes::from_static(&[0; 4]);
        let (md5, modified, checksum) = ([0x55; 16], 1_289_422_114_123_456, Some(digest.clone()));
        let part = Part { number: 1, md5, length: 1, blob: None, modified: Timestamp(modified), checksum };
        let checksum = Some(Checksum::full(Algorithm::Crc32c, digest));
        let text =
            String::from_utf8(copied_document(&StoredPart { part, checksum, encryption: None }).to_vec()).unwrap();
        let expected = "<CopyPartResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;55555555555555555555555555555555&quot;</ETag>\
            <ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></CopyPartResult>";
        assert!(text.ends_with(expected), "{text}");
    }
}
