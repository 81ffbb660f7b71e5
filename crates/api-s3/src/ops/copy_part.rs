//! `PUT /key?partNumber=N&uploadId=U` with `x-amz-copy-source`: makes a part from bytes of an object.

use bytes::Bytes;
use larder_s3::parts::StoredPart;
use larder_s3::rules::Etag;

use super::copy_object::{SOURCE_VERSION, source};
use super::copy_source::{COPY_SOURCE_RANGE, part_window};
use super::upload_part::address;
use super::{object_headers, object_metadata, params};
use crate::call::{EXPECTED_SOURCE_OWNER, S3Call};
use crate::dates;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    object_metadata::refuse_unsupported(&call.headers)?;
    let at = address(call).await?;
    let window = part_window(params::header(&call.headers, COPY_SOURCE_RANGE))?;
    let source = source(&call.headers, window)?;
    call.check_expected_owner(EXPECTED_SOURCE_OWNER, &source.bucket).await?;
    let (stored, source_version) = call.objects.copy_part(&call.caller, &source, &at).await?;
    let mut response = response::document(document(&stored));
    if let Some(version) = source_version {
        response::set(&mut response, SOURCE_VERSION, version);
    }
    Ok(response)
}

fn document(StoredPart { part, checksum }: &StoredPart) -> Bytes {
    let mut xml = XmlWriter::new("CopyPartResult");
    xml.text("LastModified", dates::iso(part.modified)).text("ETag", object_headers::quoted(Etag::of_md5(part.md5)));
    if let Some(checksum) = checksum {
        xml.text(checksum.algorithm.element(), checksum.text());
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3::rules::{Algorithm, Checksum, Part};

    use super::*;

    #[test]
    fn the_result_document() {
        let digest = Bytes::from_static(&[0; 4]);
        let (md5, modified, checksum) = ([0x55; 16], 1_289_422_114_123_456, Some(digest.clone()));
        let part = Part { number: 1, md5, length: 1, blob: None, modified: Timestamp(modified), checksum };
        let checksum = Some(Checksum::full(Algorithm::Crc32c, digest));
        let text = String::from_utf8(document(&StoredPart { part, checksum }).to_vec()).unwrap();
        let expected = "<CopyPartResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;55555555555555555555555555555555&quot;</ETag>\
            <ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></CopyPartResult>";
        assert!(text.ends_with(expected), "{text}");
    }
}
