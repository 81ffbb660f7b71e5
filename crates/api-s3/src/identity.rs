//! The user of a request, by its signature.

use std::sync::Arc;

use larder_rows::Timestamp;
use larder_s3::rules::User;
use larder_s3::rules::policy::KeyPolicy;
use larder_s3::users::KeyHolder;
use larder_s3::{Error, Objects};

use crate::auth::{self, AuthRequest, AuthScheme, RequestSignature, SigningKeys, VerifiedSignature};
use crate::errors::{Code, S3Error, gateway};

/// The authenticated identity of a request.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The user, as the holder of the key that signed; `None` if anonymous.
    pub holder: Option<KeyHolder>,
    /// The verified signature; `None` if anonymous.
    pub signature: Option<VerifiedSignature>,
}

impl Identity {
    /// The user; `None` if anonymous.
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.holder.as_ref().map(|holder| &holder.user)
    }

    /// The policy of the key that signed; `None` for a user's first key.
    pub(crate) fn key_policy(&self) -> Option<Arc<KeyPolicy>> {
        self.holder.as_ref().and_then(KeyHolder::policy)
    }

    /// How the request was signed.
    pub(crate) fn scheme(&self) -> Option<AuthScheme> {
        self.signature.as_ref().map(|signature| signature.scheme)
    }
}

/// Verifies the signature of a request.
///
/// # Errors
/// The errors of a bad signature; `InvalidAccessKeyId`; `AccessDenied` for a disabled user or an expired key.
pub(crate) async fn authenticate(
    objects: &Objects,
    keys: &SigningKeys,
    request: &AuthRequest<'_>,
) -> Result<Identity, S3Error> {
    let Some(signature) = RequestSignature::from_request(request)? else { return Ok(Identity::default()) };
    let holder = holder_of_key(objects, signature.access_key()).await?;
    let signature = signature.verify(request, holder.secret(), keys)?;
    // Only the holder of the secret learns that the user is disabled.
    let holder = require_usable(holder, request.now)?;
    Ok(Identity { holder: Some(holder), signature: Some(signature) })
}

/// The holder of an access key id, usable or not. Callers verify the signature before [`require_usable`].
///
/// # Errors
/// `InvalidAccessKeyId`, and errors of the store.
pub(crate) async fn holder_of_key(objects: &Objects, access_key: &str) -> Result<KeyHolder, S3Error> {
    match objects.users.holder_of(access_key).await {
        Ok(holder) => Ok(holder),
        Err(Error::UnknownKey(_)) => Err(auth::unknown_key(access_key)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a disabled user, and a key that has expired.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn require_usable(holder: KeyHolder, now: Timestamp) -> Result<KeyHolder, S3Error> {
    if !holder.user.enabled {
        return Err(gateway::user_disabled());
    }
    if holder.is_expired(now) {
        return Err(S3Error::new(Code::AccessDenied, "The access key has expired"));
    }
    Ok(holder)
}
