//! `?publicAccessBlock`: restrictions on public grants of a bucket.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::public_access::PublicAccessBlock;

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let access = bucket.public_access.ok_or(Error::NoConfiguration(Configuration::PublicAccess))?;
    Ok(response::document(write(access)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let access = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.public_access = Some(access)).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.public_access = None).await
}

pub(super) fn read(document: &[u8]) -> Result<PublicAccessBlock, S3Error> {
    let mut xml = XmlReader::open(document, "PublicAccessBlockConfiguration")?;
    let mut access = PublicAccessBlock::default();
    while let Some(name) = xml.next_child()? {
        let switch = match name {
            "BlockPublicAcls" => &mut access.block_acls,
            "IgnorePublicAcls" => &mut access.ignore_acls,
            "BlockPublicPolicy" => &mut access.block_policy,
            "RestrictPublicBuckets" => &mut access.restrict_buckets,
            // A switch that is ignored protects nobody.
            _ => return Err(S3Error::element_not_offered(name)),
        };
        *switch = match xml.text()?.trim() {
            text if text.eq_ignore_ascii_case("true") => true,
            text if text.eq_ignore_ascii_case("false") => false,
            _ => return Err(Code::MalformedXML.into()),
        };
    }
    xml.expect_end()?;
    Ok(access)
}

fn write(access: PublicAccessBlock) -> Bytes {
    let mut xml = XmlWriter::new("PublicAccessBlockConfiguration");
    xml.value("BlockPublicAcls", access.block_acls).value("IgnorePublicAcls", access.ignore_acls);
    xml.value("BlockPublicPolicy", access.block_policy).value("RestrictPublicBuckets", access.restrict_buckets);
    xml.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn documents_come_back(block_acls: bool, ignore_acls: bool, block_policy: bool, restrict_buckets: bool) {
            let access = PublicAccessBlock { block_acls, ignore_acls, block_policy, restrict_buckets };
            prop_assert_eq!(read(&write(access)).unwrap(), access);
        }

        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn the_document_has_all_switches() {
        let text =
            String::from_utf8(write(PublicAccessBlock { block_acls: true, ..PublicAccessBlock::default() }).to_vec())
                .unwrap();
        let expected = "03-01/\"><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>false</IgnorePublicAcls>\
            <BlockPublicPolicy>false</BlockPublicPolicy><RestrictPublicBuckets>false</RestrictPublicBuckets>\
            </PublicAccessBlockConfiguration>";
        assert!(text.ends_with(expected), "{text}");
        let bad = b"<PublicAccessBlockConfiguration><BlockPublicAcls>perhaps</BlockPublicAcls>\
            </PublicAccessBlockConfiguration>";
        assert!(read(bad).is_err());
        let other = b"<PublicAccessBlockConfiguration><BlockLinks>true</BlockLinks></PublicAccessBlockConfiguration>";
        assert_eq!(read(other).unwrap_err().code, Code::NotImplemented);
        assert_eq!(read(b"<PublicAccessBlockConfiguration/>").unwrap(), PublicAccessBlock::default());
    }
}
