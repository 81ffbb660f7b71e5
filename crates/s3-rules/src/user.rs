//! S3 users and their keys.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use larder_rows::Timestamp;
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

/// An S3 user.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Canonical id, 64 hexadecimal digits. Grants and owners refer to it.
    pub id: String,
    /// Access key id.
    pub key_id: String,
    /// Secret access key. It is not hashed: the server computes signatures with it.
    pub secret: String,
    /// Free text, set by the admin.
    pub name: String,
    /// E-mail address, unique among users, set by the admin.
    pub email: String,
    /// The part of the e-mail address before the at sign.
    pub display_name: String,
    /// Whether the server takes the user's requests.
    pub enabled: bool,
    /// Whether the user administers users and is allowed everything.
    pub admin: bool,
    /// The time of its creation.
    pub created: Timestamp,
    /// Whether the user registered itself, and so chose its name and its address: no right follows from them.
    #[serde(default)]
    pub self_registered: bool,
    /// Its keys beside the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_keys: Vec<AccessKey>,
    /// The names of the policies attached to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// The names of its groups, whose policies it has, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

impl User {
    /// Whether policies decide what it may do, instead of the ownership of buckets.
    #[must_use]
    pub fn has_attachments(&self) -> bool {
        !self.policies.is_empty() || !self.groups.is_empty()
    }

    /// The ids of all its access keys.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.key_id).chain(self.further_keys.iter().map(|key| &*key.id))
    }

    /// The name that policies know the user by; `None` for a name that the user chose.
    #[must_use]
    pub fn trusted_name(&self) -> Option<&str> {
        (!self.self_registered).then_some(&*self.name)
    }

    /// The e-mail address that policies and grants know the user by; `None` for one that the user chose.
    #[must_use]
    pub fn trusted_email(&self) -> Option<&str> {
        (!self.self_registered).then_some(&*self.email)
    }
}

/// Shows all fields but the secret, which must not get into a log.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("id", &self.id)
            .field("key_id", &self.key_id)
            .field("name", &self.name)
            .field("email", &self.email)
            .field("enabled", &self.enabled)
            .field("admin", &self.admin)
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

/// The display name of the user with this e-mail address: the part before the at sign.
#[must_use]
pub fn display_name(email: &str) -> &str {
    email.split_once('@').map_or(email, |(name, _)| name)
}

/// Whether this can be an e-mail address: two parts around one at sign, without blanks, at most 254 bytes.
#[must_use]
pub fn is_valid_email(email: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c != '@' && !c.is_whitespace() && !c.is_control());
    email.len() <= 254 && email.split_once('@').is_some_and(|(name, host)| plain(name) && plain(host))
}

/// A new canonical id as Riak CS makes it: 64 hexadecimal digits from the access key id and random bytes.
#[must_use]
pub fn canonical_id(key_id: &str, random: &[u8]) -> String {
    let hex = |bytes: &[u8]| format!("{:032x}", u128::from_be_bytes(Md5::digest(bytes).into()));
    hex(key_id.as_bytes()) + &hex(random)
}

/// A new access key id: 20 characters of `A-Z2-7`, so that no command takes it for an option.
#[must_use]
pub fn new_key_id(random: &[u8; 20]) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    random.iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect()
}

/// A new secret access key as Riak CS makes it: 40 characters, of which the last two are `==`.
#[must_use]
pub fn new_secret(random: &[u8; 28]) -> String {
    URL_SAFE.encode(random)
}

/// Most further keys of a user.
pub const FURTHER_KEYS_MAX: usize = 20;

/// A further access key of a user, beside its first one. It has the user's rights within its limits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    /// Access key id.
    pub id: String,
    /// Secret access key. It is not hashed: the server computes signatures with it.
    pub secret: String,
    /// The time of its creation.
    pub created: Timestamp,
    /// Its limits.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// The limits of an access key. They only take away from the rights of its user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyLimits {
    /// Whether the key reads and lists only.
    pub read_only: bool,
    /// The buckets that it uses; empty: all.
    pub buckets: Vec<String>,
    /// Beginnings of the keys that it uses in these buckets; empty: all.
    pub prefixes: Vec<String>,
    /// The time from which on it is refused.
    pub expires: Option<Timestamp>,
}

/// Shows all fields but the secret, which must not get into a log.
impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey")
            .field("id", &self.id)
            .field("created", &self.created)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl AccessKey {
    /// Whether the key has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.limits.expires.is_some_and(|expires| expires <= now)
    }
}

/// The limits as the options of the command that sets them; empty without any.
impl fmt::Display for KeyLimits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.read_only {
            write!(out, " --read-only")?;
        }
        for (option, values) in [("bucket", &self.buckets), ("prefix", &self.prefixes)] {
            values.iter().try_for_each(|value| write!(out, " --{option} {value}"))?;
        }
        self.expires.map_or(Ok(()), |time| write!(out, " --expires {}", time_text(time)))
    }
}

/// Parses a time for an expiry: RFC 3339, or a day for its beginning in UTC. `None` for other text.
#[must_use]
pub fn parse_expiry(text: &str) -> Option<Timestamp> {
    let day = || Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().or_else(|| Some(day()?.midnight().assume_utc()))?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000).ok().map(Timestamp)
}

/// A time in UTC and whole seconds.
#[must_use]
pub fn time_text(time: Timestamp) -> String {
    let seconds = i64::try_from(time.0 / 1_000_000).ok();
    let time = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| "never".to_owned())
}

#[cfg(test)]
mod tests {
    use super::KeyLimits;
    use super::*;

    #[test]
    fn bad_email_addresses_are_refused() {
        assert_eq!(display_name("foo.bar@example.com"), "foo.bar");
        assert_eq!(display_name("nothing"), "nothing");
        for good in ["a@b", "admin@localhost", "foo+1@example.com", "é@ü.de"] {
            assert!(is_valid_email(good), "{good}");
        }
        let long = format!("{}@b", "a".repeat(253));
        for bad in ["", "a", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n", "a@\tb", &long] {
            assert!(!is_valid_email(bad), "{bad}");
        }
    }

    #[test]
    fn keys_have_the_form_of_riak_cs() {
        let random: [u8; 20] = std::array::from_fn(|at| u8::try_from(at * 13).unwrap());
        assert_eq!(new_key_id(&random), "AN2HUBO3IVCP4JWDQ5KX");
        let secret = new_secret(&[0xff; 28]);
        assert_eq!(secret, format!("{}w==", "_".repeat(37)));
        assert_eq!((secret.len(), secret.ends_with("==")), (40, true));
        // The digests of two empty strings.
        assert_eq!(canonical_id("", b""), "d41d8cd98f00b204e9800998ecf8427e".repeat(2));
        assert_ne!(canonical_id("A", b"1"), canonical_id("A", b"2"));
        assert_ne!(canonical_id("A", b"1"), canonical_id("B", b"1"));
    }

    #[test]
    fn users_decode_from_json_and_do_not_print_their_secret() {
        let user = User {
            id: canonical_id("K", b"r"),
            key_id: "K".into(),
            secret: "hush".into(),
            name: "Foo".into(),
            email: "foo@example.com".into(),
            display_name: "foo".into(),
            enabled: true,
            admin: false,
            created: Timestamp(5),
            self_registered: true,
            further_keys: vec![AccessKey {
                id: "L".into(),
                secret: "hush".into(),
                created: Timestamp(6),
                limits: KeyLimits::default(),
            }],
            policies: vec!["readonly".into()],
            groups: vec!["team".into()],
        };
        let text = serde_json::to_string(&user).unwrap();
        assert_eq!(serde_json::from_str::<User>(&text).unwrap(), user);
        let older = text.replace(",\"self_registered\":true", "");
        assert_eq!(serde_json::from_str::<User>(&older).unwrap(), User { self_registered: false, ..user.clone() });
        assert!(!format!("{user:?}").contains("hush"));
    }
}

#[cfg(test)]
mod access_key_tests {
    use super::*;

    #[test]
    fn expiries_are_times_or_days() {
        let day = Timestamp(1_893_456_000_000_000);
        for same in ["2030-01-01", "2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00"] {
            assert_eq!(parse_expiry(same), Some(day), "{same}");
        }
        for bad in ["", "soon", "90d", "1893456000", "2030-02-30", "1969-12-31", "2030-01-01T25:00:00Z"] {
            assert_eq!(parse_expiry(bad), None, "{bad}");
        }
        assert_eq!(time_text(day), "2030-01-01T00:00:00Z");
    }

    #[test]
    fn a_key_shows_its_limits_and_not_its_secret() {
        let limits = KeyLimits {
            read_only: true,
            buckets: vec!["tea".into(), "milk".into()],
            prefixes: vec!["a/".into()],
            expires: parse_expiry("2030-01-01"),
        };
        let shown = " --read-only --bucket tea --bucket milk --prefix a/ --expires 2030-01-01T00:00:00Z";
        assert_eq!((limits.to_string().as_str(), KeyLimits::default().to_string().as_str()), (shown, ""));
        let key = AccessKey { id: "K".into(), secret: "hush".into(), created: Timestamp(5), limits };
        assert!(!format!("{key:?}").contains("hush"));
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<AccessKey>(&text).unwrap(), key);
        let (before, at) = (Timestamp(1_893_455_999_999_999), Timestamp(1_893_456_000_000_000));
        assert!(!key.is_expired(before) && key.is_expired(at));
    }
}
