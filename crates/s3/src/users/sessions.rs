//! Sessions: temporary keys of a user, narrowed by a policy. The token that its client keeps is all that there is of a session.

use std::fmt;
use std::sync::Arc;

use larder_encryption::BadKey;
use larder_rows::Timestamp;
use larder_rows::limits::SESSION_POLICY_BYTES_MAX;

use super::transaction::{TOKEN_KEY, UsersTransaction, content};
use super::{ATTEMPTS_MAX, KeyHolder, Users, busy};
use crate::rules::policy::{CallerPolicies, IdentityPolicy};
use crate::rules::session_token::{Session, TokenKey, new_session_key_id};
use crate::{Error, Result};

/// The temporary key of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// Access key id.
    pub key_id: String,
    /// Secret access key.
    pub secret: String,
    /// The time from which on it is refused.
    pub expires: Timestamp,
}

/// What a client gets of a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCredentials {
    /// The key.
    pub key: SessionKey,
    /// The token, which each request shows.
    pub token: String,
}

/// Shows all fields but the secret, which must not get into a log.
impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKey")
            .field("key_id", &self.key_id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl SessionKey {
    /// Whether it has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires <= now
    }
}

impl Users {
    /// Makes a session of `holder` for so many seconds, or until its key expires, narrowed by this policy.
    ///
    /// # Errors
    /// `MalformedPolicy`; `AccessDenied` for a holder that is a session itself; errors of the store.
    pub async fn create_session(
        &self,
        holder: &KeyHolder,
        seconds: u64,
        policy: Option<String>,
    ) -> Result<SessionCredentials> {
        if holder.session().is_some() {
            return Err(Error::AccessDenied);
        }
        if let Some(document) = &policy {
            check_session_policy(document)?;
        }
        let key = self.ensure_token_key().await?;
        let end = self.context.now().saturating_add(seconds.saturating_mul(1_000_000));
        let key_end = holder.further.as_ref().and_then(|further| further.key.limits.expires);
        let expires = key_end.map_or(end, |key_end| key_end.min(end));
        let key_id = new_session_key_id(&self.random());
        let session = Session {
            user: holder.user.id.clone(),
            key: holder.key_id().to_owned(),
            maker: key.maker_mark(holder.key_secret()).map_err(unusable_key)?,
            expires,
            policy,
        };
        let token = key.seal_session(&key_id, self.random(), &session).map_err(unusable_key)?;
        let secret = key.session_secret(&key_id).map_err(unusable_key)?;
        Ok(SessionCredentials { key: SessionKey { key_id, secret, expires }, token })
    }

    /// The holder of the temporary key of a token, at most two seconds old; the user may be disabled and the session expired.
    ///
    /// It has the policies and limits that the key has now with which it was made: without that key, or with another secret of it,
    /// the session has ended [invariant 179].
    ///
    /// # Errors
    /// `InvalidToken`, and errors of the store.
    pub async fn session_holder(&self, key_id: &str, token: &str) -> Result<KeyHolder> {
        let key = self.token_key().await?.ok_or(Error::InvalidToken)?;
        let session = key.open_session(key_id, token).map_err(|BadKey| Error::InvalidToken)?;
        let maker = match self.key_holder(&session.key).await {
            Err(Error::UnknownKey(_)) => return Err(Error::InvalidToken),
            maker => maker?,
        };
        let mark = key.maker_mark(maker.key_secret()).map_err(unusable_key)?;
        if maker.user.id != session.user || mark != session.maker {
            return Err(Error::InvalidToken);
        }
        let policies = match &session.policy {
            None => maker.policies.clone(),
            Some(document) => Some(Arc::new(narrowed(maker.policies.as_deref(), document)?)),
        };
        let secret = key.session_secret(key_id).map_err(unusable_key)?;
        let session = SessionKey { key_id: key_id.to_owned(), secret, expires: session.expires };
        Ok(KeyHolder { policies, session: Some(Arc::new(session)), ..maker })
    }

    /// The key that seals tokens; `None` before the first session of the store.
    async fn token_key(&self) -> Result<Option<TokenKey>> {
        if let Some(key) = self.token_key.get() {
            return Ok(Some(*key));
        }
        let Some(row) = self.named_row(TOKEN_KEY, "").await? else { return Ok(None) };
        let bytes: [u8; 32] = content(&row.value)?
            .as_ref()
            .try_into()
            .map_err(|_| larder_core::Error::Damaged("the key of session tokens".to_owned()))?;
        Ok(Some(*self.token_key.get_or_init(|| TokenKey::new(bytes))))
    }

    async fn ensure_token_key(&self) -> Result<TokenKey> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(key) = self.token_key().await? {
                return Ok(key);
            }
            // Race: another gateway may make it now. Its commit changes the head, and the next round reads it.
            let mut transaction = UsersTransaction::begin(self).await?;
            if self.token_key().await?.is_none() {
                transaction.put_row(TOKEN_KEY, "", &self.random::<32>());
                transaction.commit().await?;
            }
        }
        Err(busy())
    }
}

/// Refuses what is no policy of a session.
fn check_session_policy(document: &str) -> Result<()> {
    if document.len() > SESSION_POLICY_BYTES_MAX {
        let message = format!("The policy of a session has at most {SESSION_POLICY_BYTES_MAX} bytes.");
        return Err(Error::MalformedPolicy(message));
    }
    IdentityPolicy::parse_new(document).map(drop).map_err(|error| Error::MalformedPolicy(error.message))
}

/// The policies of a key, narrowed by that of a session.
fn narrowed(policies: Option<&CallerPolicies>, document: &str) -> Result<CallerPolicies> {
    let damaged = |error| larder_core::Error::Damaged(format!("policy of a session: {error}"));
    let policy = IdentityPolicy::parse(document).map_err(damaged)?;
    let mut policies = policies.cloned().unwrap_or_default();
    policies.narrowing.push(Arc::new(policy));
    Ok(policies)
}

fn unusable_key(_: BadKey) -> Error {
    larder_core::Error::Internal("a key of session tokens cannot be derived".to_owned()).into()
}
