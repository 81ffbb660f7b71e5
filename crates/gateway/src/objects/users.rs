//! Users of the S3 interface: rows of one guarded partition, looked up by access key, remembered for two seconds.

use std::sync::Arc;

use larder_model::objects::User;

use super::{Objects, Result};

/// Users by access key id, each with the time it was read.
#[derive(Debug, Default)]
pub struct UserCache;

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
        unimplemented!()
    }

    /// The user of an access key: at most two seconds old, `enabled` or not.
    ///
    /// # Errors
    /// `UnknownKey`.
    pub async fn user_of_key(&self, key_id: &str) -> Result<Arc<User>> {
        unimplemented!()
    }

    /// The user of a canonical id.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn user_of_id(&self, id: &str) -> Result<Option<Arc<User>>> {
        unimplemented!()
    }

    /// The user of an e-mail address.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn user_of_email(&self, email: &str) -> Result<Option<Arc<User>>> {
        unimplemented!()
    }

    /// A page of users behind this canonical id, at most `max`.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn list_users(&self, after: &str, max: usize) -> Result<Vec<Arc<User>>> {
        unimplemented!()
    }

    /// Changes a user.
    ///
    /// # Errors
    /// `UnknownKey`, `UserExists`, `InvalidUser`.
    pub async fn update_user(&self, key_id: &str, change: UserChange) -> Result<Arc<User>> {
        unimplemented!()
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `UnknownKey`, `UserHasBuckets`.
    pub async fn delete_user(&self, key_id: &str) -> Result<()> {
        unimplemented!()
    }

    /// The admin's key: made at the first start, taken from `fixed` when given. Answers the user, and whether it was made now.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn ensure_admin(&self, fixed: Option<(String, String)>) -> Result<(Arc<User>, bool)> {
        unimplemented!()
    }

    /// The name to show for a canonical id: the user's, or the id itself.
    pub async fn display_name(&self, id: &str) -> String {
        unimplemented!()
    }
}
