//! Access keys of users: the holder of a key, and the further keys beside a user's first one.

use std::sync::Arc;

use larder_rows::Timestamp;

use super::transaction::{KEY, USER, UsersTransaction};
use super::{ATTEMPTS_MAX, SessionKey, Users, busy, check_key, invalid, key_taken, user_with_key};
use crate::rules::bucket::is_valid_bucket_name;
use crate::rules::policy::{CallerPolicies, IdentityPolicy};
use crate::rules::user::{FURTHER_KEYS_MAX, new_key_id};
use crate::rules::{AccessKey, KeyLimits, User};
use crate::{Error, Result};

/// A user, as the holder of one of its keys, or of a session.
#[derive(Debug, Clone)]
pub struct KeyHolder {
    /// The user.
    pub user: Arc<User>,
    /// The key, if it is not the user's first one.
    pub(super) further: Option<Arc<FurtherKey>>,
    /// The policies of the user, the key and the session; `None` without any.
    pub(super) policies: Option<Arc<CallerPolicies>>,
    /// The temporary key, if one signs in the place of the key.
    pub(super) session: Option<Arc<SessionKey>>,
}

/// A further key with the policy of its limits.
#[derive(Debug)]
pub(super) struct FurtherKey {
    pub(super) key: AccessKey,
    policy: Arc<IdentityPolicy>,
}

/// A further key to be created; random ones replace an id or a secret that is not given.
#[derive(Default)]
pub struct NewKey {
    /// Access key id.
    pub id: Option<String>,
    /// Secret access key.
    pub secret: Option<String>,
    /// Its limits.
    pub limits: KeyLimits,
}

impl FurtherKey {
    /// The further key `key_id` of a user; `None` for its first one.
    fn find(user: &User, key_id: &str) -> Result<Option<Arc<Self>>> {
        let further = user.further_keys.iter().find(|key| key.id == key_id).filter(|_| user.key_id != key_id);
        let further = further.map(|key| {
            let policy = IdentityPolicy::from_limits(&key.limits)
                .map_err(|error| larder_core::Error::Damaged(error.to_string()))?;
            Ok::<_, Error>(Arc::new(Self { key: key.clone(), policy: Arc::new(policy) }))
        });
        further.transpose()
    }
}

impl KeyHolder {
    /// The secret that signs.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.session.as_ref().map_or(self.key_secret(), |session| &session.secret)
    }

    /// The secret of the key, also where a session signs.
    pub(super) fn key_secret(&self) -> &str {
        self.further.as_ref().map_or(&self.user.secret, |further| &further.key.secret)
    }

    /// The id of the key; of a session, the key that it was made with.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.further.as_ref().map_or(&self.user.key_id, |further| &further.key.id)
    }

    /// The policies attached to the user, and those that narrow its key and its session; `None` without any.
    #[must_use]
    pub fn policies(&self) -> Option<Arc<CallerPolicies>> {
        self.policies.clone()
    }

    /// The session that signs, if one does.
    #[must_use]
    pub fn session(&self) -> Option<&SessionKey> {
        self.session.as_deref()
    }

    /// Whether it signs with the user's first key, which administers the user.
    #[must_use]
    pub fn is_first_key(&self) -> bool {
        self.further.is_none() && self.session.is_none()
    }

    /// Whether the key has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.further.as_ref().is_some_and(|further| further.key.is_expired(now))
    }
}

impl Users {
    /// The holder of an access key, at most two seconds old; the user may be disabled and the key expired.
    ///
    /// # Errors
    /// `UnknownKey`.
    pub async fn key_holder(&self, key_id: &str) -> Result<KeyHolder> {
        let miss = match self.cache.keys.get(key_id, self.context.monotonic()) {
            Ok(holder) => return Ok(holder),
            Err(miss) => miss,
        };
        let holder = self.holder_of(user_with_key(self.find(KEY, key_id).await?, key_id)?, key_id).await?;
        self.cache.keys.insert(key_id, miss, holder.clone());
        Ok(holder)
    }

    /// The user as the holder of this key, with the policies that both have.
    async fn holder_of(&self, user: User, key_id: &str) -> Result<KeyHolder> {
        let further = FurtherKey::find(&user, key_id)?;
        let attached = self.attached_policies(&user).await?;
        let narrowing: Vec<_> = further.iter().map(|further| Arc::clone(&further.policy)).collect();
        let has_policies = attached.is_some() || !narrowing.is_empty();
        let policies = has_policies.then(|| Arc::new(CallerPolicies { attached, narrowing }));
        Ok(KeyHolder { user: Arc::new(user), further, policies, session: None })
    }

    /// Gives the user of the key `key_id` a further key.
    ///
    /// # Errors
    /// `UnknownKey`; `InvalidUser` for a key that is taken, limits that are none, and more keys than a user may have.
    pub async fn add_key(&self, key_id: &str, new: NewKey) -> Result<(Arc<User>, AccessKey)> {
        self.check_limits(&new.limits)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            let before = user_with_key(self.find(KEY, key_id).await?, key_id)?;
            if before.further_keys.len() >= FURTHER_KEYS_MAX {
                return Err(invalid("A user has at most 20 further keys: revoke one."));
            }
            let key = AccessKey {
                id: new.id.clone().unwrap_or_else(|| new_key_id(&self.random())),
                secret: new.secret.clone().unwrap_or_else(|| self.new_secret()),
                created: self.context.now(),
                limits: new.limits.clone(),
            };
            check_key(Some(&(key.id.clone(), key.secret.clone())))?;
            // A policy names users by both, so a key must not look like the id of another user.
            if self.find(KEY, &key.id).await?.is_some() || self.find(USER, &key.id).await?.is_some() {
                if new.id.is_some() {
                    return Err(key_taken());
                }
                // A random key id that is taken: the next round draws another.
                continue;
            }
            let mut user = before.clone();
            user.further_keys.push(key.clone());
            transaction.put_user(Some(&before), &user);
            if transaction.commit().await? {
                return Ok((Arc::new(user), key));
            }
        }
        Err(busy())
    }

    /// Removes a further key. Requests by it are refused at once here, and within two seconds by other gateways.
    ///
    /// # Errors
    /// `UnknownKey`, and `InvalidUser` for the first key of a user, which ends with the user or its secret.
    pub async fn revoke_key(&self, key_id: &str) -> Result<Arc<User>> {
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            let before = user_with_key(self.find(KEY, key_id).await?, key_id)?;
            if before.key_id == key_id {
                return Err(invalid("This is the user's first key: rotate its secret, or disable the user."));
            }
            let mut user = before.clone();
            user.further_keys.retain(|key| key.id != key_id);
            transaction.put_user(Some(&before), &user);
            if transaction.commit().await? {
                return Ok(Arc::new(user));
            }
        }
        Err(busy())
    }

    fn check_limits(&self, limits: &KeyLimits) -> Result<()> {
        if let Some(name) = limits.buckets.iter().find(|name| !is_valid_bucket_name(name)) {
            return Err(Error::InvalidBucketName(name.clone()));
        }
        if !limits.prefixes.is_empty() && limits.buckets.is_empty() {
            return Err(invalid("A prefix is one of keys in a bucket: name the bucket, too."));
        }
        if limits.prefixes.iter().any(String::is_empty) {
            return Err(invalid("A prefix has at least one character."));
        }
        if limits.expires.is_some_and(|expires| expires <= self.context.now()) {
            return Err(invalid("The time of expiry has passed."));
        }
        IdentityPolicy::from_limits(limits).map(drop).map_err(|error| invalid(&error.message))
    }
}
