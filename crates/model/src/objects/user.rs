//! Users of the S3 interface.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

use crate::rows::Micros;

/// A user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Canonical id: 64 hexadecimal digits; what grants and owners name.
    pub id: String,
    /// Access key id.
    pub key_id: String,
    /// Secret access key: signatures need it as it is.
    pub secret: String,
    /// Free text.
    pub name: String,
    /// E-mail address; unique.
    pub email: String,
    /// The part of the e-mail address before the at sign.
    pub display_name: String,
    /// Whether requests are taken.
    pub enabled: bool,
    /// Whether this user administers users and may do anything.
    pub admin: bool,
    /// When it was made.
    pub created: Micros,
}

/// All but the secret: a log must never hold it.
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

/// How clients show the user of this e-mail address: the part before the at sign.
#[must_use]
pub fn display_name_of(email: &str) -> &str {
    email.split_once('@').map_or(email, |(name, _)| name)
}

/// Whether this can be an e-mail address: something, one at sign, something; no blanks, at most 254 bytes.
#[must_use]
pub fn valid_email(email: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c != '@' && !c.is_whitespace() && !c.is_control());
    email.len() <= 254 && email.split_once('@').is_some_and(|(name, host)| plain(name) && plain(host))
}

/// A new canonical id, 64 hexadecimal digits as Riak CS makes it: from the access key id and something random.
#[must_use]
pub fn canonical_id_of(key_id: &str, random: &[u8]) -> String {
    let hex = |bytes: &[u8]| format!("{:032x}", u128::from_be_bytes(Md5::digest(bytes).into()));
    hex(key_id.as_bytes()) + &hex(random)
}

/// A new access key id: 20 characters of `A-Z0-9-_`. Upper-casing loses some of the randomness; enough is left, and it is
/// no secret.
#[must_use]
pub fn key_id_of(random: &[u8; 15]) -> String {
    let id = URL_SAFE.encode(random).to_ascii_uppercase();
    // What begins with a hyphen is a flag to every tool that it is given to.
    match id.strip_prefix(['-', '_']) {
        Some(rest) => format!("K{rest}"),
        None => id,
    }
}

/// A new secret access key: 40 characters, the last two of them `==`, as Riak CS spells its own.
#[must_use]
pub fn secret_of(random: &[u8; 28]) -> String {
    URL_SAFE.encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emails_and_display_names() {
        assert_eq!(display_name_of("foo.bar@example.com"), "foo.bar");
        assert_eq!(display_name_of("nothing"), "nothing");
        for good in ["a@b", "admin@localhost", "foo+1@example.com", "é@ü.de"] {
            assert!(valid_email(good), "{good}");
        }
        let long = format!("{}@b", "a".repeat(253));
        for bad in ["", "a", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n", "a@\tb", &long] {
            assert!(!valid_email(bad), "{bad}");
        }
    }

    #[test]
    fn keys_have_the_shapes_of_riak_cs() {
        let key = key_id_of(&[0xfb; 15]);
        assert_eq!((key.as_str(), key.len()), ("K_V7-_V7-_V7-_V7-_V7", 20));
        let secret = secret_of(&[0xff; 28]);
        assert_eq!(secret, format!("{}w==", "_".repeat(37)));
        assert_eq!((secret.len(), secret.ends_with("==")), (40, true));
        // The digests of two empty strings.
        assert_eq!(canonical_id_of("", b""), "d41d8cd98f00b204e9800998ecf8427e".repeat(2));
        assert_ne!(canonical_id_of("A", b"1"), canonical_id_of("A", b"2"));
        assert_ne!(canonical_id_of("A", b"1"), canonical_id_of("B", b"1"));
    }

    #[test]
    fn users_come_back_from_json_and_hide_their_secret() {
        let user = User {
            id: canonical_id_of("K", b"r"),
            key_id: "K".into(),
            secret: "hush".into(),
            name: "Foo".into(),
            email: "foo@example.com".into(),
            display_name: "foo".into(),
            enabled: true,
            admin: false,
            created: 5,
        };
        let text = serde_json::to_string(&user).unwrap();
        assert_eq!(serde_json::from_str::<User>(&text).unwrap(), user);
        assert!(!format!("{user:?}").contains("hush"));
    }
}
