//! The stored rows of security, as JSON: one for each user and group, one for `all`, one for the settings.

use larder_rows::codec::DecodeError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::permission::PermissionSet;
use super::source::AccessSource;

/// The name of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityKey {
    /// The settings.
    Settings,
    /// The grants and sources of every user.
    All,
    /// A group.
    Group(String),
    /// A user.
    User(String),
}

impl SecurityKey {
    /// The kind and the name, as they stand in the name of the row.
    #[must_use]
    pub fn parts(&self) -> (u8, &str) {
        match self {
            Self::Settings => (b's', ""),
            Self::All => (b'a', ""),
            Self::Group(name) => (b'g', name),
            Self::User(name) => (b'u', name),
        }
    }

    /// The key of these parts.
    ///
    /// # Errors
    /// [`DecodeError`] for another kind, or a name that is no text.
    pub fn of_parts(kind: &[u8], name: &[u8]) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid("security row");
        let name = String::from_utf8(name.to_vec()).map_err(|_| invalid)?;
        match kind {
            b"s" if name.is_empty() => Ok(Self::Settings),
            b"a" if name.is_empty() => Ok(Self::All),
            b"g" => Ok(Self::Group(name)),
            b"u" => Ok(Self::User(name)),
            _ => Err(invalid),
        }
    }
}

/// The settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecuritySettings {
    /// Whether requests of Riak's protocols need a user.
    pub enabled: bool,
    /// The ciphers that an operator chose, by OpenSSL's names with colons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ciphers: Option<String>,
}

/// A user, a group, or `all`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// The groups that it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The hashed password of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Options that an operator wrote; they have no effect.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// The sources of a user, or of `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<AccessSource>,
    /// Its own grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<RoleGrant>,
}

/// Permissions on a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredGrant", into = "StoredGrant")]
pub struct RoleGrant {
    /// The target.
    pub target: GrantTarget,
    /// The permissions.
    pub permissions: PermissionSet,
}

/// The target of a grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantTarget {
    /// Everything.
    Any,
    /// A bucket type with all its buckets.
    Type(String),
    /// A bucket: its type and its name.
    Bucket(String, String),
}

impl GrantTarget {
    /// Type and bucket as tables show them.
    #[must_use]
    pub fn columns(&self) -> (&str, &str) {
        match self {
            Self::Any => ("*", "*"),
            Self::Type(of_type) => (of_type, "*"),
            Self::Bucket(of_type, bucket) => (of_type, bucket),
        }
    }
}

/// The stored form of a grant.
#[derive(Serialize, Deserialize)]
struct StoredGrant {
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    bucket_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    permissions: Vec<String>,
}

impl TryFrom<StoredGrant> for RoleGrant {
    type Error = super::SecurityRefusal;

    fn try_from(stored: StoredGrant) -> Result<Self, Self::Error> {
        let permissions = PermissionSet::parse(stored.permissions.iter().map(String::as_str))?;
        let target = match (stored.bucket_type, stored.bucket) {
            (Some(of_type), Some(bucket)) => GrantTarget::Bucket(of_type, bucket),
            (Some(of_type), None) => GrantTarget::Type(of_type),
            (None, _) => GrantTarget::Any,
        };
        Ok(Self { target, permissions })
    }
}

impl From<RoleGrant> for StoredGrant {
    fn from(grant: RoleGrant) -> Self {
        let permissions = grant.permissions.iter().map(|one| one.name().to_owned()).collect();
        let (bucket_type, bucket) = match grant.target {
            GrantTarget::Any => (None, None),
            GrantTarget::Type(of_type) => (Some(of_type), None),
            GrantTarget::Bucket(of_type, bucket) => (Some(of_type), Some(bucket)),
        };
        Self { bucket_type, bucket, permissions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_records_still_decode() {
        let golden = r#"{"groups":["g"],"password":"$p","options":{"k":"v"},"sources":[{"cidr":"127.0.0.0/8","source":"trust"}],"grants":[{"permissions":["riak_kv.get"]},{"type":"t","bucket":"b","permissions":["riak_kv.put","riak_core.get_bucket"]}]}"#;
        let record: RoleRecord = serde_json::from_str(golden).unwrap();
        assert_eq!(record.grants[1].target, GrantTarget::Bucket("t".into(), "b".into()));
        assert_eq!(serde_json::to_string(&record).unwrap(), golden);
        assert_eq!(serde_json::from_str::<RoleRecord>("{}").unwrap(), RoleRecord::default());
        assert!(serde_json::from_str::<RoleRecord>(r#"{"grants":[{"permissions":["none"]}]}"#).is_err());
        let settings: SecuritySettings = serde_json::from_str(r#"{"enabled":true}"#).unwrap();
        assert_eq!(settings, SecuritySettings { enabled: true, ciphers: None });
    }
}
