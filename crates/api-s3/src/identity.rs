//! From a signature to the user who made it.

use std::sync::Arc;

use larder_gateway::objects::{Error, Objects};
use larder_model::objects::User;

use crate::auth::{self, Checked, Claim, Request, Scheme};
use crate::errors::{Fault, gateway};

/// Who signed a request, if anybody did.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The user; nobody: anonymous.
    pub user: Option<Arc<User>>,
    /// What was found about the signature.
    pub checked: Option<Checked>,
}

impl Identity {
    /// How it was signed.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.checked.as_ref().map(|checked| checked.scheme)
    }
}

/// Reads and checks the signature of a request.
///
/// # Errors
/// Whatever is wrong with it; `InvalidAccessKeyId`; `AccessDenied` for a user who is disabled.
pub(crate) async fn of(objects: &Objects, request: &Request<'_>) -> Result<Identity, Fault> {
    let Some(claim) = Claim::of(request)? else { return Ok(Identity::default()) };
    let user = by_key(objects, claim.access_key()).await?;
    let checked = claim.check(request, &user.secret)?;
    let user = enabled(user)?;
    Ok(Identity { user: Some(user), checked: Some(checked) })
}

/// The user of an access key id, enabled or not: whether the signature holds comes first.
///
/// # Errors
/// `InvalidAccessKeyId`, and what the store answers.
pub(crate) async fn by_key(objects: &Objects, access_key: &str) -> Result<Arc<User>, Fault> {
    match objects.user_of_key(access_key).await {
        Ok(user) => Ok(user),
        Err(Error::UnknownKey(_)) => Err(auth::unknown_key(access_key)),
        Err(error) => Err(error.into()),
    }
}

/// The user, who must not be disabled.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn enabled(user: Arc<User>) -> Result<Arc<User>, Fault> {
    if user.enabled { Ok(user) } else { Err(gateway::disabled()) }
}
