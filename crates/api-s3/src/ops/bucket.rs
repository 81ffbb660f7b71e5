//! Buckets: create, head, delete, location.

use bytes::Bytes;
use hyper::header::{HeaderName, LOCATION};
use hyper::{HeaderMap, StatusCode};
use larder_s3::rules::Versioning;

use super::{grants, listing_document, upload_body};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
/// The region that location documents omit.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) async fn create(call: &S3Call) -> Result<S3Response, S3Error> {
    check_supported(&call.headers)?;
    let acl = grants::acl_from_headers(&call.headers)?;
    let location = location_wanted(&upload_body::document(call).await?)?;
    call.objects.buckets.create(&call.caller, &call.bucket, acl, location).await?;
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, LOCATION, format!("/{}", call.bucket));
    Ok(response)
}

pub(super) async fn head(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, REGION, call.objects.buckets.location(&bucket));
    Ok(response)
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.objects.buckets.delete(&call.caller, &call.bucket).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn location(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(response::document(location_document(call.objects.buckets.location(&bucket))))
}

fn location_document(region: &str) -> Bytes {
    let mut xml = XmlWriter::new("LocationConstraint");
    if region != DEFAULT_REGION {
        xml.root_text(region);
    }
    xml.finish()
}

/// Refuses headers that ask for unsupported bucket features.
fn check_supported(headers: &HeaderMap) -> Result<(), S3Error> {
    let refuse = |name: &str, is_kept: fn(&str) -> bool| match listing_document::header(headers, name) {
        Some(value) if !is_kept(value) => Err(S3Error::header_not_offered(name)),
        _ => Ok(()),
    };
    refuse("x-amz-bucket-object-lock-enabled", |value| value.eq_ignore_ascii_case("false"))?;
    refuse("x-amz-object-ownership", |value| value == "ObjectWriter")
}

/// The requested region. Any name is accepted: there is one region, and the bucket remembers the client's name for it.
fn location_wanted(document: &[u8]) -> Result<Option<String>, S3Error> {
    let mut location = None;
    if document.iter().all(u8::is_ascii_whitespace) {
        return Ok(location);
    }
    let mut xml = XmlReader::open(document, "CreateBucketConfiguration")?;
    while let Some(name) = xml.next_child()? {
        match name {
            "LocationConstraint" => {
                let region = xml.text()?;
                let plain = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
                if region.len() > 64 || !region.trim().chars().all(plain) {
                    return Err(S3Error::from(Code::InvalidLocationConstraint).with("LocationConstraint", region));
                }
                location = Some(region.trim().to_owned()).filter(|region| !region.is_empty());
            }
            // Ignoring tags would lose them; the other elements configure unsupported kinds of buckets.
            "Tags" | "Bucket" | "Location" => return Err(S3Error::element_not_offered(name)),
            _ => xml.skip()?,
        }
    }
    xml.expect_end()?;
    Ok(location)
}

pub(super) async fn versioning(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(response::document(write(bucket.versioning)))
}

pub(super) async fn put_versioning(call: &S3Call) -> Result<S3Response, S3Error> {
    let versioning = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.versioning = versioning).await
}

fn write(versioning: Versioning) -> Bytes {
    let mut xml = XmlWriter::new("VersioningConfiguration");
    match versioning {
        Versioning::Off => {}
        Versioning::Enabled => drop(xml.text("Status", "Enabled")),
        Versioning::Suspended => drop(xml.text("Status", "Suspended")),
    }
    xml.finish()
}

fn read(document: &[u8]) -> Result<Versioning, S3Error> {
    let mut xml = XmlReader::open(document, "VersioningConfiguration")?;
    let mut versioning = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Status" => {
                versioning = Some(match xml.text()?.trim() {
                    "Enabled" => Versioning::Enabled,
                    "Suspended" => Versioning::Suspended,
                    "" => return Err(Code::IllegalVersioningConfigurationException.into()),
                    _ => return Err(Code::MalformedXML.into()),
                });
            }
            "MfaDelete" | "MFADelete" if xml.text()?.trim() == "Disabled" => {}
            "MfaDelete" | "MFADelete" => return Err(S3Error::element_not_offered("MfaDelete")),
            _ => xml.skip()?,
        }
    }
    xml.expect_end()?;
    versioning.ok_or_else(|| Code::IllegalVersioningConfigurationException.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn any_region_is_accepted() {
        let of = |region: &str| {
            let document = format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint>\
                    </CreateBucketConfiguration>"
            );
            location_wanted(document.as_bytes()).map_err(|error| error.code.name())
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
    fn the_default_region_is_omitted() {
        let text = |region| String::from_utf8(location_document(region).to_vec()).unwrap();
        assert!(text("us-east-1").ends_with("03-01/\"></LocationConstraint>"));
        assert!(text("eu").ends_with("03-01/\">eu</LocationConstraint>"));
    }

    #[test]
    fn unsupported_bucket_features_are_refused() {
        let refused = |name: &'static str, value: &str| {
            check_supported(&[(HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect()).is_err()
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

#[cfg(test)]
mod versioning_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versioning_documents_are_read_and_written() {
        let text = |versioning| String::from_utf8(write(versioning).to_vec()).unwrap();
        assert!(text(Versioning::Off).ends_with("03-01/\"></VersioningConfiguration>"));
        for versioning in [Versioning::Enabled, Versioning::Suspended] {
            assert_eq!(read(&write(versioning)).unwrap(), versioning);
        }
        let of = |inner: &str| read(format!("<VersioningConfiguration>{inner}</VersioningConfiguration>").as_bytes());
        assert_eq!(of("<Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>").unwrap(), Versioning::Enabled);
        for (inner, code) in [
            ("", "IllegalVersioningConfigurationException"),
            ("<Status/>", "IllegalVersioningConfigurationException"),
            ("<Status>enabled</Status>", "MalformedXML"),
            ("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>", "NotImplemented"),
            ("<Status>Enabled", "MalformedXML"),
        ] {
            assert_eq!(of(inner).unwrap_err().code.name(), code, "{inner}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
