//! The stored rows of security, as JSON: one for each user and group, one for `all`, one for the settings.

use std::fmt;

use larder_rows::codec::DecodeError;
use larder_rows::limits::{ROLE_LIST_MAX, ROLE_NAME_BYTES_MAX, ROLE_OPTION_BYTES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SecurityRefusal;
use super::permission::PermissionSet;
use super::rules::AccessSource;

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
    pub fn from_parts(kind: &[u8], name: &[u8]) -> Result<Self, DecodeError> {
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
        let permissions = grant.permissions.iter().map(|permission| permission.name().to_owned()).collect();
        let (bucket_type, bucket) = match grant.target {
            GrantTarget::Any => (None, None),
            GrantTarget::Type(of_type) => (Some(of_type), None),
            GrantTarget::Bucket(of_type, bucket) => (Some(of_type), Some(bucket)),
        };
        Self { bucket_type, bucket, permissions }
    }
}

/// The group that every user is in.
pub const ALL: &str = "all";
/// Words of the commands, which no user or group may have as its name.
const RESERVED: [&str; 5] = [ALL, "on", "to", "from", "any"];

/// The lower case of a name, as the commands write it: of the letters of Latin-1 alone, as Riak does.
#[must_use]
pub fn folded(name: &str) -> String {
    let fold = |letter: char| match letter {
        // The sign of multiplication stands among the capitals.
        'A'..='Z' | 'À'..='Ö' | 'Ø'..='Þ' => char::from_u32(u32::from(letter) + 32).unwrap_or(letter),
        other => other,
    };
    name.chars().map(fold).collect()
}

/// The name of a new user or group, in lower case.
///
/// # Errors
/// [`SecurityRefusal::IllegalName`], [`SecurityRefusal::ReservedName`].
pub fn parse_name(name: &str) -> Result<String, SecurityRefusal> {
    let is_illegal = |letter: char| {
        matches!(letter, '\0'..=' ' | '!' | '"' | '#' | '$' | '%' | '&' | '\'' | '(' | ')' | '*' | '+' | ',')
            || matches!(letter, ':' | ';' | '<' | '=' | '>' | '?' | '\u{7f}'..='\u{bf}')
    };
    let name = folded(name);
    if name.is_empty() || name.len() > ROLE_NAME_BYTES_MAX || name.chars().any(is_illegal) {
        return Err(SecurityRefusal::IllegalName);
    }
    if RESERVED.contains(&&*name) { Err(SecurityRefusal::ReservedName) } else { Ok(name) }
}

/// The options of a user or group.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// A new password, in clear.
    pub password: Option<String>,
    /// The groups that it is to be in.
    pub groups: Option<Vec<String>>,
    /// All other options, which have no effect.
    pub others: Vec<(String, String)>,
}

/// Shows no value: one of them may be a password.
impl fmt::Debug for RoleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoleOptions").field("groups", &self.groups).finish_non_exhaustive()
    }
}

impl RoleOptions {
    /// Reads the words after a name.
    ///
    /// # Errors
    /// [`SecurityRefusal::BadOption`], [`SecurityRefusal::TooLong`], [`SecurityRefusal::TooMany`].
    pub fn parse(words: &[&str]) -> Result<Self, SecurityRefusal> {
        let mut options = Self::default();
        if words.len() > ROLE_LIST_MAX {
            return Err(SecurityRefusal::TooMany { things: "options", max: ROLE_LIST_MAX });
        }
        for word in words {
            let (key, value) = word
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| SecurityRefusal::BadOption((*word).to_owned()))?;
            match key {
                "groups" => options.groups = Some(list(value)),
                _ if word.len() > ROLE_OPTION_BYTES_MAX => {
                    return Err(SecurityRefusal::TooLong("option", ROLE_OPTION_BYTES_MAX));
                }
                "password" => options.password = Some(value.to_owned()),
                _ => options.others.push((key.to_owned(), value.to_owned())),
            }
        }
        Ok(options)
    }
}

/// The names of a list with commas, in lower case.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|name| !name.is_empty()).map(folded).collect()
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

#[cfg(test)]
mod name_tests {
    use super::*;

    #[test]
    fn names_are_kept_in_lower_case_of_latin_1() {
        for (name, expected) in
            [("Bob", "bob"), ("ÄÖÜ×Þß", "äöü×þß"), ("ПРИМЕР", "ПРИМЕР"), ("a-b_c.d/e@f", "a-b_c.d/e@f")]
        {
            assert_eq!(parse_name(name), Ok(expected.to_owned()), "{name}");
        }
    }

    #[test]
    fn words_of_the_commands_and_marks_are_no_names() {
        for name in ["all", "ON", "To", "from", "Any"] {
            assert_eq!(parse_name(name), Err(SecurityRefusal::ReservedName), "{name}");
        }
        let long = "a".repeat(ROLE_NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a\n", "a,b", "a=b", "a?", "a*", "\"a", "a\u{7f}", "a\u{a0}", "a\u{bf}", &long] {
            assert_eq!(parse_name(name), Err(SecurityRefusal::IllegalName), "{name:?}");
        }
        assert!(parse_name("a\u{c0}").is_ok() && parse_name("@[]^_`{|}~/.-").is_ok());
    }
}

#[cfg(test)]
mod options_tests {
    use super::*;

    #[test]
    fn options_are_pairs_and_a_password_may_hold_any_character() {
        let options = RoleOptions::parse(&["password=a=b:c", "groups=A,b", "Note=x"]).unwrap();
        assert_eq!(options.password.as_deref(), Some("a=b:c"));
        assert_eq!(options.groups, Some(vec!["a".into(), "b".into()]));
        assert_eq!(options.others, [("Note".into(), "x".into())]);
        assert!(!format!("{options:?}").contains("a=b"));
        for word in ["x", "=x", ""] {
            assert_eq!(RoleOptions::parse(&[word]), Err(SecurityRefusal::BadOption(word.into())));
        }
        let long = format!("password={}", "x".repeat(ROLE_OPTION_BYTES_MAX));
        assert!(RoleOptions::parse(&[&long]).is_err());
    }
}
