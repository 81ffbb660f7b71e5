//! `PUT /key?partNumber=N&uploadId=U` with `x-amz-copy-source`: a part made of bytes of an object.

use bytes::Bytes;
use larder_model::objects::{Checksum, Etag, Part};

use super::copy_object::{SOURCE_VERSION, source};
use super::copy_source::{COPY_SOURCE_RANGE, part_window};
use super::upload_part::{address, by_length};
use super::{about, describe, owner, params};
use crate::call::Call;
use crate::dates;
use crate::errors::Fault;
use crate::reply::{self, Reply};
use crate::xml::Xml;

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    about::refuse_unbuilt(&call.headers)?;
    let at = address(call).await?;
    let window = part_window(params::header(&call.headers, COPY_SOURCE_RANGE))?;
    let source = source(&call.headers, window)?;
    owner::expected(call, owner::OF_SOURCE, &source.bucket).await?;
    let (part, source_version) = call.objects.copy_part(&call.caller, &source, &at).await?;
    let mut reply = reply::document(document(&part));
    if let Some(version) = source_version {
        reply::set(&mut reply, SOURCE_VERSION, version);
    }
    Ok(reply)
}

fn document(part: &Part) -> Bytes {
    let mut xml = Xml::new("CopyPartResult");
    xml.text("LastModified", dates::iso(part.modified)).text("ETag", describe::quoted(Etag::of_md5(part.md5)));
    if let Some(digest) = &part.checksum
        && let Some(algorithm) = by_length(digest.len())
    {
        xml.text(algorithm.element(), Checksum::full(algorithm, digest.clone()).text());
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document() {
        let checksum = Some(Bytes::from_static(&[0; 8]));
        let part =
            Part { number: 1, md5: [0x55; 16], length: 1, blob: None, modified: 1_289_422_114_123_456, checksum };
        let text = String::from_utf8(document(&part).to_vec()).unwrap();
        let expected = "<CopyPartResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <LastModified>2010-11-10T20:48:34.123Z</LastModified>\
            <ETag>&quot;55555555555555555555555555555555&quot;</ETag>\
            <ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME></CopyPartResult>";
        assert!(text.ends_with(expected), "{text}");
    }
}
