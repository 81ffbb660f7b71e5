//! Further access keys of a user, and their limits.

use std::fmt;

use larder_rows::Timestamp;
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

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
