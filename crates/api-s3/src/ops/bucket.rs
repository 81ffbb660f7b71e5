//! A bucket itself: made, looked for, removed, and where it is.

use bytes::Bytes;
use hyper::header::{HeaderName, LOCATION};
use hyper::{HeaderMap, StatusCode};

use super::{grants, incoming, params};
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
/// The region that documents leave out.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) async fn create(call: &Call) -> Result<Reply, Fault> {
    refuse_unbuilt(&call.headers)?;
    let acl = grants::of(&call.headers)?;
    let location = location_wanted(&incoming::document(call).await?)?;
    call.objects.create_bucket(&call.caller, &call.bucket, acl, location).await?;
    let mut reply = reply::empty(StatusCode::OK);
    reply::set(&mut reply, LOCATION, format!("/{}", call.bucket));
    Ok(reply)
}

pub(super) async fn head(call: &Call) -> Result<Reply, Fault> {
    let bucket = call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    let mut reply = reply::empty(StatusCode::OK);
    reply::set(&mut reply, REGION, call.objects.location(&bucket));
    Ok(reply)
}

pub(super) async fn delete(call: &Call) -> Result<Reply, Fault> {
    call.objects.delete_bucket(&call.caller, &call.bucket).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn location(call: &Call) -> Result<Reply, Fault> {
    let bucket = call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    Ok(reply::document(location_of(call.objects.location(&bucket))))
}

fn location_of(region: &str) -> Bytes {
    let mut xml = Xml::new("LocationConstraint");
    if region != DEFAULT_REGION {
        xml.content(region);
    }
    xml.finish()
}

/// A bucket that would not keep the promises of its headers is not made.
fn refuse_unbuilt(headers: &HeaderMap) -> Result<(), Fault> {
    let refuse = |name: &str, is_kept: fn(&str) -> bool| match params::header(headers, name) {
        Some(value) if !is_kept(value) => Err(Fault::header_not_offered(name)),
        _ => Ok(()),
    };
    refuse("x-amz-bucket-object-lock-enabled", |value| value.eq_ignore_ascii_case("false"))?;
    refuse("x-amz-object-ownership", |value| value == "ObjectWriter")
}

/// The region that a bucket is wanted in. Any does: there is one, and the bucket remembers what its client calls it.
fn location_wanted(document: &[u8]) -> Result<Option<String>, Fault> {
    let mut wanted = None;
    if document.iter().all(u8::is_ascii_whitespace) {
        return Ok(wanted);
    }
    let mut xml = Reader::open(document, "CreateBucketConfiguration")?;
    while let Some(name) = xml.child()? {
        match name {
            "LocationConstraint" => {
                let region = xml.text()?;
                let plain = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
                if region.len() > 64 || !region.trim().chars().all(plain) {
                    return Err(Fault::from(Code::InvalidLocationConstraint).with("LocationConstraint", region));
                }
                wanted = Some(region.trim().to_owned()).filter(|region| !region.is_empty());
            }
            // Tags of the new bucket would be lost, other things are about kinds of buckets there are none of here.
            "Tags" | "Bucket" | "Location" => return Err(Code::NotImplemented.into()),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn any_region_does() {
        let of = |region: &str| {
            let document = format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint>\
                    </CreateBucketConfiguration>"
            );
            location_wanted(document.as_bytes()).map_err(|fault| fault.code.name())
        };
        for region in ["EU", "eu-west-1", "my_dc", "us-east-1"] {
            assert_eq!(of(region), Ok(Some(region.to_owned())), "{region}");
        }
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("a b"), Err("InvalidLocationConstraint"));
        assert_eq!(of(&"x".repeat(65)), Err("InvalidLocationConstraint"));
        assert_eq!(of("<A/>"), Err("MalformedXML"));
        assert!(location_wanted(b" \n").is_ok());
        assert!(location_wanted(b"<CreateBucketConfiguration/>").is_ok());
        assert!(location_wanted(b"x").is_err());
    }

    #[test]
    fn the_default_region_is_left_out() {
        let text = |region| String::from_utf8(location_of(region).to_vec()).unwrap();
        assert!(text("us-east-1").ends_with("03-01/\"></LocationConstraint>"));
        assert!(text("eu").ends_with("03-01/\">eu</LocationConstraint>"));
    }

    #[test]
    fn promises_that_would_not_be_kept() {
        let refused = |name: &'static str, value: &str| {
            refuse_unbuilt(&[(HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect()).is_err()
        };
        assert!(refused("x-amz-bucket-object-lock-enabled", "true"));
        assert!(!refused("x-amz-bucket-object-lock-enabled", "False"));
        assert!(refused("x-amz-object-ownership", "BucketOwnerEnforced"));
        assert!(!refused("x-amz-object-ownership", "ObjectWriter"));
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = location_wanted(&bytes);
        }
    }
}
