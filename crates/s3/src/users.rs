//! Users of the S3 interface: rows of one guarded partition, found by access key, cached for two seconds.
//!
//! ```text
//! ""            the head: every change of users rewrites it, so a compare-and-set on it detects concurrent changes
//! u <id>        a user with all its keys    k <access key id>  e <e-mail>    the canonical id of its user
//! a             the canonical id of the admin created at the first start
//! p <name>      a policy    g <name>      a group, with its policies    t   the key that seals the tokens of sessions
//! ```
//! A user's row names its policies and groups, which are read where the user is found by a key, and kept as long: a request of a user
//! without policies costs no read more.
//!
//! Race: one gateway deletes a policy or a group, while another attaches it or adds a member. Both change the head [invariant 177].

mod attachments;
mod cache;
mod caller_policies;
mod groups;
mod keys;
mod policies;
mod sessions;
mod transaction;

#[cfg(test)]
mod iam_tests;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use larder_core::Core;
use larder_core::node_context::NodeContext;
use larder_core::types::CatalogueCopy;
use larder_store::Stopped;

use super::{Error, Result};
use crate::catalogue::S3Catalogue;
use crate::rules::User;
use crate::rules::session_token::TokenKey;
use crate::rules::user::{canonical_id, display_name, is_valid_email, new_key_id, new_secret};
use cache::{ParsedPolicies, UserCache};
use transaction::{ADMIN, EMAIL, KEY, USER, UsersTransaction, decode_user};

pub use attachments::{AttachmentChange, PolicyHolder};
pub use keys::{KeyHolder, NewKey};
pub use policies::NamedPolicy;
pub use sessions::{SessionCredentials, SessionKey};

const ATTEMPTS_MAX: usize = 50;
const PAGE_ROWS: usize = 1000;
/// Longest name of a user, and longest given access key id or secret, in bytes.
const NAME_BYTES_MAX: usize = 1024;
const KEY_BYTES_MAX: usize = 256;
/// The name of the first admin, and its e-mail address if free.
const ADMIN_NAME: &str = "admin";
const ADMIN_EMAIL: &str = "admin@localhost";

/// A change of a user; `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserChange {
    /// Free text.
    pub name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Whether the user's requests are accepted.
    pub enabled: Option<bool>,
    /// Whether to make a new secret.
    pub new_secret: bool,
}

/// A user to be created.
#[derive(Debug, Clone, Default)]
pub struct NewUser {
    /// E-mail address.
    pub email: String,
    /// Free text.
    pub name: String,
    /// Whether it administers users and is allowed everything.
    pub admin: bool,
    /// Access key id and secret; random ones without.
    pub key: Option<(String, String)>,
    /// Canonical id, 64 hexadecimal digits; a random one without.
    pub id: Option<String>,
    /// Whether its requests are refused until it is enabled.
    pub disabled: bool,
    /// Whether its creator is anonymous: no right follows from its name and address.
    pub self_registered: bool,
}

/// The users of the S3 interface.
pub struct Users {
    context: Arc<NodeContext>,
    catalogue: Arc<CatalogueCopy>,
    cache: UserCache,
    parsed: ParsedPolicies,
    /// The key that seals tokens, which never changes.
    token_key: OnceLock<TokenKey>,
}

impl Users {
    /// The users in the store of `gateway`.
    pub(super) fn new(gateway: &Core) -> Self {
        let (context, catalogue) = (Arc::clone(gateway.context()), Arc::clone(gateway.catalogue()));
        Self {
            context,
            catalogue,
            cache: UserCache::default(),
            parsed: ParsedPolicies::default(),
            token_key: OnceLock::new(),
        }
    }

    /// Creates a user with a new key. `key`: access key id and secret to use instead of random ones.
    ///
    /// # Errors
    /// As [`Self::create_user`].
    pub async fn create(
        &self,
        email: &str,
        name: &str,
        admin: bool,
        key: Option<(String, String)>,
    ) -> Result<Arc<User>> {
        let (email, name) = (email.to_owned(), name.to_owned());
        self.create_user(NewUser { email, name, admin, key, ..NewUser::default() }).await
    }

    /// Creates a user.
    ///
    /// # Errors
    /// `UserExists`, `InvalidUser`.
    pub async fn create_user(&self, new: NewUser) -> Result<Arc<User>> {
        check_email(&new.email)?;
        check_name(&new.name)?;
        check_key(new.key.as_ref())?;
        new.id.as_deref().map_or(Ok(()), check_id)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            if self.find(EMAIL, &new.email).await?.is_some() {
                return Err(Error::UserExists);
            }
            let user = self.new_user(&new);
            // A policy names users by key id and by canonical id: neither may be one of the other kind.
            if new.id.is_some()
                && (self.find(USER, &user.id).await?.is_some() || self.find(KEY, &user.id).await?.is_some())
            {
                return Err(invalid("The canonical id is taken."));
            }
            if self.find(KEY, &user.key_id).await?.is_some() || self.find(USER, &user.key_id).await?.is_some() {
                if new.key.is_some() {
                    return Err(key_taken());
                }
                // A random key id that is taken: the next round draws another.
                continue;
            }
            transaction.put_user(None, &user);
            if transaction.commit().await? {
                return Ok(Arc::new(user));
            }
        }
        Err(busy())
    }

    /// The user of an access key, at most two seconds old; it may be disabled.
    ///
    /// # Errors
    /// `UnknownKey`.
    pub async fn find_by_key(&self, key_id: &str) -> Result<Arc<User>> {
        Ok(self.key_holder(key_id).await?.user)
    }

    /// The user of a canonical id.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn find_by_id(&self, id: &str) -> Result<Option<Arc<User>>> {
        Ok(self.find(USER, id).await?.map(Arc::new))
    }

    /// The user of an e-mail address.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn find_by_email(&self, email: &str) -> Result<Option<Arc<User>>> {
        Ok(self.find(EMAIL, email).await?.filter(|user| user.email == email).map(Arc::new))
    }

    /// The administrator; `None` before the first start of the S3 interface.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn admin(&self) -> Result<Option<Arc<User>>> {
        Ok(self.find(ADMIN, "").await?.map(Arc::new))
    }

    /// A page of users after this canonical id, at most `max`.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn list(&self, after: &str, max: usize) -> Result<Vec<Arc<User>>> {
        let mut users: Vec<Arc<User>> = Vec::new();
        while users.len() < max {
            let after = users.last().map_or(after, |user| &user.id);
            let page = self.page(USER, after, (max - users.len()).min(PAGE_ROWS)).await?;
            for row in &page.rows {
                users.push(Arc::new(decode_user(&row.value)?));
            }
            if page.stopped == Stopped::End {
                break;
            }
        }
        Ok(users)
    }

    /// Changes a user.
    ///
    /// # Errors
    /// `UnknownKey`, `UserExists`, `InvalidUser`.
    pub async fn update(&self, key_id: &str, change: UserChange) -> Result<Arc<User>> {
        change.email.as_deref().map_or(Ok(()), check_email)?;
        change.name.as_deref().map_or(Ok(()), check_name)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            let before = user_with_key(self.find(KEY, key_id).await?, key_id)?;
            if change.new_secret && before.key_id != key_id {
                return Err(invalid("This is a further key of its user: revoke it, and create another."));
            }
            let user = self.apply_change(before.clone(), &change);
            if user.email != before.email && self.find(EMAIL, &user.email).await?.is_some() {
                return Err(Error::UserExists);
            }
            if user == before {
                return Ok(Arc::new(user));
            }
            transaction.put_user(Some(&before), &user);
            if transaction.commit().await? {
                return Ok(Arc::new(user));
            }
        }
        Err(busy())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `UnknownKey`, `UserHasBuckets`.
    pub async fn delete(&self, key_id: &str) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            let user = user_with_key(self.find(KEY, key_id).await?, key_id)?;
            // Race: the user may have created a bucket through another gateway just now.
            let catalogue = self.catalogue.refreshed().await?;
            if S3Catalogue::within(&catalogue).owned(&user.id) > 0 {
                return Err(Error::UserHasBuckets);
            }
            transaction.remove_user(&user);
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Ensures that there is an admin: creates one at the first start, and sets its key to `fixed` if given. Returns
    /// the user, and whether it is new.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn ensure_admin(&self, fixed: Option<(String, String)>) -> Result<(Arc<User>, bool)> {
        check_key(fixed.as_ref())?;
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            let before = self.find(ADMIN, "").await?;
            let user = match (&before, fixed.clone()) {
                (Some(before), Some((key_id, secret))) => {
                    // The operator who sets the key needs access, even if the user was disabled.
                    let mut user = User { key_id, secret, enabled: true, admin: true, ..before.clone() };
                    user.further_keys.retain(|key| key.id != user.key_id);
                    user
                }
                (Some(before), None) => before.clone(),
                (None, key) => {
                    let (email, name) = (ADMIN_EMAIL.to_owned(), ADMIN_NAME.to_owned());
                    let new = NewUser { email, name, admin: true, key, ..NewUser::default() };
                    let mut user = self.new_user(&new);
                    if self.find(EMAIL, ADMIN_EMAIL).await?.is_some() {
                        user.email = format!("{ADMIN_NAME}@{}", user.id);
                    }
                    user
                }
            };
            if before.as_ref() == Some(&user) {
                return Ok((Arc::new(user), false));
            }
            if self.find(KEY, &user.key_id).await?.is_some_and(|other| other.id != user.id) {
                // Race: another starting gateway may have created the admin since the read above.
                if self.find(ADMIN, "").await? != before {
                    continue;
                }
                return Err(key_taken());
            }
            transaction.put_user(before.as_ref(), &user);
            transaction.set_admin(&user);
            if transaction.commit().await? {
                return Ok((Arc::new(user), before.is_none()));
            }
        }
        Err(busy())
    }

    /// The display name of a canonical id: the user's, or the id itself.
    pub async fn display_name(&self, id: &str) -> String {
        let miss = match self.cache.names.get(id, self.context.monotonic()) {
            Ok(name) => return name,
            Err(miss) => miss,
        };
        match self.find(USER, id).await {
            Ok(user) => {
                let name = user.map_or_else(|| id.to_owned(), |user| user.display_name);
                self.cache.names.insert(id, miss, name.clone());
                name
            }
            Err(error) => {
                tracing::debug!(%error, "read of a user's display name failed; the id is shown instead");
                id.to_owned()
            }
        }
    }

    fn new_user(&self, new: &NewUser) -> User {
        let (key_id, secret) = new.key.clone().unwrap_or_else(|| (new_key_id(&self.random()), self.new_secret()));
        User {
            id: new.id.clone().unwrap_or_else(|| canonical_id(&key_id, &self.random::<16>())),
            key_id,
            secret,
            name: new.name.clone(),
            email: new.email.clone(),
            display_name: display_name(&new.email).to_owned(),
            enabled: !new.disabled,
            admin: new.admin,
            created: self.context.now(),
            self_registered: new.self_registered,
            further_keys: Vec::new(),
            policies: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn apply_change(&self, mut user: User, change: &UserChange) -> User {
        if let Some(name) = &change.name {
            user.name.clone_from(name);
        }
        if let Some(email) = &change.email {
            user.email.clone_from(email);
            display_name(email).clone_into(&mut user.display_name);
        }
        if change.new_secret {
            user.secret = self.new_secret();
        }
        user.enabled = change.enabled.unwrap_or(user.enabled);
        user
    }

    fn new_secret(&self) -> String {
        new_secret(&self.random())
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.context.ports.random)(&mut bytes);
        bytes
    }
}

/// Checks a user found by key. Race: the key row and the user row may be from before and after a change of the key.
fn user_with_key(user: Option<User>, key_id: &str) -> Result<User> {
    user.filter(|user| user.key_ids().any(|key| key == key_id)).ok_or_else(|| Error::UnknownKey(key_id.to_owned()))
}

fn check_email(email: &str) -> Result<()> {
    if is_valid_email(email) {
        Ok(())
    } else {
        Err(invalid("The e-mail address is not valid: it is NAME@HOST, without blanks."))
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(invalid("The name of a user has 1 to 1024 bytes."));
    }
    Ok(())
}

/// A given canonical id has the form of a generated one.
fn check_id(id: &str) -> Result<()> {
    if id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(invalid("A canonical id has 64 hexadecimal digits in lower case."))
}

/// Given keys may have any form that fits a header.
fn check_key(key: Option<&(String, String)>) -> Result<()> {
    let fits = |text: &str| (1..=KEY_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    match key {
        Some((key_id, secret)) if !fits(key_id) || !fits(secret) => {
            Err(invalid("Access key id and secret have 1 to 256 bytes and no control characters."))
        }
        _ => Ok(()),
    }
}

fn key_taken() -> Error {
    invalid("The access key id is taken.")
}

fn invalid(text: &str) -> Error {
    Error::InvalidUser(text.to_owned())
}

fn busy() -> Error {
    larder_core::Error::Overloaded { retry_after: 1 }.into()
}
