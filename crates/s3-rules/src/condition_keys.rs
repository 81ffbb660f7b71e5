//! The condition keys of requests: the one table of their names and of the actions whose requests can have them.

use super::action::S3Action;

/// The actions whose requests can have a condition key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCarriers {
    /// All.
    All,
    /// These.
    Only(&'static [S3Action]),
}

impl KeyCarriers {
    /// Whether a request for this action can have the key.
    pub(super) fn include(self, action: S3Action) -> bool {
        match self {
            Self::All => true,
            Self::Only(actions) => actions.contains(&action),
        }
    }
}

const LISTINGS: KeyCarriers =
    KeyCarriers::Only(&[S3Action::ListBucket, S3Action::ListBucketVersions, S3Action::ListBucketMultipartUploads]);
const KEY_LISTINGS: KeyCarriers = KeyCarriers::Only(&[S3Action::ListBucket, S3Action::ListBucketVersions]);
const PUTS: KeyCarriers = KeyCarriers::Only(&[S3Action::PutObject]);
const PUTS_AND_GETS: KeyCarriers =
    KeyCarriers::Only(&[S3Action::PutObject, S3Action::GetObject, S3Action::GetObjectVersion]);
const GRANTS: KeyCarriers = KeyCarriers::Only(&[
    S3Action::PutObject,
    S3Action::PutBucketAcl,
    S3Action::NewObjectAcl,
    S3Action::PutObjectAcl,
    S3Action::PutObjectVersionAcl,
]);
const VERSIONS: KeyCarriers = KeyCarriers::Only(&[
    S3Action::GetObjectVersion,
    S3Action::GetObjectVersionAttributes,
    S3Action::DeleteObjectVersion,
    S3Action::GetObjectVersionAcl,
    S3Action::PutObjectVersionAcl,
    S3Action::GetObjectVersionTagging,
    S3Action::PutObjectVersionTagging,
    S3Action::DeleteObjectVersionTagging,
]);
/// Actions that look at the object before they are allowed.
const TAGGED_OBJECTS: KeyCarriers = KeyCarriers::Only(&[
    S3Action::GetObject,
    S3Action::GetObjectVersion,
    S3Action::GetObjectAttributes,
    S3Action::GetObjectVersionAttributes,
    S3Action::GetObjectAcl,
    S3Action::GetObjectVersionAcl,
    S3Action::PutObjectAcl,
    S3Action::PutObjectVersionAcl,
    S3Action::GetObjectTagging,
    S3Action::GetObjectVersionTagging,
    S3Action::PutObjectTagging,
    S3Action::PutObjectVersionTagging,
    S3Action::DeleteObjectTagging,
    S3Action::DeleteObjectVersionTagging,
]);
const TAGGING: KeyCarriers = KeyCarriers::Only(&[
    S3Action::PutObject,
    S3Action::NewObjectTags,
    S3Action::PutObjectTagging,
    S3Action::PutObjectVersionTagging,
]);

const RETENTIONS: KeyCarriers = KeyCarriers::Only(&[S3Action::PutObject, S3Action::PutObjectRetention]);
const HOLDS: KeyCarriers = KeyCarriers::Only(&[S3Action::PutObject, S3Action::PutObjectLegalHold]);

/// Prefixes of condition keys that end in the key of a tag.
pub(super) const EXISTING_TAG: &str = "s3:ExistingObjectTag/";
pub(super) const REQUEST_TAG: &str = "s3:RequestObjectTag/";

/// The condition keys, but those of tags.
const CONDITION_KEYS: &[(&str, KeyCarriers)] = &[
    // Of headers and parameters of a request, and of its signature: the edge hands over their values.
    ("aws:Referer", KeyCarriers::All),
    ("aws:UserAgent", KeyCarriers::All),
    ("s3:prefix", LISTINGS),
    ("s3:delimiter", LISTINGS),
    ("s3:max-keys", KEY_LISTINGS),
    ("s3:VersionId", VERSIONS),
    ("s3:x-amz-acl", GRANTS),
    ("s3:x-amz-grant-read", GRANTS),
    ("s3:x-amz-grant-write", GRANTS),
    ("s3:x-amz-grant-read-acp", GRANTS),
    ("s3:x-amz-grant-write-acp", GRANTS),
    ("s3:x-amz-grant-full-control", GRANTS),
    ("s3:x-amz-copy-source", PUTS),
    ("s3:x-amz-metadata-directive", PUTS),
    ("s3:x-amz-storage-class", PUTS),
    ("s3:x-amz-content-sha256", KeyCarriers::All),
    ("s3:x-amz-server-side-encryption", PUTS),
    ("s3:x-amz-server-side-encryption-aws-kms-key-id", PUTS),
    ("s3:x-amz-server-side-encryption-customer-algorithm", PUTS_AND_GETS),
    ("s3:object-lock-mode", RETENTIONS),
    ("s3:object-lock-retain-until-date", RETENTIONS),
    ("s3:object-lock-remaining-retention-days", RETENTIONS),
    ("s3:object-lock-legal-hold", HOLDS),
    ("s3:authType", KeyCarriers::All),
    ("s3:signatureversion", KeyCarriers::All),
    // Of the connection, the caller and the tags of a request.
    ("aws:SourceIp", KeyCarriers::All),
    ("aws:SecureTransport", KeyCarriers::All),
    ("aws:CurrentTime", KeyCarriers::All),
    ("aws:EpochTime", KeyCarriers::All),
    ("aws:username", KeyCarriers::All),
    ("aws:userid", KeyCarriers::All),
    ("aws:PrincipalType", KeyCarriers::All),
    ("s3:RequestObjectTagKeys", TAGGING),
];

/// The actions whose requests can have this condition key, in any case; `None` for a key that no request has.
pub(super) fn key_carriers(key: &str) -> Option<KeyCarriers> {
    let begins = |prefix: &str| key.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
    if begins(EXISTING_TAG) {
        return Some(TAGGED_OBJECTS);
    }
    if begins(REQUEST_TAG) {
        return Some(TAGGING);
    }
    CONDITION_KEYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, carriers)| *carriers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case_and_have_their_carriers() {
        assert_eq!(key_carriers("AWS:sourceip"), Some(KeyCarriers::All));
        assert_eq!(key_carriers("s3:existingobjecttag/é"), Some(TAGGED_OBJECTS));
        assert_eq!(key_carriers("aws:PrincipalArn"), None);
        assert_eq!(key_carriers("s3:ExistingObjectTa\u{e9}"), None);
        assert!(key_carriers("s3:prefix").unwrap().include(S3Action::ListBucket));
        assert!(!key_carriers("s3:prefix").unwrap().include(S3Action::GetObject));
    }
}
