//! `?ownershipControls`: who owns what others put into a bucket, and whether ACLs count there.

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use larder_s3::{Configuration, Error};
use larder_s3_rules::ownership::ObjectOwnership;

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

/// The header that sets the ownership controls of a new bucket.
const HEADER: &str = "x-amz-object-ownership";

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let ownership = bucket.ownership.ok_or(Error::NoConfiguration(Configuration::Ownership))?;
    Ok(response::document(write(ownership)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let ownership = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.ownership = Some(ownership)).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.ownership = None).await
}

/// The ownership controls that the headers of CreateBucket ask for.
///
/// # Errors
/// 400 `InvalidArgument` for a value that is none.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<ObjectOwnership>, S3Error> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let bad = || {
        let message = format!("Invalid x-amz-object-ownership header: {text}");
        S3Error::new(Code::InvalidArgument, message).with("ArgumentName", HEADER)
    };
    ObjectOwnership::named(text.trim()).map(Some).ok_or_else(bad)
}

/// Parses a document, which has one rule.
pub(super) fn read(document: &[u8]) -> Result<ObjectOwnership, S3Error> {
    let mut xml = XmlReader::open(document, "OwnershipControls")?;
    let mut single = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Rule" if single.is_none() => single = Some(rule(&mut xml)?),
            "Rule" => return Err(Code::MalformedXML.into()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    single.ok_or_else(|| Code::MalformedXML.into())
}

fn rule(xml: &mut XmlReader<'_>) -> Result<ObjectOwnership, S3Error> {
    let mut ownership = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "ObjectOwnership" => ownership = ObjectOwnership::named(xml.text()?.trim()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    ownership.ok_or_else(|| Code::MalformedXML.into())
}

fn write(ownership: ObjectOwnership) -> Bytes {
    let mut xml = XmlWriter::new("OwnershipControls");
    xml.element("Rule", |xml| {
        xml.text("ObjectOwnership", ownership.name());
    });
    xml.finish()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents_have_one_rule_with_a_known_setting() {
        for ownership in ObjectOwnership::ALL {
            assert_eq!(read(&write(ownership)).unwrap(), ownership);
        }
        let text = String::from_utf8(write(ObjectOwnership::ObjectWriter).to_vec()).unwrap();
        let expected = "03-01/\"><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>";
        assert!(text.ends_with(expected), "{text}");
        let rule = "<Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule>";
        for inner in [
            "",
            "<Rule/>",
            "<Rule><ObjectOwnership/></Rule>",
            "<Rule><ObjectOwnership>objectwriter</ObjectOwnership></Rule>",
            &rule.repeat(2),
            "<Rule><ObjectOwnership>ObjectWriter",
        ] {
            let document = format!("<OwnershipControls>{inner}</OwnershipControls>");
            assert_eq!(read(document.as_bytes()).unwrap_err().code.name(), "MalformedXML", "{inner}");
        }
        assert!(read(b"").is_err());
    }

    #[test]
    fn the_header_of_a_new_bucket_has_a_known_setting() {
        let of = |value: &str| {
            from_headers(&[(HeaderName::from_static(HEADER), value.parse().unwrap())].into_iter().collect())
        };
        assert_eq!(from_headers(&HeaderMap::new()).unwrap(), None);
        assert_eq!(of("BucketOwnerEnforced").unwrap(), Some(ObjectOwnership::BucketOwnerEnforced));
        for bad in ["", "enforced"] {
            let error = of(bad).unwrap_err();
            assert_eq!(error.code.name(), "InvalidArgument");
            assert_eq!(error.extras, [("ArgumentName", HEADER.to_owned())], "without the value");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
