//! Log-ins: a user proves to be it by the method of the source that it comes from.
//!
//! Passwords are hashed beside the threads of requests, few at a time, and a right one is cached. A failure is answered after five
//! seconds whatever its reason, so that guesses are slow and tell nothing; [`super::failed_logins`] bounds them by source. Addresses
//! have their passwords hashed in turn, and so have the names of one: who guesses keeps no other from its log-in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_rows::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

use super::Security;
use super::password::{SALT_BYTES, hashed, is_password};
use super::verified_passwords::LoginTag;
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
        let source = user.and_then(|(_, entry)| rules.source_of(entry, login.address));
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
            self.verify(login, (&tag, number), stored, begun + FAILURE_PAUSE).await?
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
        (tag, number): (&LoginTag, Option<Timestamp>),
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
        (self.core.ports.random)(&mut salt);
        let hashed = spawn_blocking(move || hashed(password.as_bytes(), salt)).await;
        hashed.map(Some).map_err(|error| Error::Internal(error.to_string()))
    }
}
