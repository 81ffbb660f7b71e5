//! Users of the S3 interface: rows of one guarded partition, looked up by access key, remembered for two seconds.
//!
//! ```text
//! ""            the head: every change of users rewrites it, so what a change has read still holds when it is written
//! u <id>        a user            k <access key id>  e <e-mail>    the canonical id of its user
//! a             the canonical id of the admin who was made at the first start
//! ```

mod cache;
mod draft;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_model::objects::User;
use larder_model::objects::user::{canonical_id_of, display_name_of, key_id_of, secret_of, valid_email};
use larder_store::{Level, Order, Partition, Range, ReadQuery, Stopped};

pub use cache::UserCache;
use draft::{ADMIN, Draft, EMAIL, KEY, USER, row_name, user_of};

use super::{Error, Objects, Result};

const ATTEMPTS_MAX: usize = 50;
const PAGE_ROWS: usize = 1000;
/// Longest name of a user in bytes, and longest access key id or secret that may be brought along.
const NAME_BYTES_MAX: usize = 1024;
const KEY_BYTES_MAX: usize = 256;
/// The name of the first admin, and its e-mail address while it is free.
const ADMIN_NAME: &str = "admin";
const ADMIN_EMAIL: &str = "admin@localhost";

/// What changes of a user; `None` stays.
#[derive(Debug, Clone, Default)]
pub struct UserChange {
    /// Free text.
    pub name: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Whether requests are taken.
    pub enabled: Option<bool>,
    /// Whether a new secret is made.
    pub new_secret: bool,
}

impl Objects {
    /// Creates a user with a new key. `key`: access key id and secret to take instead of new ones.
    ///
    /// # Errors
    /// `UserExists`, `InvalidUser`.
    pub async fn create_user(
        &self,
        email: &str,
        name: &str,
        admin: bool,
        key: Option<(String, String)>,
    ) -> Result<Arc<User>> {
        check_email(email)?;
        check_name(name)?;
        check_key(key.as_ref())?;
        for _ in 0..ATTEMPTS_MAX {
            let mut draft = Draft::begin(self).await?;
            if draft.find(EMAIL, email).await?.is_some() {
                return Err(Error::UserExists);
            }
            let user = self.new_user(email, name, admin, key.clone());
            if draft.find(KEY, &user.key_id).await?.is_some() {
                if key.is_some() {
                    return Err(key_taken());
                }
                continue;
            }
            draft.write(None, &user);
            if draft.commit().await? {
                return Ok(Arc::new(user));
            }
        }
        Err(busy())
    }

    /// The user of an access key: at most two seconds old, `enabled` or not.
    ///
    /// # Errors
    /// `UnknownKey`.
    pub async fn user_of_key(&self, key_id: &str) -> Result<Arc<User>> {
        let asked = match self.users.keys.find(key_id, self.gateway.monotonic()) {
            Ok(user) => return Ok(user),
            Err(asked) => asked,
        };
        let user = Arc::new(user_with_key(self.find_user(KEY, key_id).await?, key_id)?);
        self.users.keys.keep(key_id, asked, Arc::clone(&user));
        Ok(user)
    }

    /// The user of a canonical id.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn user_of_id(&self, id: &str) -> Result<Option<Arc<User>>> {
        Ok(self.find_user(USER, id).await?.map(Arc::new))
    }

    /// The user of an e-mail address.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn user_of_email(&self, email: &str) -> Result<Option<Arc<User>>> {
        Ok(self.find_user(EMAIL, email).await?.filter(|user| user.email == email).map(Arc::new))
    }

    /// A page of users behind this canonical id, at most `max`.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn list_users(&self, after: &str, max: usize) -> Result<Vec<Arc<User>>> {
        let mut users: Vec<Arc<User>> = Vec::new();
        while users.len() < max {
            let after = users.last().map_or(after, |user| &user.id);
            let from = if after.is_empty() { row_name(USER, "") } else { row_name(USER, &format!("{after}\0")) };
            let range = Range { from: Some(from), to: Some(Bytes::from_static(&[USER + 1])) };
            let limit = (max - users.len()).min(PAGE_ROWS);
            let query = ReadQuery { range, limit, order: Order::Forward };
            let options = self.gateway.own(Level::Quorum);
            let page = self.gateway.ports.store.read(&Partition::users(), &query, &options).await?;
            for row in &page.rows {
                users.push(Arc::new(user_of(&row.value)?));
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
    pub async fn update_user(&self, key_id: &str, change: UserChange) -> Result<Arc<User>> {
        change.email.as_deref().map_or(Ok(()), check_email)?;
        change.name.as_deref().map_or(Ok(()), check_name)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut draft = Draft::begin(self).await?;
            let before = user_with_key(draft.find(KEY, key_id).await?, key_id)?;
            let user = self.changed(before.clone(), &change);
            if user.email != before.email && draft.find(EMAIL, &user.email).await?.is_some() {
                return Err(Error::UserExists);
            }
            if user == before {
                return Ok(Arc::new(user));
            }
            draft.write(Some(&before), &user);
            if draft.commit().await? {
                return Ok(Arc::new(user));
            }
        }
        Err(busy())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `UnknownKey`, `UserHasBuckets`.
    pub async fn delete_user(&self, key_id: &str) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let mut draft = Draft::begin(self).await?;
            let user = user_with_key(draft.find(KEY, key_id).await?, key_id)?;
            self.gateway.refresh().await?;
            let catalogue = self.gateway.fresh().await?;
            if catalogue.s3_owned(&user.id) > 0 {
                return Err(Error::UserHasBuckets);
            }
            draft.erase(&user);
            if draft.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// The admin's key: made at the first start, taken from `fixed` when given. Answers the user, and whether it was made now.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn ensure_admin(&self, fixed: Option<(String, String)>) -> Result<(Arc<User>, bool)> {
        check_key(fixed.as_ref())?;
        for _ in 0..ATTEMPTS_MAX {
            let mut draft = Draft::begin(self).await?;
            let before = draft.find(ADMIN, "").await?;
            let user = match (&before, fixed.clone()) {
                (Some(before), Some((key_id, secret))) => {
                    // Who sets the key wants to get in, whatever became of the user meanwhile.
                    User { key_id, secret, enabled: true, admin: true, ..before.clone() }
                }
                (Some(before), None) => before.clone(),
                (None, key) => {
                    let mut user = self.new_user(ADMIN_EMAIL, ADMIN_NAME, true, key);
                    if draft.find(EMAIL, ADMIN_EMAIL).await?.is_some() {
                        user.email = format!("{ADMIN_NAME}@{}", user.id);
                    }
                    user
                }
            };
            if before.as_ref() == Some(&user) {
                return Ok((Arc::new(user), false));
            }
            if draft.find(KEY, &user.key_id).await?.is_some_and(|other| other.id != user.id) {
                // Another gateway that starts now may have made the admin since the look above.
                if draft.find(ADMIN, "").await? != before {
                    continue;
                }
                return Err(key_taken());
            }
            draft.write(before.as_ref(), &user);
            draft.name_admin(&user);
            if draft.commit().await? {
                return Ok((Arc::new(user), before.is_none()));
            }
        }
        Err(busy())
    }

    /// The name to show for a canonical id: the user's, or the id itself.
    pub async fn display_name(&self, id: &str) -> String {
        let asked = match self.users.names.find(id, self.gateway.monotonic()) {
            Ok(name) => return name,
            Err(asked) => asked,
        };
        match self.find_user(USER, id).await {
            Ok(found) => {
                let name = found.map_or_else(|| id.to_owned(), |user| user.display_name);
                self.users.names.keep(id, asked, name.clone());
                name
            }
            Err(error) => {
                tracing::debug!(%error, "the name of a user could not be read");
                id.to_owned()
            }
        }
    }

    fn new_user(&self, email: &str, name: &str, admin: bool, key: Option<(String, String)>) -> User {
        let (key_id, secret) = key.unwrap_or_else(|| (key_id_of(&self.random()), self.new_secret()));
        User {
            id: canonical_id_of(&key_id, &self.random::<16>()),
            key_id,
            secret,
            name: name.to_owned(),
            email: email.to_owned(),
            display_name: display_name_of(email).to_owned(),
            enabled: true,
            admin,
            created: self.gateway.now(),
        }
    }

    fn changed(&self, mut user: User, change: &UserChange) -> User {
        if let Some(name) = &change.name {
            user.name.clone_from(name);
        }
        if let Some(email) = &change.email {
            user.email.clone_from(email);
            display_name_of(email).clone_into(&mut user.display_name);
        }
        if change.new_secret {
            user.secret = self.new_secret();
        }
        user.enabled = change.enabled.unwrap_or(user.enabled);
        user
    }

    fn new_secret(&self) -> String {
        secret_of(&self.random())
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.gateway.ports.random)(&mut bytes);
        bytes
    }
}

/// What was found for a key: its row and the user may have been read before and after a change of the key.
fn user_with_key(found: Option<User>, key_id: &str) -> Result<User> {
    found.filter(|user| user.key_id == key_id).ok_or_else(|| Error::UnknownKey(key_id.to_owned()))
}

fn check_email(email: &str) -> Result<()> {
    if valid_email(email) { Ok(()) } else { Err(invalid("The e-mail address is none.")) }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(invalid("The name of a user has 1 to 1024 bytes."));
    }
    Ok(())
}

/// Keys that are brought along may have any form that fits a header.
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
    invalid("The access key id is another user's.")
}

fn invalid(text: &str) -> Error {
    Error::InvalidUser(text.to_owned())
}

fn busy() -> Error {
    crate::Error::Overloaded { retry_after: 1 }.into()
}
