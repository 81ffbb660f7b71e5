//! Buckets: create, head, delete, location.

use bytes::Bytes;
use hyper::header::{HeaderName, LOCATION};
use hyper::{HeaderMap, StatusCode};
use larder_rows::limits::BUCKET_TAGS_MAX;
use larder_s3::buckets::NewBucket;
use larder_s3_rules::tags::{self, TagError};
use larder_s3_rules::{Tag, Versioning};

use super::{grants, object_metadata, ownership, tagging, upload_body};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

const ARN: HeaderName = HeaderName::from_static("x-amz-bucket-arn");
const LOCK_ENABLED: &str = "x-amz-bucket-object-lock-enabled";
const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
/// The region that location documents omit.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) async fn create(call: &S3Call) -> Result<S3Response, S3Error> {
    let ownership = ownership::from_headers(&call.headers)?;
    let has_lock = wants_lock(&call.headers)?;
    let acl = grants::acl_from_headers(&call.headers)?;
    let CreateDocument { location, tags } = read_create(&upload_body::document(call).await?)?;
    let new = NewBucket { acl, location, ownership, tags, has_lock };
    call.objects.buckets.create_with(&call.caller, &call.bucket, new).await?;
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, LOCATION, format!("/{}", call.bucket));
    response::set(&mut response, ARN, format!("arn:aws:s3:::{}", call.bucket));
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

/// Whether the bucket is to have object lock.
///
/// # Errors
/// `InvalidArgument` for a value that is neither `true` nor `false`.
fn wants_lock(headers: &HeaderMap) -> Result<bool, S3Error> {
    match headers.get(LOCK_ENABLED).map(|value| value.to_str().unwrap_or_default().trim()) {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
        Some(value) => Err(S3Error::argument(LOCK_ENABLED, value, "The value must be true or false.")),
    }
}

/// The document of CreateBucket.
#[derive(Debug, Default, PartialEq, Eq)]
struct CreateDocument {
    /// The requested region. Any name is accepted: there is one region, and the bucket remembers the client's name for it.
    location: Option<String>,
    /// The tags of the bucket.
    tags: Vec<Tag>,
}

fn read_create(document: &[u8]) -> Result<CreateDocument, S3Error> {
    let mut read = CreateDocument::default();
    if document.iter().all(u8::is_ascii_whitespace) {
        return Ok(read);
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
                read.location = Some(region.trim().to_owned()).filter(|region| !region.is_empty());
            }
            "Tags" => read.tags = tagging::set(&mut xml, BUCKET_TAGS_MAX)?,
            // `Bucket` and `Location` configure kinds of buckets that are not offered.
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    tags::validate(&read.tags, BUCKET_TAGS_MAX).map_err(|error| new_tag_error(&error))?;
    Ok(read)
}

/// The error for invalid tags of a new bucket.
fn new_tag_error(error: &TagError) -> S3Error {
    match error {
        TagError::SystemKey(_) => S3Error::new(
            Code::InvalidTag,
            "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system tags. Remove \"aws:\" \
             from your tag keys and try again.",
        ),
        other => object_metadata::tag_error(other),
    }
}

pub(super) async fn versioning(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(response::document(write(bucket.versioning)))
}

pub(super) async fn put_versioning(call: &S3Call) -> Result<S3Response, S3Error> {
    let VersioningDocument { versioning, exception } = read_versioning(&upload_body::document(call).await?)?;
    if let Some(name) = exception {
        return Err(S3Error::element_not_offered(&name));
    }
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

/// The configuration of a bucket's versions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VersioningDocument {
    /// The state of all keys.
    pub(super) versioning: Versioning,
    /// An element that takes keys out of it, such as MinIO's `ExcludedPrefixes`.
    pub(super) exception: Option<String>,
}

pub(super) fn read_versioning(document: &[u8]) -> Result<VersioningDocument, S3Error> {
    let mut xml = XmlReader::open(document, "VersioningConfiguration")?;
    let (mut versioning, mut exception) = (None, None);
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
            // MinIO's.
            "ExcludeFolders" if xml.text()?.trim() == "false" => {}
            "ExcludeFolders" => exception = Some(name.to_owned()),
            _ => exception = Some(xml.set_aside()?),
        }
    }
    xml.expect_end()?;
    let versioning = versioning.ok_or(Code::IllegalVersioningConfigurationException)?;
    Ok(VersioningDocument { versioning, exception })
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
            read_create(document.as_bytes()).map(|read| read.location).map_err(|error| error.code.name())
        };
        for region in ["EU", "eu-west-1", "my_dc", "us-east-1"] {
            assert_eq!(of(region), Ok(Some(region.to_owned())), "{region}");
        }
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("a b"), Err("InvalidLocationConstraint"));
        assert_eq!(of(&"x".repeat(65)), Err("InvalidLocationConstraint"));
        assert_eq!(of("<A/>"), Err("MalformedXML"));
        for empty in [
            &b" \n"[..],
            b"<CreateBucketConfiguration/>",
            b"<CreateBucketConfiguration><Tags/></CreateBucketConfiguration>",
        ] {
            assert_eq!(read_create(empty).unwrap(), CreateDocument::default());
        }
        assert!(read_create(b"x").is_err());
    }

    #[test]
    fn tags_of_a_new_bucket_are_read_or_refused() {
        let of = |inner: &str| {
            let document = format!("<CreateBucketConfiguration><Tags>{inner}</Tags></CreateBucketConfiguration>");
            read_create(document.as_bytes()).map(|read| read.tags).map_err(|error| error.code.name())
        };
        let tag = |key: &str, value: &str| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
        let many = |count: u32| (0..count).map(|at| tag(&at.to_string(), "")).collect::<String>();
        assert_eq!(of(&tag("a", "b")), Ok(vec![Tag { key: "a".into(), value: "b".into() }]));
        assert_eq!(of(&many(50)).map(|tags| tags.len()), Ok(50));
        for (inner, code) in [
            (many(51), "BadRequest"),
            ("<Tag><Key>a</Key></Tag>".into(), "MalformedXML"),
            ("<Tag><Value>a</Value></Tag>".into(), "MalformedXML"),
            (tag("a!", "b"), "InvalidTag"),
            (tag("a", "b,c"), "InvalidTag"),
            (tag("aws:a", "b"), "InvalidTag"),
            (tag("a", "b").repeat(2), "InvalidTag"),
        ] {
            assert_eq!(of(&inner), Err(code), "{inner}");
        }
    }

    #[test]
    fn the_default_region_is_omitted() {
        let text = |region| String::from_utf8(location_document(region).to_vec()).unwrap();
        assert!(text("us-east-1").ends_with("03-01/\"></LocationConstraint>"));
        assert!(text("eu").ends_with("03-01/\">eu</LocationConstraint>"));
    }

    #[test]
    fn a_bucket_has_object_lock_if_its_creator_says_so() {
        let of =
            |value: &str| wants_lock(&HeaderMap::from_iter([(LOCK_ENABLED.parse().unwrap(), value.parse().unwrap())]));
        assert!(of("true").unwrap() && of("True").unwrap() && !of("False").unwrap());
        assert!(!wants_lock(&HeaderMap::new()).unwrap());
        for bad in ["", "1", "enabled"] {
            assert_eq!(of(bad).unwrap_err().code.name(), "InvalidArgument", "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read_create(&bytes);
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
            assert_eq!(read_versioning(&write(versioning)).unwrap().versioning, versioning);
        }
        let of = |inner: &str| {
            read_versioning(format!("<VersioningConfiguration>{inner}</VersioningConfiguration>").as_bytes())
        };
        for (inner, exception) in [
            ("<MfaDelete>Disabled</MfaDelete>", None),
            ("<ExcludeFolders>false</ExcludeFolders>", None),
            ("<ExcludeFolders>true</ExcludeFolders>", Some("ExcludeFolders")),
            ("<ExcludedPrefixes><Prefix>tmp/</Prefix></ExcludedPrefixes>", Some("ExcludedPrefixes")),
        ] {
            let exception = exception.map(str::to_owned);
            let read = VersioningDocument { versioning: Versioning::Enabled, exception };
            assert_eq!(of(&format!("<Status>Enabled</Status>{inner}")).unwrap(), read, "{inner}");
        }
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
            let _ = read_versioning(&bytes);
        }
    }
}
