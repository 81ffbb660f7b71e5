//! Signing keys of version 4, kept after their first use: to derive one takes four HMACs, as long as the rest of a request's check.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

use super::v4::Credential;

/// Most keys; a thousand users sign at once, with one day and region each.
const KEYS_MAX: usize = 1000;

/// The signing keys used last, one for each access key id.
#[derive(Default)]
pub struct SigningKeys(Mutex<HashMap<String, DerivedKey>>);

/// A signing key, and all that it was derived from.
struct DerivedKey {
    secret: String,
    day: String,
    region: String,
    key: [u8; 32],
}

/// Shows no key: neither logs nor errors may.
impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({})", self.0.lock().len())
    }
}

impl SigningKeys {
    /// The signing key of a credential under the user's current secret, and whether it was derived just now.
    pub(super) fn key_for(&self, credential: &Credential, secret: &str) -> (SigningKey, bool) {
        let keys = self.0.lock();
        // The secret is compared, so a changed one is obeyed at once whatever the cache holds.
        let found = keys.get(&credential.access_key).filter(|derived| {
            derived.secret == secret && derived.day == credential.day && derived.region == credential.region
        });
        match found {
            Some(derived) => (derived.key, false),
            None => {
                drop(keys);
                (credential.key(secret), true)
            }
        }
    }

    /// Keeps the key of a signature that was verified. An unverified one is never kept: anyone could name a user and any region,
    /// and so displace the key in use.
    pub(super) fn keep(&self, credential: &Credential, secret: &str, key: SigningKey) {
        let mut keys = self.0.lock();
        // Bound: to forget all costs each user four HMACs.
        if keys.len() >= KEYS_MAX && !keys.contains_key(&credential.access_key) {
            keys.clear();
        }
        let derived = DerivedKey {
            secret: secret.to_owned(),
            day: credential.day.clone(),
            region: credential.region.clone(),
            key,
        };
        keys.insert(credential.access_key.clone(), derived);
    }
}

/// An HMAC key of one user, day, region and service.
pub(super) type SigningKey = [u8; 32];

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(access_key: &str, day: &str, region: &str) -> Credential {
        Credential::parse(&format!("{access_key}/{day}/{region}/s3/aws4_request")).unwrap()
    }

    #[test]
    fn a_changed_secret_day_or_region_is_never_answered_with_the_old_key() {
        let keys = SigningKeys::default();
        let first = credential("K", "20260101", "us-east-1");
        let (key, fresh) = keys.key_for(&first, "secret");
        assert!(fresh);
        keys.keep(&first, "secret", key);
        assert_eq!(keys.key_for(&first, "secret"), (first.key("secret"), false));
        for (other, secret) in [
            (first.clone(), "changed"),
            (credential("K", "20260102", "us-east-1"), "secret"),
            (credential("K", "20260101", "eu-west-1"), "secret"),
            (credential("other", "20260101", "us-east-1"), "secret"),
        ] {
            assert_eq!(keys.key_for(&other, secret), (other.key(secret), true), "{other:?}");
        }
    }

    #[test]
    fn signing_keys_are_bounded_and_not_shown() {
        let keys = SigningKeys::default();
        for number in 0..=KEYS_MAX {
            keys.keep(&credential(&format!("K{number}"), "20260101", "r"), "hidden", [7; 32]);
            assert!(keys.0.lock().len() <= KEYS_MAX);
        }
        assert_eq!(format!("{keys:?}"), "SigningKeys(1)");
    }
}
