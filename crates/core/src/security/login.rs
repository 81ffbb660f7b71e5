//! Log-ins: a user proves to be it by the method of the source that it comes from.
//!
//! Passwords are hashed beside the threads of requests, few at a time, and a right one is cached. A failure is answered after five
//! seconds whatever its reason, so that guesses are slow and tell nothing; [`FailedLogins`] bounds them by source. Addresses
//! have their passwords hashed in turn, and so have the names of one: who guesses keeps no other from its log-in.
//!
//! Stored passwords: PBKDF2 with SHA-256, in a form that says how it was made.
//!
//! ```text
//! $pbkdf2-sha256$600000$SALT$HASH        rounds; salt and hash in hexadecimal digits
//! ```
//! Another method or more rounds are another beginning, so stored passwords outlive a change of the cost.
//!
//! A cache of passwords that were right: HTTP sends one with each request, and its hash takes a processor for a while.
//!
//! An entry is a keyed hash of user and password, with the number of the change that last wrote the user. So a changed password,
//! and a user that was removed and made again, find no entry.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive, verify};
use larder_admission::{FairBudget, HeldUnits, client_key};
use larder_rows::Timestamp;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

use super::Security;
use crate::Error;
use crate::rules::security::{AccessRules, RoleKind, RoleOptions, SourceMethod, folded};

/// The time from the begin of a log-in to the answer that it failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Longest wait of a password for its turn to be hashed.
const HASH_WAIT: Duration = Duration::from_secs(10);
/// A longer password is wrong: an operator can set none.
const PASSWORD_BYTES_MAX: usize = larder_rows::limits::ROLE_OPTION_BYTES_MAX;

/// A client that has proved to be a user.
#[derive(Clone)]
pub struct LoggedIn {
    /// The user's name.
    pub user: Arc<str>,
    /// The user's stored password then, with a salt of its own.
    password: Option<String>,
}

impl LoggedIn {
    /// Whether the client still is the user: another may have the name since, or another password.
    #[must_use]
    pub fn holds(&self, rules: &AccessRules) -> bool {
        rules.users().get(&*self.user).is_some_and(|entry| entry.record.password == self.password)
    }
}

/// A client that wants to be a user.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The user's name, compared byte by byte.
    pub user: &'a [u8],
    /// The password.
    pub password: &'a [u8],
    /// The common name in the client's certificate, if the protocol passes one on.
    pub common_name: Option<&'a str>,
    /// The client's address.
    pub address: IpAddr,
}

/// The reason why a client is not the user.
#[derive(Debug, Clone)]
pub enum LoginError {
    /// The user, its source or its proof is wrong: which one, is not said.
    Failed,
    /// Too many log-ins of this source fail, or too many of its passwords wait. It may be tried again.
    Busy,
    /// The rules cannot be read.
    Gateway(Error),
}

impl From<Error> for LoginError {
    fn from(error: Error) -> Self {
        Self::Gateway(error)
    }
}

impl Security {
    /// The user that this client is.
    ///
    /// # Errors
    /// [`LoginError`]; a failure takes five seconds.
    pub async fn log_in(&self, login: &Login<'_>) -> Result<LoggedIn, LoginError> {
        let begun = Instant::now();
        let rules = self.rules().await?;
        let user = std::str::from_utf8(login.user).ok().and_then(|name| rules.users().get_key_value(name));
        let source = user.and_then(|(_, entry)| rules.user_source(entry, login.address));
        let logged_in =
            user.map(|(name, entry)| LoggedIn { user: name.as_str().into(), password: entry.record.password.clone() });
        let entry = match (user, source.map(|source| source.method)) {
            (Some(_), Some(SourceMethod::Trust)) => return logged_in.ok_or(LoginError::Failed),
            (Some((name, _)), Some(SourceMethod::Certificate)) => {
                if login.common_name.is_some_and(|shown| folded(shown) == *name) {
                    return logged_in.ok_or(LoginError::Failed);
                }
                None
            }
            (Some((_, entry)), Some(SourceMethod::Password)) => Some(entry),
            _ => None,
        };
        // Without a user, the hash of some password takes the time that a wrong one would.
        let logged_in = logged_in.filter(|_| entry.is_some());
        let tag = self.verified.tag(logged_in.as_ref().map_or("", |login| &login.user), login.password);
        let number = entry.map(|entry| entry.number);
        let is_right = number.is_some_and(|number| self.verified.has(&tag, number)) || {
            let stored = logged_in.as_ref().and_then(|login| login.password.clone());
            self.verify(login, &tag, number, stored, begun + FAILURE_PAUSE).await?
        };
        let (Some(logged_in), Some(number), true) = (logged_in, number, is_right) else {
            return Err(LoginError::Failed);
        };
        self.verified.insert(tag, number);
        Ok(logged_in)
    }

    /// Whether the password is the stored one; a wrong one takes until `failure_ends`.
    async fn verify(
        &self,
        login: &Login<'_>,
        tag: &LoginTag,
        number: Option<Timestamp>,
        stored: Option<String>,
        failure_ends: Instant,
    ) -> Result<bool, LoginError> {
        let source = self.failed.source(login.address, login.user);
        // Attack: guesses must not take the processors from those who know their password.
        if !self.failed.may_try(source) {
            return Err(LoginError::Busy);
        }
        let Ok(Ok(turn)) = timeout(HASH_WAIT, self.hashes.take_for(source.address, source.name)).await else {
            return Err(LoginError::Busy);
        };
        // Another connection of the same client may have been right while this one waited.
        if number.is_some_and(|number| self.verified.has(tag, number)) {
            return Ok(true);
        }
        // The others of this source may have failed while it waited.
        if !self.failed.may_try(source) {
            return Err(LoginError::Busy);
        }
        // A password that is too long costs its client a hash, as any other wrong one.
        let stored = stored.filter(|_| login.password.len() <= PASSWORD_BYTES_MAX);
        let password = login.password[..login.password.len().min(PASSWORD_BYTES_MAX)].to_vec();
        let failed = Arc::clone(&self.failed);
        // Attack: a client that gives its request up must not end the count and the pause of its failure.
        let verified = tokio::spawn(async move {
            let hashed = spawn_blocking(move || is_password(stored.as_deref(), &password)).await;
            let is_right = hashed.map_err(|error| Error::Internal(error.to_string()))?;
            let counted = (!is_right).then(|| failed.begin(source));
            // The next one sees the count.
            drop(turn);
            if let Some(_counted) = counted {
                sleep_until(failure_ends).await;
            }
            Ok::<_, LoginError>(is_right)
        });
        verified.await.map_err(|error| Error::Internal(error.to_string()))?
    }

    /// The stored form of the password in these options, if a user has one.
    pub(super) async fn hash(&self, kind: RoleKind, options: &RoleOptions) -> Result<Option<String>, Error> {
        let Some(password) = options.password.clone().filter(|_| kind == RoleKind::User) else { return Ok(None) };
        let mut salt = [0; SALT_BYTES];
        (self.context.ports.random)(&mut salt);
        let hashed = spawn_blocking(move || hashed(password.as_bytes(), salt)).await;
        hashed.map(Some).map_err(|error| Error::Internal(error.to_string()))
    }
}

/// Most failures of a source at a time.
const PER_SOURCE_MAX: usize = 8;
/// Most failures in all; an address has no more of them than are left.
const ALL_MAX: usize = 4096;

/// The source of log-ins: an address, and a name.
///
/// A user is not refused for the failures of others at its address, such as behind one router. That goes for names without a user,
/// too: the answer must not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginSource {
    /// The address, or its network where a client has many.
    pub(super) address: IpAddr,
    /// The name.
    pub(super) name: u64,
}

/// Failed log-ins by source.
#[derive(Debug)]
pub(super) struct FailedLogins {
    /// Drawn at each start: no client knows which names fall together.
    names: RandomState,
    all: FairBudget<IpAddr>,
    failed: Mutex<HashMap<LoginSource, usize>>,
}

impl Default for FailedLogins {
    fn default() -> Self {
        Self { names: RandomState::new(), all: FairBudget::new(ALL_MAX), failed: Mutex::default() }
    }
}

impl FailedLogins {
    /// The source of a log-in.
    pub(super) fn source(&self, address: IpAddr, user: &[u8]) -> LoginSource {
        LoginSource { address: client_key(address), name: self.names.hash_one(user) }
    }

    /// Whether the source may try.
    pub(super) fn may_try(&self, source: LoginSource) -> bool {
        let has_place = self.failed.lock().get(&source).is_none_or(|count| *count < PER_SOURCE_MAX);
        has_place && self.all.try_take(&source.address, 1).is_some()
    }

    /// Counts a failure until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, source: LoginSource) -> FailureGuard {
        // One that began while a place was left counts beyond the last.
        let unit = self.all.try_take_any(&source.address, 1);
        *self.failed.lock().entry(source).or_default() += 1;
        FailureGuard { failed: Arc::clone(self), source, _unit: unit }
    }
}

/// A failure that counts.
#[must_use = "a failure counts as long as this lives"]
pub(super) struct FailureGuard {
    failed: Arc<FailedLogins>,
    source: LoginSource,
    _unit: Option<HeldUnits<IpAddr>>,
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        let mut failed = self.failed.failed.lock();
        if let Some(count) = failed.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                failed.remove(&self.source);
            }
        }
    }
}

/// The rounds of a new password: the number that OWASP advises for this method.
const ROUNDS: u32 = 600_000;
/// More rounds than this in a stored password are no rounds: one log-in would take minutes.
const ROUNDS_MAX: u32 = 20_000_000;
const METHOD: &str = "pbkdf2-sha256";
/// Bytes of a salt.
pub(super) const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Hashes a password. It takes some tenths of a second of a processor.
#[must_use]
pub(super) fn hashed(password: &[u8], salt: [u8; SALT_BYTES]) -> String {
    let mut hash = [0; HASH_BYTES];
    derive(PBKDF2_HMAC_SHA256, NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN), &salt, password, &mut hash);
    format!("${METHOD}${ROUNDS}${}${}", hex(&salt), hex(&hash))
}

/// Whether a password is the one of a stored form, in constant time. Without a stored form it takes as long, and is not: an
/// answer must not tell which users exist.
#[must_use]
pub(super) fn is_password(stored: Option<&str>, password: &[u8]) -> bool {
    let parsed = stored.and_then(parse);
    let is_there = parsed.is_some();
    let (rounds, salt, hash) = parsed.unwrap_or((
        NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN),
        vec![0; SALT_BYTES],
        vec![0; HASH_BYTES],
    ));
    verify(PBKDF2_HMAC_SHA256, rounds, &salt, password, &hash).is_ok() && is_there
}

/// Passwords that are hashed at a time: half of the processors, so that requests go on.
pub(super) fn hashes_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

fn parse(stored: &str) -> Option<(NonZeroU32, Vec<u8>, Vec<u8>)> {
    let [method, rounds, salt, hash] = stored.strip_prefix('$')?.split('$').collect::<Vec<_>>().try_into().ok()?;
    let rounds = rounds.parse().ok().filter(|rounds| *rounds <= ROUNDS_MAX).and_then(NonZeroU32::new)?;
    let hash = unhex(hash).filter(|hash| hash.len() == HASH_BYTES)?;
    (method == METHOD).then_some((rounds, unhex(salt)?, hash))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let pairs = digits?;
    let (pairs, []) = pairs.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

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
    fn a_source_has_few_failures_at_a_time() {
        let failed = Arc::new(FailedLogins::default());
        let [client, near, far, v4] = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "127.0.0.1"]
            .map(|address| failed.source(address.parse().unwrap(), b"u"));
        let guards: Vec<_> = (0..PER_SOURCE_MAX).map(|_| failed.begin(client)).collect();
        assert_eq!([client, near, far, v4].map(|source| failed.may_try(source)), [false, false, true, true]);
        drop(guards);
        assert!(failed.may_try(client) && failed.failed.lock().is_empty());
    }

    #[test]
    fn wrong_log_ins_of_one_user_once_refused_the_others_of_its_address() {
        let failed = Arc::new(FailedLogins::default());
        let of = |user: usize| failed.source("192.0.2.1".parse().unwrap(), format!("user {user}").as_bytes());
        let _guards: Vec<_> = (0..PER_SOURCE_MAX).map(|_| failed.begin(of(0))).collect();
        assert!(!failed.may_try(of(0)));
        // Names once fell together with one of 64: so many of the others were refused, too.
        assert!((1..1000).all(|user| failed.may_try(of(user))));
    }

    #[test]
    fn failures_of_one_address_leave_places_for_others() {
        let failed = Arc::new(FailedLogins::default());
        let of = |address: u32, user: usize| failed.source(IpAddr::V4(address.into()), &user.to_be_bytes());
        let tried = |address| (0..ALL_MAX).map(move |user| (address, user));
        let fill = |address| {
            let may_try = tried(address).take_while(|(address, user)| failed.may_try(of(*address, *user)));
            may_try.map(|(address, user)| failed.begin(of(address, user))).collect::<Vec<_>>()
        };
        let (first, second) = (fill(1), fill(2));
        assert_eq!((first.len(), second.len()), (ALL_MAX / 2, ALL_MAX / 4));
        assert!(!failed.may_try(of(1, ALL_MAX)) && failed.may_try(of(3, 0)));
        drop((first, second));
        assert!(failed.may_try(of(1, 0)) && failed.failed.lock().is_empty());
    }
}

#[cfg(test)]
mod password_tests {
    use super::*;

    #[test]
    fn a_password_is_recognized_and_no_other() {
        let stored = hashed("geheim ü".as_bytes(), [7; SALT_BYTES]);
        assert!(stored.starts_with("$pbkdf2-sha256$600000$0707") && !stored.contains("geheim"), "{stored}");
        assert!(is_password(Some(&stored), "geheim ü".as_bytes()));
        assert!(!is_password(Some(&stored), b"geheim"));
        assert!(!is_password(None, b""));
    }

    #[test]
    fn the_golden_form_still_counts_and_forms_of_other_kinds_never() {
        // From RFC 7914 §11: two rounds would do, so that this test is quick; 80000 rounds are its second vector.
        let hash = "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56";
        let golden = format!("$pbkdf2-sha256$80000${}${hash}", hex(b"NaCl"));
        assert!(is_password(Some(&golden), b"Password"));
        for damaged in ["", "$", "$pbkdf2-sha1$1$00$00", "$pbkdf2-sha256$0$00$00", &golden[..golden.len() - 1]] {
            assert!(parse(damaged).is_none(), "{damaged}");
        }
        assert!(parse(&golden.replace("80000", "99999999")).is_none(), "too many rounds");
    }
}

#[cfg(test)]
mod verified_passwords_tests {
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
