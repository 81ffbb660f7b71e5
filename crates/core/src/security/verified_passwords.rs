//! A cache of passwords that were right: HTTP sends one with each request, and its hash takes a processor for a while.
//!
//! An entry is a keyed hash of user and password, with the number of the change that last wrote the user. So a changed password,
//! and a user that was removed and made again, find no entry.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use larder_rows::Timestamp;
use quick_cache::sync::Cache;

/// Most entries.
const ENTRIES_MAX: usize = 10_000;

/// The keyed hash of a user and a password.
pub(super) type LoginTag = [u8; 32];

/// The cache.
pub(super) struct VerifiedPasswords {
    /// Drawn at each start: memory that leaks from another process says nothing about passwords.
    key: Key,
    entries: Cache<LoginTag, Timestamp>,
}

impl VerifiedPasswords {
    /// An empty cache, with a key of its own.
    pub(super) fn new(random: fn(&mut [u8])) -> Self {
        let mut key = [0; 32];
        random(&mut key);
        Self { key: Key::new(HMAC_SHA256, &key), entries: Cache::new(ENTRIES_MAX) }
    }

    /// The tag of a log-in.
    pub(super) fn tag(&self, user: &str, password: &[u8]) -> LoginTag {
        // The length keeps two pairs apart that are the same bytes one after the other.
        let message = [&(user.len() as u64).to_be_bytes(), user.as_bytes(), password].concat();
        let mut tag = [0; 32];
        tag.copy_from_slice(sign(&self.key, &message).as_ref());
        tag
    }

    /// Whether this log-in was right, and its user was not changed since.
    pub(super) fn has(&self, tag: &LoginTag, user: Timestamp) -> bool {
        self.entries.get(tag) == Some(user)
    }

    /// Keeps a log-in that was right.
    pub(super) fn insert(&self, tag: LoginTag, user: Timestamp) {
        self.entries.insert(tag, user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_of_one_user_one_password_and_one_state() {
        let cache = VerifiedPasswords::new(|bytes| bytes.fill(7));
        let tag = cache.tag("ab", b"c");
        cache.insert(tag, Timestamp(5));
        assert!(cache.has(&cache.tag("ab", b"c"), Timestamp(5)));
        assert!(!cache.has(&tag, Timestamp(6)), "the user was changed");
        assert!(!cache.has(&cache.tag("a", b"bc"), Timestamp(5)));
        assert_ne!(tag, VerifiedPasswords::new(|bytes| bytes.fill(8)).tag("ab", b"c"));
        for at in 0..2 * ENTRIES_MAX {
            cache.insert(cache.tag("u", &at.to_be_bytes()), Timestamp(5));
        }
        assert!(cache.entries.len() <= ENTRIES_MAX);
    }
}
