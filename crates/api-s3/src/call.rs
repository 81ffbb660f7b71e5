//! A decoded and authenticated request, as its operation receives it.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use larder_core::AdmissionGuard;
use larder_rows::Timestamp;
use larder_s3::users::KeyHolder;
use larder_s3::{Caller, Error, Objects};
use larder_s3_rules::policy::CallerPolicies;
use larder_s3_rules::{Bucket, User};
use parking_lot::Mutex;

use crate::S3Settings;
use crate::auth::{self, AuthRequest, AuthScheme, RequestSignature, SigningKeys, VerifiedSignature};
use crate::background::BackgroundTasks;
use crate::body::RequestBody;
use crate::errors::{Code, S3Error, gateway};
use crate::operations::OperationSpec;
use crate::response::{self, S3Response};
use crate::target::S3Query;

/// The expected owner of the request's bucket.
pub(crate) const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
/// The expected owner of the source bucket of a copy.
pub(crate) const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

/// One call of an S3 operation.
pub struct S3Call {
    /// The gateway's objects.
    pub objects: Arc<Objects>,
    /// The settings of this listener.
    pub settings: Arc<S3Settings>,
    /// Its row in the operation table.
    pub operation: &'static OperationSpec,
    /// The bucket; empty for service operations.
    pub bucket: String,
    /// The key, UTF-8; empty for bucket operations. For admin operations, the path after `/riak-cs/`.
    pub key: Bytes,
    /// The query parameters.
    pub query: S3Query,
    /// The request headers.
    pub headers: HeaderMap,
    /// The caller, with the action of the operation.
    pub caller: Caller,
    /// The caller as the holder of the key that signed; `None` if anonymous.
    pub signer: Option<KeyHolder>,
    /// How the request was signed; `None` if anonymous.
    pub scheme: Option<AuthScheme>,
    /// The host as the client wrote it, with its port; used for addresses in responses.
    pub host: String,
    /// Whether the host named the bucket.
    pub virtual_host: bool,
    /// The request id, for the `x-amz-request-id` header and error documents.
    pub request_id: String,
    /// Arrival time.
    pub now: Timestamp,
    /// Its admission slot; work that outlives the connection keeps it.
    pub(crate) admitted: Option<Arc<AdmissionGuard>>,
    /// Runs work that outlives the connection.
    pub(crate) background: BackgroundTasks,
    pub(crate) body: Mutex<Option<RequestBody>>,
}

impl S3Call {
    /// Takes the request body. The second call returns an empty body.
    #[must_use]
    pub fn take_body(&self) -> RequestBody {
        self.body.lock().take().unwrap_or_else(RequestBody::empty)
    }

    /// The value of a header, if it is visible ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Refuses a bucket whose owner is not the canonical id in the header `name`, before the request has any effect.
    ///
    /// # Errors
    /// 403 `AccessDenied`, `NoSuchBucket`.
    pub(crate) async fn check_expected_owner(&self, name: &str, bucket: &str) -> Result<(), S3Error> {
        let Some(expected) = self.headers.get(name).filter(|_| !bucket.is_empty()) else { return Ok(()) };
        let owner = self.objects.buckets.find(bucket).await?.owner.clone();
        let expected = std::str::from_utf8(expected.as_bytes()).map(str::trim);
        if expected == Ok(&owner) { Ok(()) } else { Err(Code::AccessDenied.into()) }
    }

    /// Changes the configuration of the bucket; the response is empty and has this status.
    ///
    /// # Errors
    /// 403 `AccessDenied`, `NoSuchBucket`, and errors of the store.
    pub(crate) async fn configure(
        &self,
        status: StatusCode,
        change: impl Fn(&mut Bucket) + Send + Sync,
    ) -> Result<S3Response, S3Error> {
        let change = |bucket: &mut Bucket| {
            change(bucket);
            Ok(())
        };
        self.objects.buckets.configure(&self.caller, &self.bucket, change).await?;
        Ok(response::empty(status))
    }

    /// The resource as error documents name it.
    #[must_use]
    pub fn resource(&self) -> String {
        crate::target::ResourcePath { bucket: self.bucket.clone(), key: self.key.clone() }.resource()
    }

    /// The address of the object, for the responses to CompleteMultipartUpload and PostObject.
    #[must_use]
    pub fn location(&self) -> String {
        let key = percent_encoding::percent_encode(&self.key, crate::auth::PATH);
        // Behind a proxy with TLS, a client that follows a plain address would be redirected, or fail.
        let scheme = if self.caller.access_context.secure { "https" } else { "http" };
        if self.virtual_host {
            format!("{scheme}://{}/{key}", self.host)
        } else if let Some(url) = &self.settings.public_url {
            format!("{url}/{}/{key}", self.bucket)
        } else {
            format!("{scheme}://{}/{}/{key}", self.host, self.bucket)
        }
    }
}

/// All values of a header as one, joined with commas.
#[must_use]
pub fn joined(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Option<Bytes> {
    larder_net::joined(headers, name, b",")
}

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

    /// The policies of the user, the key and the session that signed; `None` without any.
    pub(crate) fn policies(&self) -> Option<Arc<CallerPolicies>> {
        self.holder.as_ref().and_then(KeyHolder::policies)
    }

    /// Whether temporary credentials signed.
    pub(crate) fn is_session(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.session().is_some())
    }

    /// How the request was signed.
    pub(crate) fn scheme(&self) -> Option<AuthScheme> {
        self.signature.as_ref().map(|signature| signature.scheme)
    }
}

/// Verifies the signature of a request.
///
/// # Errors
/// The errors of a bad signature or token; `InvalidAccessKeyId`; `AccessDenied` for a disabled user or an expired key.
pub(crate) async fn authenticate(
    objects: &Objects,
    keys: &SigningKeys,
    request: &AuthRequest<'_>,
) -> Result<Identity, S3Error> {
    let Some(signature) = RequestSignature::from_request(request)? else { return Ok(Identity::default()) };
    let token = auth::security_token(request.headers)?;
    let holder = holder_of_key(objects, signature.access_key(), token).await?;
    let signature = signature.verify(request, holder.secret(), keys)?;
    // Only the holder of the secret learns that the user is disabled.
    let holder = require_usable(holder, request.now)?;
    Ok(Identity { holder: Some(holder), signature: Some(signature) })
}

/// The holder of an access key id, or, with the token of a session, of its temporary one; usable or not. Callers verify the signature
/// before [`require_usable`].
///
/// # Errors
/// `InvalidAccessKeyId`, `InvalidToken`, and errors of the store.
pub(crate) async fn holder_of_key(
    objects: &Objects,
    access_key: &str,
    token: Option<&str>,
) -> Result<KeyHolder, S3Error> {
    if let Some(token) = token {
        return Ok(objects.users.session_holder(access_key, token).await?);
    }
    match objects.users.key_holder(access_key).await {
        Ok(holder) => Ok(holder),
        Err(Error::UnknownKey(_)) => Err(auth::unknown_key(access_key)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a disabled user, and a key or a session that has expired.
///
/// # Errors
/// `AccessDenied`, `ExpiredToken`.
pub(crate) fn require_usable(holder: KeyHolder, now: Timestamp) -> Result<KeyHolder, S3Error> {
    if !holder.user.enabled {
        return Err(gateway::user_disabled());
    }
    if holder.session().is_some_and(|session| session.is_expired(now)) {
        return Err(Code::ExpiredToken.into());
    }
    if holder.is_expired(now) {
        return Err(S3Error::new(Code::AccessDenied, "The access key has expired"));
    }
    Ok(holder)
}
