//! An S3 bucket with all of its configuration: one row of the catalogue.

use std::net::Ipv4Addr;
use std::sync::Arc;

use larder_rows::ids::BucketId;
use larder_rows::{ActorId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::acl::Acl;
use super::cors::Cors;
use super::encryption::BucketEncryption;
use super::lifecycle::Lifecycle;
use super::notification::NotificationConfig;
use super::object_lock::BucketLock;
use super::ownership::ObjectOwnership;
use super::policy::BucketPolicy;
use super::public_access::PublicAccessBlock;
use super::quota::StorageQuota;
use super::tags::Tag;
use super::version::Version;
use super::website::Website;

/// Version of the stored form.
const FORMAT: u64 = 1;
/// The version of a bucket with object lock: a program that does not know locks would drop them, and refuses it.
const LOCKED_FORMAT: u64 = 2;

/// Names of the admin interface in the place of a bucket's name.
pub const RESERVED_NAMES: &[&str] = &["riak-cs", "usage"];

/// Prefixes and suffixes that AWS reserves: a bucket with such a name could never move there.
const FOREIGN_PREFIXES: &[&str] = &["xn--", "sthree-", "amzn-s3-demo-"];
const FOREIGN_SUFFIXES: &[&str] = &["-s3alias"];

/// An S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: BucketId,
    /// Canonical id of its owner.
    pub owner: String,
    /// The time of its creation.
    pub created: Timestamp,
    /// Whether it takes requests.
    pub state: BucketState,
    /// Whether it keeps versions.
    pub versioning: Versioning,
    /// The grants beside the owner's.
    pub acl: Acl,
    /// Its policy.
    pub policy: Option<Arc<BucketPolicy>>,
    /// Its CORS rules.
    pub cors: Option<Cors>,
    /// Its lifecycle rules.
    pub lifecycle: Option<Lifecycle>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Its limits on public grants and policies.
    pub public_access: Option<PublicAccessBlock>,
    /// Its default encryption.
    pub encryption: Option<BucketEncryption>,
    /// Its ownership controls.
    pub ownership: Option<ObjectOwnership>,
    /// Its website.
    pub website: Option<Website>,
    /// The receivers of its events; `None`: there are none.
    pub notification: Option<Arc<NotificationConfig>>,
    /// The region that its creator asked for, when it is not the server's own.
    pub location: Option<String>,
    /// Most that it may hold.
    pub quota: StorageQuota,
    /// Its object lock, if its versions can have locks. Such a bucket keeps versions.
    pub object_lock: Option<BucketLock>,
    /// The actor of the move that brings its keys: those that are not here are asked of the source, and each deletion leaves a
    /// delete marker.
    pub moving: Option<ActorId>,
}

/// Whether a bucket takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum BucketState {
    /// The bucket takes requests.
    #[default]
    Active,
    /// A delete of the bucket is under way. It ends in `Active` again when the bucket is not empty.
    Closing,
}

/// Whether a bucket keeps versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Versioning {
    /// Versioning was never enabled.
    #[default]
    Off,
    /// Every put adds a version.
    Enabled,
    /// Puts replace the version `null`.
    Suspended,
}

impl Bucket {
    /// A new bucket: private, without versioning or any other configuration.
    #[must_use]
    pub fn new(name: &str, id: BucketId, owner: &str, created: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            id,
            owner: owner.to_owned(),
            created,
            state: BucketState::Active,
            versioning: Versioning::Off,
            acl: Acl::default(),
            policy: None,
            cors: None,
            lifecycle: None,
            tags: Vec::new(),
            public_access: None,
            encryption: None,
            ownership: None,
            website: None,
            notification: None,
            location: None,
            quota: StorageQuota::default(),
            object_lock: None,
            moving: None,
        }
    }

    /// The stored form. The name is not in it, as the row's key has it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let row = StoredBucket {
            v: if self.object_lock.is_some() { LOCKED_FORMAT } else { FORMAT },
            id: hex::encode(self.id.0),
            owner: self.owner.clone(),
            created: self.created,
            state: self.state,
            versioning: self.versioning,
            acl: self.acl.clone(),
            policy: self.policy.as_ref().map(|policy| policy.text.clone()),
            cors: self.cors.clone(),
            lifecycle: self.lifecycle.clone(),
            tags: self.tags.clone(),
            public_access: self.public_access,
            encryption: self.encryption,
            ownership: self.ownership,
            website: self.website.clone(),
            notification: self.notification.as_deref().cloned(),
            location: self.location.clone(),
            quota: Some(self.quota).filter(|quota| *quota != StorageQuota::default()),
            object_lock: self.object_lock,
            moving: self.moving.map(|actor| actor.0),
        };
        // This cannot fail: there are only strings, numbers and lists, and no map with keys of another type.
        serde_json::to_value(row).unwrap_or_default()
    }

    /// Reads [`Self::to_json`] back. Optional fields may be absent: earlier builds did not write them.
    ///
    /// # Errors
    /// [`StoredBucketError`] for another format version, missing fields, or values that no build writes.
    pub fn from_json(name: &str, json: &Json) -> Result<Self, StoredBucketError> {
        let bad = |reason: String| StoredBucketError { bucket: name.to_owned(), reason };
        match json.get("v").and_then(Json::as_u64) {
            Some(FORMAT | LOCKED_FORMAT) => {}
            Some(other) => return Err(bad(format!("unknown format version {other}"))),
            None => return Err(bad("no format version".to_owned())),
        }
        let row = StoredBucket::deserialize(json).map_err(|error| bad(error.to_string()))?;
        let id = bucket_id(&row.id).ok_or_else(|| bad("its id is not 32 hexadecimal digits".to_owned()))?;
        let policy = row.policy.map(|text| BucketPolicy::parse(name, &text).map(Arc::new));
        let policy = policy.transpose().map_err(|error| bad(format!("its policy: {error}")))?;
        Ok(Self {
            state: row.state,
            versioning: row.versioning,
            acl: row.acl,
            policy,
            cors: row.cors,
            lifecycle: row.lifecycle,
            tags: row.tags,
            public_access: row.public_access,
            encryption: row.encryption,
            ownership: row.ownership,
            website: row.website,
            notification: row.notification.map(Arc::new),
            location: row.location,
            quota: row.quota.unwrap_or_default(),
            object_lock: row.object_lock,
            moving: row.moving.map(ActorId),
            ..Self::new(name, id, &row.owner, row.created)
        })
    }

    /// Refuses a change that takes away the object lock, or the versions that it stands on.
    ///
    /// # Errors
    /// The reason, for the client.
    pub fn check_lock_kept(&self, next: &Self) -> Result<(), &'static str> {
        match (self.object_lock, next.object_lock) {
            (Some(_), None) => Err("The object lock of a bucket cannot be taken away."),
            (Some(_), Some(_)) if next.versioning != Versioning::Enabled => Err(
                "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
            ),
            (None, Some(_)) if next.versioning != Versioning::Enabled => {
                Err("Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration")
            }
            _ => Ok(()),
        }
    }

    /// Whether a deletion leaves a delete marker.
    #[must_use]
    pub fn marks_deletions(&self) -> bool {
        // Race: an import would bring a key back whose deletion left nothing [invariant 201].
        self.versioning != Versioning::Off || self.moving.is_some()
    }

    /// Whether a version may not be the newest one of its key, since a move copies the older ones first.
    #[must_use]
    pub fn may_be_partial(&self, current: &Version) -> bool {
        self.versioning != Versioning::Off && self.moving == Some(current.id.actor())
    }

    /// Whether clients do not see its delete markers: only the move needs them.
    #[must_use]
    pub fn hides_markers(&self) -> bool {
        self.versioning == Versioning::Off && self.moving.is_some()
    }

    /// Whether public grants in the ACLs of the bucket and its objects count.
    #[must_use]
    pub fn honours_public_acls(&self) -> bool {
        !self.public_access.is_some_and(|access| access.ignore_acls)
    }
}

/// Whether a bucket of this name can be created: 3 to 63 characters in labels between dots, each of lower-case letters,
/// digits and inner hyphens; no IPv4 address, and no name reserved here or at AWS.
#[must_use]
pub fn is_valid_bucket_name(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name.split('.').all(is_label)
        && name.parse::<Ipv4Addr>().is_err()
        && !looks_like_ipv4(name)
        && !RESERVED_NAMES.contains(&name)
        && !FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !FOREIGN_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

fn is_label(label: &str) -> bool {
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().is_some_and(inside)
        && bytes.last().is_some_and(inside)
        && bytes.iter().all(|byte| inside(byte) || *byte == b'-')
}

/// Whether the name has the form of an IPv4 address: `999.1.1.1` is none, and AWS refuses it as well.
fn looks_like_ipv4(name: &str) -> bool {
    name.split('.').count() == 4 && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn bucket_id(text: &str) -> Option<BucketId> {
    let mut id = [0; 16];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(BucketId(id))
}

/// Why a stored bucket cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bucket {bucket}: {reason}")]
pub struct StoredBucketError {
    /// The name of the bucket.
    pub bucket: String,
    /// The reason.
    pub reason: String,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct StoredBucket {
    v: u64,
    id: String,
    owner: String,
    created: Timestamp,
    #[serde(default)]
    state: BucketState,
    #[serde(default)]
    versioning: Versioning,
    #[serde(default)]
    acl: Acl,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cors: Option<Cors>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lifecycle: Option<Lifecycle>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Tag>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_access: Option<PublicAccessBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encryption: Option<BucketEncryption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ownership: Option<ObjectOwnership>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    website: Option<Website>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notification: Option<NotificationConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<StorageQuota>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object_lock: Option<BucketLock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moving: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::acl::{Grant, Grantee, Permission};
    use super::super::cors::CorsRule;
    use super::super::lifecycle::{Expiration, LifecycleRule};
    use super::super::notification::{EventGroup, EventPattern, NotificationRule};
    use super::super::object_lock::{DefaultRetention, RetentionMode, RetentionPeriod};
    use super::super::website::{KeyReplacement, RoutingRule, WebProtocol, WebsitePages};
    use super::*;

    fn full() -> Bucket {
        let text = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::tea/*"}}"#;
        let grant = Grant { grantee: Grantee::User("ab".into()), permission: Permission::ReadAcp };
        let rule = LifecycleRule {
            id: "r".into(),
            expiration: Some(Expiration::Date(Timestamp(7))),
            ..LifecycleRule::default()
        };
        Bucket {
            state: BucketState::Closing,
            versioning: Versioning::Suspended,
            acl: Acl { grants: vec![grant] },
            policy: Some(Arc::new(BucketPolicy::parse("tea", text).unwrap())),
            cors: Some(Cors { rules: vec![CorsRule { max_age: Some(5), ..CorsRule::default() }] }),
            lifecycle: Some(Lifecycle { rules: vec![rule] }),
            tags: vec![Tag { key: "k".into(), value: "v".into() }],
            public_access: Some(PublicAccessBlock { ignore_acls: true, ..PublicAccessBlock::default() }),
            encryption: Some(BucketEncryption { encrypts: true, bucket_key: false, blocks_customer_keys: Some(true) }),
            ownership: Some(ObjectOwnership::BucketOwnerPreferred),
            website: Some(website()),
            notification: Some(Arc::new(notification())),
            quota: StorageQuota { objects: Some(5), bytes: None },
            ..Bucket::new("tea", BucketId([9; 16]), "owner", Timestamp(1_700_000_000_000_001))
        }
    }

    fn notification() -> NotificationConfig {
        let rule = NotificationRule {
            id: "n".into(),
            target: "arn:minio:sqs::T:webhook".into(),
            events: vec![EventPattern::Every(EventGroup::Created)],
            prefix: None,
            suffix: Some(".jpg".into()),
        };
        NotificationConfig { rules: vec![rule] }
    }

    fn website() -> Website {
        let rule = RoutingRule {
            prefix: Some("a/".into()),
            error: Some(404),
            protocol: Some(WebProtocol::Https),
            replace: Some(KeyReplacement::Prefix("b/".into())),
            ..RoutingRule::default()
        };
        Website::Pages(WebsitePages { index: "i.html".into(), error: None, rules: vec![rule] })
    }

    #[test]
    fn buckets_decode_from_json_and_from_its_text() {
        for bucket in [Bucket::new("milk", BucketId([0; 16]), "o", Timestamp(1)), full()] {
            let json = bucket.to_json();
            assert_eq!(Bucket::from_json(&bucket.name, &json).as_ref(), Ok(&bucket));
            let text: Json = serde_json::from_str(&json.to_string()).unwrap();
            assert_eq!(Bucket::from_json(&bucket.name, &text), Ok(bucket));
        }
    }

    #[test]
    fn the_golden_bucket_still_decodes() {
        let golden = json!({
            "v": 1,
            "id": "09090909090909090909090909090909",
            "owner": "owner",
            "created": 1_700_000_000_000_001_u64,
            "state": "Closing",
            "versioning": "Suspended",
            "acl": {"grants": [{"grantee": {"User": "ab"}, "permission": "ReadAcp"}]},
            "policy": full().policy.unwrap().text.clone(),
            "cors": {"rules": [{"id": null, "origins": [], "methods": [], "headers": [], "expose": [], "max_age": 5}]},
            "lifecycle": {"rules": [{
                "id": "r", "enabled": false,
                "filter": {"prefix": null, "tags": [], "larger_than": null, "smaller_than": null},
                "legacy_prefix": false, "expiration": {"Date": 7}, "noncurrent": null, "abort_uploads_days": null,
            }]},
            "tags": [{"key": "k", "value": "v"}],
            "public_access": {
                "block_acls": false, "ignore_acls": true, "block_policy": false, "restrict_buckets": false,
            },
            "encryption": {"encrypts": true, "bucket_key": false, "blocks_customer_keys": true},
            "ownership": "BucketOwnerPreferred",
            "website": {"Pages": {"index": "i.html", "error": null, "rules": [{
                "prefix": "a/", "error": 404, "protocol": "Https", "host": null, "replace": {"Prefix": "b/"}, "status": null,
            }]}},
            "notification": {"rules": [{
                "id": "n", "target": "arn:minio:sqs::T:webhook", "events": ["s3:ObjectCreated:*"], "suffix": ".jpg",
            }]},
            "quota": {"objects": 5},
        });
        assert_eq!(full().to_json(), golden);
        assert_eq!(Bucket::from_json("tea", &golden), Ok(full()));
    }

    #[test]
    fn a_bucket_with_a_lock_has_a_format_of_its_own() {
        let plain = Bucket { versioning: Versioning::Enabled, ..full() };
        for (default_retention, json) in [
            (None, json!({})),
            (
                Some(DefaultRetention { mode: RetentionMode::Governance, period: RetentionPeriod::Years(2) }),
                json!({"default_retention": {"mode": "GOVERNANCE", "period": {"Years": 2}}}),
            ),
        ] {
            let locked = Bucket { object_lock: Some(BucketLock { default_retention }), ..plain.clone() };
            let mut golden = plain.to_json();
            golden["v"] = json!(2);
            golden["object_lock"] = json;
            assert_eq!(locked.to_json(), golden, "a program that knows no locks would drop it");
            assert_eq!(Bucket::from_json("tea", &golden), Ok(locked));
        }
    }

    #[test]
    fn absent_options_get_their_defaults() {
        let least = json!({"v": 1, "id": "00000000000000000000000000000007", "owner": "o", "created": 3});
        let bucket = Bucket::from_json("tea", &least).unwrap();
        assert_eq!(bucket, Bucket::new("tea", BucketId(7_u128.to_be_bytes()), "o", Timestamp(3)));
        let mut later = full().to_json();
        later["cors"] = json!({"rules": [{"origins": ["*"]}]});
        let rule = CorsRule { origins: vec!["*".into()], ..CorsRule::default() };
        assert_eq!(Bucket::from_json("tea", &later).unwrap().cors, Some(Cors { rules: vec![rule] }));
    }

    #[test]
    fn rows_of_no_known_build_are_refused() {
        let good = full().to_json();
        let changed = |name: &str, value: Json| {
            let mut json = good.clone();
            json[name] = value;
            Bucket::from_json("tea", &json)
        };
        assert!(changed("v", json!(1)).is_ok());
        for (name, value) in [
            ("v", json!(3)),
            ("v", json!("1")),
            ("id", json!("+0000000000000000000000000000001")),
            ("id", json!("7")),
            ("owner", json!(null)),
            ("versioning", json!("Perhaps")),
            ("ownership", json!("Perhaps")),
            ("policy", json!("{}")),
        ] {
            assert!(changed(name, value.clone()).is_err(), "{name} {value}");
        }
        assert!(Bucket::from_json("tea", &json!([])).is_err());
        assert!(Bucket::from_json("milk", &good).is_err(), "the policy is about another bucket");
    }

    #[test]
    fn bucket_names_are_valid_or_refused() {
        let long = "a".repeat(64);
        for good in ["abc", "a-b", "1.2.3", "my.bucket-7", "a.b", "a--b", "123", &long[1..], "usages"] {
            assert!(is_valid_bucket_name(good), "{good}");
        }
        for bad in [
            "",
            "ab",
            &long,
            "Abc",
            "a_b",
            "a..b",
            ".ab",
            "ab.",
            "-ab",
            "ab-",
            "a-.b",
            "a.-b",
            "1.2.3.4",
            "999.1.1.1",
            "riak-cs",
            "usage",
            "xn--abc",
            "sthree-a",
            "abc-s3alias",
            "amzn-s3-demo-a",
            "tée",
            "a/b",
            "a b",
        ] {
            assert!(!is_valid_bucket_name(bad), "{bad}");
        }
    }
}
