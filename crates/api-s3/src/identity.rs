//! The user of a request, by its signature.

use std::sync::Arc;

use larder_gateway::objects::{Error, Objects};
use larder_model::objects::User;

use crate::auth::{self, AuthRequest, AuthScheme, RequestSignature, SigningKeys, VerifiedSignature};
use crate::errors::{S3Error, gateway};

/// The authenticated identity of a request.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The user; `None` if anonymous.
    pub user: Option<Arc<User>>,
    /// The verified signature; `None` if anonymous.
    pub signature: Option<VerifiedSignature>,
}

impl Identity {
    /// How the request was signed.
    pub(crate) fn scheme(&self) -> Option<AuthScheme> {
        self.signature.as_ref().map(|signature| signature.scheme)
    }
}

/// Verifies the signature of a request.
///
/// # Errors
/// The errors of a bad signature; `InvalidAccessKeyId`; `AccessDenied` for a disabled user.
pub(crate) async fn authenticate(
    objects: &Objects,
    keys: &SigningKeys,
    request: &AuthRequest<'_>,
) -> Result<Identity, S3Error> {
    let Some(signature) = RequestSignature::of(request)? else { return Ok(Identity::default()) };
    let user = user_of_key(objects, signature.access_key()).await?;
    let signature = signature.verify(request, &user.secret, keys)?;
    // Only the holder of the secret learns that the user is disabled.
    let user = require_enabled(user)?;
    Ok(Identity { user: Some(user), signature: Some(signature) })
}

/// The user of an access key id, enabled or not. Callers verify the signature before [`require_enabled`].
///
/// # Errors
/// `InvalidAccessKeyId`, and errors of the store.
pub(crate) async fn user_of_key(objects: &Objects, access_key: &str) -> Result<Arc<User>, S3Error> {
    match objects.users.of_key(access_key).await {
        Ok(user) => Ok(user),
        Err(Error::UnknownKey(_)) => Err(auth::unknown_key(access_key)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a disabled user.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn require_enabled(user: Arc<User>) -> Result<Arc<User>, S3Error> {
    if user.enabled { Ok(user) } else { Err(gateway::user_disabled()) }
}
