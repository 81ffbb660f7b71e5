//! The users of another S3 store, in the form in which its operator gets them.
//!
//! | store | form |
//! |---|---|
//! | MinIO | one JSON object with the files of `mc admin cluster iam export` by their names |
//! | Riak CS | the answer to `GET /riak-cs/users` with `Accept: application/json`, as it was saved |

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The status of a user or group of MinIO that may be used.
const MINIO_ENABLED: &str = "enabled";
/// The status of a further key of MinIO that may be used.
const MINIO_ON: &str = "on";
/// The year in which a key of MinIO ends that has no end.
const NO_END: &str = "1970-01-01T";

/// All users of a store, with what decides what they may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceUsers {
    /// Documents of policies by their names.
    pub policies: Vec<(String, String)>,
    /// Groups of users.
    pub groups: Vec<SourceGroup>,
    /// The users.
    pub users: Vec<SourceUser>,
    /// Keys beside a user's first one.
    pub keys: Vec<SourceKey>,
    /// What has no form here, each on one line.
    pub left_out: Vec<String>,
}

/// A group of users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceGroup {
    /// Its name.
    pub name: String,
    /// The names of its policies.
    pub policies: Vec<String>,
    /// The access key ids of its members.
    pub members: Vec<String>,
}

/// A user.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SourceUser {
    /// Access key id.
    pub key_id: String,
    /// Secret access key.
    pub secret: String,
    /// E-mail address; a store without them has made-up ones.
    pub email: String,
    /// Free text.
    pub name: String,
    /// Canonical id, if the store tells it.
    pub id: Option<String>,
    /// Whether its requests are taken.
    pub enabled: bool,
    /// The names of its policies; `None`: it has the rights of an owner.
    pub policies: Option<Vec<String>>,
}

/// A key beside a user's first one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SourceKey {
    /// Access key id.
    pub key_id: String,
    /// Secret access key.
    pub secret: String,
    /// The first key of its user.
    pub parent: String,
    /// When it ends, as the store writes it.
    pub expires: Option<String>,
}

/// Shows no secret, which must not get into a log.
impl std::fmt::Debug for SourceUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceUser").field("key_id", &self.key_id).field("email", &self.email).finish_non_exhaustive()
    }
}

/// Shows no secret, which must not get into a log.
impl std::fmt::Debug for SourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceKey").field("key_id", &self.key_id).field("parent", &self.parent).finish_non_exhaustive()
    }
}

/// The files of an export of MinIO. What is absent or null is empty.
#[derive(Deserialize)]
struct MinioExport {
    #[serde(rename = "policies.json", default)]
    policies: Option<BTreeMap<String, Value>>,
    #[serde(rename = "users.json")]
    users: Option<BTreeMap<String, MinioUser>>,
    #[serde(rename = "groups.json", default)]
    groups: Option<BTreeMap<String, MinioGroup>>,
    #[serde(rename = "svcaccts.json", default)]
    keys: Option<BTreeMap<String, MinioKey>>,
    #[serde(rename = "user_mappings.json", default)]
    user_policies: Option<BTreeMap<String, MinioMapping>>,
    #[serde(rename = "group_mappings.json", default)]
    group_policies: Option<BTreeMap<String, MinioMapping>>,
    #[serde(rename = "stsuser_mappings.json", default)]
    foreign_policies: Option<BTreeMap<String, MinioMapping>>,
}

#[derive(Deserialize)]
struct MinioUser {
    #[serde(rename = "secretKey")]
    secret: String,
    status: String,
}

#[derive(Deserialize)]
struct MinioGroup {
    status: String,
    members: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct MinioKey {
    parent: String,
    #[serde(rename = "secretKey")]
    secret: String,
    status: String,
    #[serde(rename = "sessionPolicy", default)]
    policy: Option<Value>,
    #[serde(default)]
    expiration: Option<String>,
}

#[derive(Deserialize)]
struct MinioMapping {
    policy: String,
}

impl MinioMapping {
    fn names(&self) -> Vec<String> {
        self.policy.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

#[derive(Deserialize)]
struct RiakCsUser {
    email: String,
    name: String,
    key_id: String,
    key_secret: String,
    id: String,
    status: String,
}

impl SourceUsers {
    /// Reads the users of a store.
    ///
    /// # Errors
    /// A line that says which form the text should have.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim_start().as_bytes().first() {
            Some(b'{') => Ok(Self::from_minio(read(text)?)),
            Some(b'[' | b'-') => Self::from_riak_cs(text),
            Some(b'<') => Err("the users of a Riak CS are asked for with `Accept: application/json`".to_owned()),
            _ => Err("the file is no export of the users of a MinIO or a Riak CS".to_owned()),
        }
    }

    fn from_riak_cs(text: &str) -> Result<Self, String> {
        let mut users = Vec::new();
        for document in json_parts(text) {
            let page: Vec<RiakCsUser> = read(document)?;
            users.extend(page.into_iter().map(|user| SourceUser {
                key_id: user.key_id,
                secret: user.key_secret,
                email: user.email,
                name: user.name,
                id: Some(user.id),
                enabled: user.status == "enabled",
                policies: None,
            }));
        }
        Ok(Self { users, ..Self::default() })
    }

    fn from_minio(export: MinioExport) -> Self {
        let mut found = Self::default();
        let text = |policy: (String, Value)| (policy.0, policy.1.to_string());
        found.policies = export.policies.unwrap_or_default().into_iter().map(text).collect();
        let user_policies = export.user_policies.unwrap_or_default();
        for (key_id, user) in export.users.unwrap_or_default() {
            let policies = user_policies.get(&key_id).map(MinioMapping::names).unwrap_or_default();
            found.users.push(SourceUser {
                email: format!("{key_id}@minio"),
                name: key_id.clone(),
                id: None,
                enabled: user.status == MINIO_ENABLED,
                policies: Some(policies),
                secret: user.secret,
                key_id,
            });
        }
        let group_policies = export.group_policies.unwrap_or_default();
        for (name, group) in export.groups.unwrap_or_default() {
            if group.status == MINIO_ENABLED {
                let policies = group_policies.get(&name).map(MinioMapping::names).unwrap_or_default();
                found.groups.push(SourceGroup { name, policies, members: group.members.unwrap_or_default() });
            } else {
                found.left_out.push(format!("group {name}: it is disabled"));
            }
        }
        found.take_keys(export.keys.unwrap_or_default());
        for name in export.foreign_policies.unwrap_or_default().into_keys() {
            found.left_out.push(format!("user {name} of another directory: it has no key of its own"));
        }
        found
    }

    fn take_keys(&mut self, keys: BTreeMap<String, MinioKey>) {
        for (key_id, key) in keys {
            let why = if key.policy.as_ref().is_some_and(|policy| !policy.is_null()) {
                Some("it has a policy of its own: give its user a key with limits".to_owned())
            } else if key.status != MINIO_ON {
                Some("it is disabled".to_owned())
            } else if self.users.iter().all(|user| user.key_id != key.parent) {
                Some(format!("its user {} is not in the export", key.parent))
            } else {
                None
            };
            match why {
                Some(why) => self.left_out.push(format!("key {key_id}: {why}")),
                None => self.keys.push(SourceKey {
                    key_id,
                    secret: key.secret,
                    parent: key.parent,
                    expires: key.expiration.filter(|end| !end.starts_with(NO_END)),
                }),
            }
        }
    }
}

/// Reads a document. Its text is in no message: it has secrets.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("the export cannot be read at line {} and column {}", error.line(), error.column()))
}

/// The documents of a `multipart/mixed` body, or of a text that is one itself.
fn json_parts(text: &str) -> Vec<&str> {
    if text.trim_start().starts_with('[') {
        return vec![text];
    }
    let boundary = text.trim_start().lines().next().unwrap_or_default();
    let parts = text.split(boundary).filter_map(|part| part.split_once("\r\n\r\n").or_else(|| part.split_once("\n\n")));
    parts.map(|(_, document)| document).filter(|document| document.trim_start().starts_with('[')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that a MinIO of 2026-02-12 exported, shortened.
    const MINIO: &str = r#"{
        "group_mappings.json": {"readers":{"version":0,"policy":"readonly","updatedAt":"2026-11-30T05:15:58.07904063Z"}},
        "groups.json": {"readers":{"version":1,"status":"enabled","members":["bob"],"updatedAt":"2026-11-30T05:15:58Z"},
                        "old":{"version":1,"status":"disabled","members":null}},
        "policies.json": {"only-photos":{"Version":"2012-10-17","Statement":[]}},
        "stsuser_mappings.json": {"uid=ann,dc=example":{"version":0,"policy":"readonly"}},
        "svcaccts.json": {
            "app":{"parent":"alice","accessKey":"app","secretKey":"s","groups":null,"claims":{"sa-policy":"inherited-policy"},
                   "sessionPolicy":null,"status":"on","name":"app","expiration":"1970-01-01T00:00:00Z"},
            "less":{"parent":"alice","secretKey":"s","sessionPolicy":{"Version":"2012-10-17"},"status":"on"},
            "root":{"parent":"minioadmin","secretKey":"s","sessionPolicy":null,"status":"on"},
            "temp":{"parent":"alice","secretKey":"s","sessionPolicy":null,"status":"on","expiration":"2026-12-03T05:15:58Z"}},
        "user_mappings.json": {"alice":{"version":0,"policy":"readwrite,only-photos"}},
        "users.json": {"alice":{"secretKey":"a","status":"enabled"},"bob":{"secretKey":"b","status":"disabled"}}
    }"#;

    #[test]
    fn an_export_of_minio_has_users_policies_groups_and_keys() {
        let found = SourceUsers::parse(MINIO).unwrap();
        let users: Vec<_> =
            found.users.iter().map(|user| (&*user.key_id, user.enabled, user.policies.clone())).collect();
        let both = vec!["readwrite".to_owned(), "only-photos".to_owned()];
        assert_eq!(users, [("alice", true, Some(both)), ("bob", false, Some(Vec::new()))]);
        assert_eq!(found.users[0].email, "alice@minio");
        assert_eq!(
            found.policies,
            [("only-photos".to_owned(), r#"{"Version":"2012-10-17","Statement":[]}"#.to_owned())]
        );
        assert_eq!(
            (found.groups.len(), &found.groups[0].policies[0], &found.groups[0].members[0]),
            (1, &"readonly".to_owned(), &"bob".to_owned())
        );
        let keys: Vec<_> = found.keys.iter().map(|key| (&*key.key_id, key.expires.as_deref())).collect();
        assert_eq!(keys, [("app", None), ("temp", Some("2026-12-03T05:15:58Z"))]);
        assert_eq!(
            found.left_out,
            [
                "group old: it is disabled",
                "key less: it has a policy of its own: give its user a key with limits",
                "key root: its user minioadmin is not in the export",
                "user uid=ann,dc=example of another directory: it has no key of its own",
            ]
        );
    }

    #[test]
    fn a_listing_of_riak_cs_comes_in_parts() {
        let user = |name: &str| {
            format!(
                r#"{{"email":"{name}@b","display_name":"{name}","name":"{name}","key_id":"K{name}","key_secret":"s","id":"i","status":"enabled"}}"#
            )
        };
        let text = format!(
            "\r\n--X\r\nContent-Type: application/json\r\n\r\n[{},{}]\r\n--X\r\nContent-Type: application/json\r\n\r\n[{}]\r\n--X--\r\n",
            user("a"),
            user("b"),
            user("c").replace("enabled", "disabled")
        );
        let found = SourceUsers::parse(&text).unwrap();
        let users: Vec<_> =
            found.users.iter().map(|user| (&*user.key_id, user.enabled, user.policies.is_none())).collect();
        assert_eq!(users, [("Ka", true, true), ("Kb", true, true), ("Kc", false, true)]);
        assert_eq!(SourceUsers::parse(&format!("[{}]", user("a"))).unwrap().users.len(), 1);
    }

    #[test]
    fn other_texts_are_refused_without_their_secrets() {
        for text in
            ["", "x", "{\"users.json\":{\"a\":{\"secretKey\":\"hush\"}}}", "[{\"key_secret\":\"hush\"}]", "<Users/>"]
        {
            let error = SourceUsers::parse(text).unwrap_err();
            assert!(!error.contains("hush"), "{error}");
        }
        let shown = format!("{:?}", SourceUser { secret: "hush".into(), ..SourceUser::default() });
        assert!(!shown.contains("hush"));
    }
}
