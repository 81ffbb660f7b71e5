//! `?publicAccessBlock`: what of a bucket's grants to the public counts.

use bytes::Bytes;
use hyper::StatusCode;
use larder_gateway::objects::{Configuration, Error};
use larder_model::objects::Bucket;
use larder_model::objects::public_access::PublicAccess;

use super::incoming;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

pub(super) async fn get(call: &Call) -> Result<Reply, Fault> {
    let bucket = call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    let access = bucket.public_access.ok_or(Error::NoConfiguration(Configuration::PublicAccess))?;
    Ok(reply::document(write(access)))
}

pub(super) async fn put(call: &Call) -> Result<Reply, Fault> {
    let access = read(&incoming::document(call).await?)?;
    store(call, Some(access)).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(super) async fn delete(call: &Call) -> Result<Reply, Fault> {
    store(call, None).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

async fn store(call: &Call, access: Option<PublicAccess>) -> Result<(), Fault> {
    let change = |bucket: &mut Bucket| {
        bucket.public_access = access;
        Ok(())
    };
    Ok(call.objects.configure(&call.caller, &call.bucket, call.operation.action, change).await?)
}

fn read(document: &[u8]) -> Result<PublicAccess, Fault> {
    let mut xml = Reader::open(document, "PublicAccessBlockConfiguration")?;
    let mut access = PublicAccess::default();
    while let Some(name) = xml.child()? {
        let switch = match name {
            "BlockPublicAcls" => &mut access.block_acls,
            "IgnorePublicAcls" => &mut access.ignore_acls,
            "BlockPublicPolicy" => &mut access.block_policy,
            "RestrictPublicBuckets" => &mut access.restrict_buckets,
            _ => {
                xml.skip()?;
                continue;
            }
        };
        *switch = match xml.text()?.trim() {
            text if text.eq_ignore_ascii_case("true") => true,
            text if text.eq_ignore_ascii_case("false") => false,
            _ => return Err(Code::MalformedXML.into()),
        };
    }
    xml.end()?;
    Ok(access)
}

fn write(access: PublicAccess) -> Bytes {
    let mut xml = Xml::new("PublicAccessBlockConfiguration");
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
            let access = PublicAccess { block_acls, ignore_acls, block_policy, restrict_buckets };
            prop_assert_eq!(read(&write(access)).unwrap(), access);
        }

        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn the_document() {
        let text =
            String::from_utf8(write(PublicAccess { block_acls: true, ..PublicAccess::default() }).to_vec()).unwrap();
        let expected = "03-01/\"><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>false</IgnorePublicAcls>\
            <BlockPublicPolicy>false</BlockPublicPolicy><RestrictPublicBuckets>false</RestrictPublicBuckets>\
            </PublicAccessBlockConfiguration>";
        assert!(text.ends_with(expected), "{text}");
        let bad = b"<PublicAccessBlockConfiguration><BlockPublicAcls>perhaps</BlockPublicAcls>\
            </PublicAccessBlockConfiguration>";
        assert!(read(bad).is_err());
        assert_eq!(read(b"<PublicAccessBlockConfiguration/>").unwrap(), PublicAccess::default());
    }
}
