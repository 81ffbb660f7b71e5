//! Riak's security over HTTP: who a client is, and whether it may make a request (Riak KV HTTP reference §11).
//!
//! The checks run in Riak's order: a malformed request is 400 for everybody, then comes 426 or 401, then 403, and only then
//! whether anything exists.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use larder_core::Error;
use larder_core::rules::security::{AccessRules, AccessScope, KvPermission};
use larder_core::security::{Login, LoginError, PermissionDenied, check_permission};
use larder_mapreduce::rules::Job;
use larder_net::RequestSource;

use super::call::RiakCall;
use super::errors::RiakFault;
use super::headers::content_type;
use super::listing::ListingMode;
use super::params::{ObjectParams, timeout};
use super::reply::page;
use super::routes::{PathPart, Resource, RouteAccess};
use super::{datatypes, index, link_walk};

const UPGRADE: &str = "Security is enabled and Riak does not accept credentials over HTTP. Try HTTPS instead.";
const NO_LINK_WALK: &str = "Link walking is deprecated in Riak and is not compatible with security.";

const NO_QUEUE: &str = "A Riak fetches from a replication queue without a user: that is not compatible with security.";

/// Checks a request to a route that is not open. `logged_in` gets the user as soon as it is known, also that of a refused request;
/// it stays empty while security is off.
///
/// # Errors
/// 400, 426, 401 or 403; an overload, or rules that cannot be read.
pub(super) async fn authorize(
    call: &RiakCall<'_>,
    source: RequestSource,
    logged_in: &mut Option<Arc<str>>,
) -> Result<(), RiakFault> {
    let (security, access) = (&call.gateway.security(), call.route.access);
    if access == RouteAccess::LoggedIn && !security.is_enabled() {
        // Such routes need no catalogue: they answer while it cannot be checked.
        return Ok(());
    }
    let rules = security.rules().await?;
    if !rules.settings().enabled {
        return Ok(());
    }
    check_form(call)?;
    if !source.secure {
        return Err(RiakFault::status_text(StatusCode::UPGRADE_REQUIRED, UPGRADE));
    }
    let user = log_in(call, source).await?;
    *logged_in = Some(Arc::clone(&user));
    check_access(call, &rules, &user)
}

/// Checks the inputs of a job, as [`authorize`] checks all else.
///
/// # Errors
/// 403.
pub(super) async fn authorize_job(call: &RiakCall<'_>, job: &Job) -> Result<(), RiakFault> {
    let Some(user) = &call.user else { return Ok(()) };
    let rules = call.gateway.security().rules().await?;
    crate::security::check_job(&rules, user, job).map_err(|denied| forbidden(&denied))
}

async fn log_in(call: &RiakCall<'_>, source: RequestSource) -> Result<Arc<str>, RiakFault> {
    let (user, password) = credentials(call.headers).ok_or_else(unauthorized)?;
    // Riak passes no certificate on over HTTP, so that method of a source never fits here.
    let login = Login { user: &user, password: &password, common_name: None, address: source.address };
    match call.gateway.security().log_in(&login).await {
        Ok(logged_in) => Ok(logged_in.user),
        Err(LoginError::Failed) => Err(unauthorized()),
        Err(LoginError::Busy) => Err(Error::Overloaded { retry_after: 1 }.into()),
        Err(LoginError::Gateway(error)) => Err(error.into()),
    }
}

/// Name and password of `Authorization: Basic`. A password may hold colons.
fn credentials(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = STANDARD.decode(encoded.trim()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0)?;
    Some((pair[..colon].to_vec(), pair[colon + 1..].to_vec()))
}

fn check_access(call: &RiakCall<'_>, rules: &AccessRules, user: &str) -> Result<(), RiakFault> {
    let bucket = call.route.place(PathPart::Bucket).map(|_| call.bucket()).transpose()?;
    let bucket_type = call.bucket_type();
    let scope = match &bucket {
        Some(bucket) => AccessScope::Bucket(bucket),
        None if is_of_type(call) => AccessScope::Type(&bucket_type),
        None => AccessScope::Any,
    };
    let check = |permission| check_permission(rules, user, permission, scope).map_err(|denied| forbidden(&denied));
    match call.route.access {
        RouteAccess::Open | RouteAccess::LoggedIn | RouteAccess::Job => Ok(()),
        RouteAccess::Needs(permissions) => check(permissions.for_method(call.method)),
        RouteAccess::PropsAndKeys if *call.method == Method::PUT => check(KvPermission::SetBucket),
        RouteAccess::PropsAndKeys => {
            check(KvPermission::GetBucket)?;
            match ListingMode::from_query(&call.query, "keys") {
                ListingMode::None => Ok(()),
                ListingMode::Whole | ListingMode::Stream => check(KvPermission::ListKeys),
            }
        }
        RouteAccess::NotWithSecurity => {
            let is_queue = call.route.resource == Resource::ReplicationQueue;
            let text = if is_queue { NO_QUEUE } else { NO_LINK_WALK };
            Err(RiakFault::status_text(StatusCode::FORBIDDEN, text))
        }
    }
}

/// Whether a request without a bucket is about a type: the path without one names `default`.
fn is_of_type(call: &RiakCall<'_>) -> bool {
    call.route.place(PathPart::Type).is_some() || call.route.resource == Resource::Buckets
}

/// The checks of parameters and headers that come before all rights. The resource runs them again: a right must never hang on
/// what they find.
fn check_form(call: &RiakCall<'_>) -> Result<(), RiakFault> {
    let is_write = matches!(*call.method, Method::PUT | Method::POST);
    match call.route.resource {
        Resource::Object | Resource::NewObject => {
            if is_write {
                content_type(call.headers)?;
            }
            ObjectParams::from_query(&call.query).map(drop)
        }
        Resource::Keys | Resource::Buckets => timeout(&call.query).map(drop),
        Resource::Index => index::check_form(call),
        Resource::LinkWalk => link_walk::check_form(call),
        Resource::DataType => datatypes::check_form(call),
        Resource::BucketProps
        | Resource::TypeProps
        | Resource::OldBucket
        | Resource::Ping
        | Resource::Root
        | Resource::Stats
        | Resource::Metrics
        | Resource::Live
        | Resource::Ready
        | Resource::CombinedIndex
        | Resource::Counter
        | Resource::MapReduce
        | Resource::ReplicationQueue
        | Resource::NotBuilt(_) => Ok(()),
    }
}

fn unauthorized() -> RiakFault {
    let mut reply = page(StatusCode::UNAUTHORIZED);
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"Riak\""));
    reply.into()
}

fn forbidden(denied: &PermissionDenied) -> RiakFault {
    RiakFault::status_text(StatusCode::FORBIDDEN, denied.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_name_and_a_password_that_may_hold_colons() {
        let of = |line: &str| {
            let headers = [(AUTHORIZATION, HeaderValue::from_str(line).unwrap())].into_iter().collect();
            let (user, password) = credentials(&headers)?;
            Some((String::from_utf8(user).unwrap(), String::from_utf8(password).unwrap()))
        };
        let pair = |text: &str| format!("bAsIc {}", STANDARD.encode(text));
        let some = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(of(&pair("u:p")), some("u", "p"));
        assert_eq!(of(&pair("u:p:q")), some("u", "p:q"));
        assert_eq!(of(&pair("u:")), some("u", ""));
        for line in [pair(":p"), pair("u"), pair(""), "Basic ?".into(), "Basic".into(), "Bearer dTpw".into()] {
            assert_eq!(of(&line), None, "{line}");
        }
    }
}
