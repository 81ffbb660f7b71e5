//! The configurations of a bucket and the headers of an object of another store, read as the requests that would make them here.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderName;
use larder_rows::Timestamp;
use larder_s3::put::{ChecksumWanted, ObjectMetadata};
use larder_s3_rules::{Bucket, S3Action};

use super::bucket::VersioningDocument;
use super::{
    bucket, bucket_encryption, checksums, cors, lifecycle, object_lock, object_metadata, ownership, policy,
    public_access, tagging, website,
};
use crate::errors::{Code, S3Error};

/// Headers of an answer that are metadata of its object, beside the prefixes.
const METADATA: &[&str] = &[
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-amz-website-redirect-location",
];
/// The beginnings of headers that are metadata of an object.
const METADATA_PREFIXES: &[&str] = &[object_metadata::META, "x-amz-object-lock-"];

/// A change of a bucket's configuration.
pub type BucketChange = Box<dyn Fn(&mut Bucket) + Send + Sync>;

/// A configuration of a bucket that has a document, in the order in which they are made: the policy comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketDocument {
    /// Versioning.
    Versioning,
    /// Object lock, with the default retention.
    ObjectLock,
    /// Ownership controls.
    Ownership,
    /// The public access block.
    PublicAccess,
    /// The default encryption.
    Encryption,
    /// Tags.
    Tagging,
    /// CORS rules.
    Cors,
    /// The website.
    Website,
    /// Lifecycle rules.
    Lifecycle,
    /// The policy.
    Policy,
}

impl BucketDocument {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Versioning,
        Self::ObjectLock,
        Self::Ownership,
        Self::PublicAccess,
        Self::Encryption,
        Self::Tagging,
        Self::Cors,
        Self::Website,
        Self::Lifecycle,
        Self::Policy,
    ];

    /// The parameter of its requests.
    #[must_use]
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Versioning => "versioning",
            Self::ObjectLock => "object-lock",
            Self::Ownership => "ownershipControls",
            Self::PublicAccess => "publicAccessBlock",
            Self::Encryption => "encryption",
            Self::Tagging => "tagging",
            Self::Cors => "cors",
            Self::Website => "website",
            Self::Lifecycle => "lifecycle",
            Self::Policy => "policy",
        }
    }

    /// The action of the request that puts it.
    #[must_use]
    pub fn action(self) -> S3Action {
        match self {
            Self::Versioning => S3Action::PutBucketVersioning,
            Self::ObjectLock => S3Action::PutBucketObjectLockConfiguration,
            Self::Ownership => S3Action::PutBucketOwnershipControls,
            Self::PublicAccess => S3Action::PutBucketPublicAccessBlock,
            Self::Encryption => S3Action::PutEncryptionConfiguration,
            Self::Tagging => S3Action::PutBucketTagging,
            Self::Cors => S3Action::PutBucketCORS,
            Self::Website => S3Action::PutBucketWebsite,
            Self::Lifecycle => S3Action::PutLifecycleConfiguration,
            Self::Policy => S3Action::PutBucketPolicy,
        }
    }

    /// Reads the document of a bucket of this name.
    ///
    /// # Errors
    /// As the request that puts it.
    pub fn read(self, name: &str, document: &[u8]) -> Result<BucketChange, S3Error> {
        Ok(match self {
            Self::Versioning => match bucket::read_versioning(document) {
                // Here the keys that it takes out have versions, too: nothing is lost.
                Ok(VersioningDocument { versioning, .. }) => Box::new(move |bucket| bucket.versioning = versioning),
                // That of a bucket that never had versioning.
                Err(error) if error.code == Code::IllegalVersioningConfigurationException => Box::new(|_| {}),
                Err(error) => return Err(error),
            },
            Self::ObjectLock => {
                let lock = object_lock::read_bucket(document)?;
                Box::new(move |bucket| bucket.object_lock = Some(lock))
            }
            Self::Ownership => {
                let ownership = ownership::read(document)?;
                Box::new(move |bucket| bucket.ownership = Some(ownership))
            }
            Self::PublicAccess => {
                let access = public_access::read(document)?;
                Box::new(move |bucket| bucket.public_access = Some(access))
            }
            Self::Encryption => {
                let encryption = bucket_encryption::read(document)?;
                Box::new(move |bucket| bucket.encryption = Some(encryption))
            }
            Self::Tagging => {
                let tags = tagging::read_bucket(document)?;
                Box::new(move |bucket| bucket.tags.clone_from(&tags))
            }
            Self::Cors => {
                let cors = cors::read(document)?;
                Box::new(move |bucket| bucket.cors = Some(cors.clone()))
            }
            Self::Website => {
                let website = website::read(document)?;
                Box::new(move |bucket| bucket.website = Some(website.clone()))
            }
            Self::Lifecycle => {
                let rules = lifecycle::decode(document)?;
                Box::new(move |bucket| bucket.lifecycle = Some(rules.clone()))
            }
            Self::Policy => {
                let policy = policy::read(name, document)?;
                Box::new(move |bucket| bucket.policy = Some(Arc::clone(&policy)))
            }
        })
    }
}

/// The metadata of an object in the headers of an answer. Its tags are in a document of their own.
///
/// # Errors
/// 400 for metadata above the limit, and for a lock that is none.
pub fn source_metadata(headers: &HeaderMap) -> Result<ObjectMetadata, S3Error> {
    let is_metadata = |name: &HeaderName| {
        METADATA.contains(&name.as_str()) || METADATA_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    let own = headers.iter().filter(|(name, _)| is_metadata(name));
    let own: HeaderMap = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    // Of the beginning of time: a retention that has ended is one, too.
    object_metadata::metadata_from_headers(&own, Timestamp::ZERO)
}

/// The checksum that the bytes of an object must have, in the headers of an answer. One of the parts of an upload says nothing of
/// the bytes as a whole.
#[must_use]
pub fn source_checksum(headers: &HeaderMap) -> ChecksumWanted {
    let is_composite =
        headers.get(checksums::TYPE).is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(b"COMPOSITE"));
    let given = checksums::given(headers).ok().flatten();
    match given.filter(|checksum| !is_composite && checksum.parts.is_none()) {
        Some(checksum) => ChecksumWanted::Given(checksum),
        None => ChecksumWanted::Default,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use larder_s3_rules::{RetentionMode, SystemHeader, Versioning};

    use super::*;

    fn bucket() -> Bucket {
        let id = larder_s3_rules::BucketId([1; 16]);
        Bucket::new("teas", id, "owner", Timestamp::ZERO)
    }

    #[test]
    fn documents_of_another_store_change_a_bucket() {
        let documents = [
            (BucketDocument::Versioning, "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
            (BucketDocument::Versioning, "<VersioningConfiguration/>"),
            (BucketDocument::Tagging, "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"),
            (
                BucketDocument::Policy,
                r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},
                    "Action":["s3:GetObject"],"Resource":["arn:aws:s3:::teas/*"]}]}"#,
            ),
        ];
        let mut bucket = bucket();
        for (document, text) in documents {
            document.read("teas", text.as_bytes()).unwrap()(&mut bucket);
        }
        assert_eq!((bucket.versioning, bucket.tags.len()), (Versioning::Enabled, 1));
        assert!(bucket.policy.is_some());
        assert!(BucketDocument::Policy.read("cups", br#"{"Statement":1}"#).is_err());
        for document in BucketDocument::ALL {
            assert!(document.read("teas", b"<A").is_err(), "{document:?}");
        }
    }

    #[test]
    fn what_aws_and_minio_answer_is_taken_whole() {
        use BucketDocument::{Cors, Encryption, Lifecycle, ObjectLock, Ownership, PublicAccess, Tagging, Versioning};
        for (document, inner) in [
            (Versioning, "<Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>"),
            (
                Versioning,
                "<Status>Enabled</Status><ExcludedPrefixes><Prefix>tmp/</Prefix></ExcludedPrefixes>\
                 <ExcludeFolders>true</ExcludeFolders>",
            ),
            (ObjectLock, "<ObjectLockEnabled>Enabled</ObjectLockEnabled>"),
            (
                ObjectLock,
                "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode>\
                 <Years>1</Years></DefaultRetention></Rule>",
            ),
            (Ownership, "<Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>"),
            (
                PublicAccess,
                "<BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>\
                 <BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets>",
            ),
            (
                Encryption,
                "<Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>\
                 </ApplyServerSideEncryptionByDefault><BucketKeyEnabled>false</BucketKeyEnabled>\
                 <BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes></Rule>",
            ),
            (
                Cors,
                "<CORSRule><ID>a</ID><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin>\
                 <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>3</MaxAgeSeconds></CORSRule>",
            ),
            (Tagging, "<TagSet><Tag><Key>a</Key><Value/></Tag></TagSet>"),
            (
                Lifecycle,
                "<Rule><ID>a</ID><Filter><Prefix>p</Prefix></Filter><Status>Enabled</Status>\
                 <Expiration><Days>1</Days><ExpiredObjectAllVersions>false</ExpiredObjectAllVersions></Expiration>\
                 </Rule>",
            ),
        ] {
            let root = match document {
                Versioning => "VersioningConfiguration",
                ObjectLock => "ObjectLockConfiguration",
                Ownership => "OwnershipControls",
                PublicAccess => "PublicAccessBlockConfiguration",
                Encryption => "ServerSideEncryptionConfiguration",
                Cors => "CORSConfiguration",
                Tagging => "Tagging",
                _ => "LifecycleConfiguration",
            };
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} \
                 xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}</{root}>"
            );
            assert!(document.read("teas", text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_headers_of_an_answer_are_metadata_and_an_ended_retention_stays() {
        let headers = [
            ("content-type", "text/x"),
            ("content-length", "3"),
            ("x-amz-meta-farm", "uji"),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-object-lock-retain-until-date", "2001-01-01T00:00:00Z"),
            ("x-amz-server-side-encryption", "aws:kms"),
        ];
        let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let metadata = source_metadata(&headers.into_iter().collect()).unwrap();
        assert_eq!(metadata.headers, [(SystemHeader::ContentType, "text/x".into())]);
        assert_eq!(metadata.meta, [("farm".to_owned(), "uji".into())]);
        assert_eq!(metadata.lock.retention.unwrap().mode, RetentionMode::Compliance);
    }

    #[test]
    fn a_checksum_of_parts_is_not_that_of_the_bytes() {
        let of = |kind: &'static str, value: &'static str| {
            let headers = [("x-amz-checksum-type", kind), ("x-amz-checksum-crc32", value)];
            source_checksum(
                &headers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
            )
        };
        assert!(matches!(of("FULL_OBJECT", "AAAAAA=="), ChecksumWanted::Given(_)));
        assert_eq!(of("COMPOSITE", "AAAAAA=="), ChecksumWanted::Default);
        assert_eq!(of("", "AAAAAA==-2"), ChecksumWanted::Default);
        assert_eq!(of("", "no checksum"), ChecksumWanted::Default);
    }
}
