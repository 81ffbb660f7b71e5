//! CORS: responses to preflights, and the CORS headers of other responses.
//!
//! Unsigned requests on loopback that a browser sends for a page of another site.
//!
//! Attack: a page anywhere can make its reader's browser use the public buckets of a server on the reader's machine. A page whose
//! host was pointed there (DNS rebinding) reads them, too. A signature is proof of its own: no page can make one.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, StatusCode};
use larder_net::BrowserRules;
use larder_s3::Objects;
use larder_s3_rules::cors::{Cors, CorsRule};

use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::route::is_admin;
use crate::target::{ResourcePath, is_unknown_host};

/// `Vary` of a preflight response.
const VARIES: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Headers, Access-Control-Request-Method");

/// The response to an `OPTIONS` request.
///
/// # Errors
/// `BadRequest` if it is not a preflight, `AccessForbidden` if the bucket has no rules or none matches,
/// `NoSuchBucket`.
pub(crate) async fn preflight(
    objects: &Objects,
    target: &ResourcePath,
    headers: &HeaderMap,
) -> Result<S3Response, S3Error> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = text(ORIGIN).ok_or_else(|| bad_request("Insufficient information. Origin request header needed."))?;
    let method = text(ACCESS_CONTROL_REQUEST_METHOD)
        .ok_or_else(|| bad_request("Invalid Access-Control-Request-Method: null"))?;
    if is_admin(target) {
        return Ok(admin_response(origin));
    }
    let requested = text(ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let requested: Vec<&str> = requested.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let not_enabled = || S3Error::new(Code::AccessForbidden, "CORSResponse: CORS is not enabled for this bucket.");
    let rules = rules(objects, &target.bucket).await?.ok_or_else(not_enabled)?;
    let (rule, allowed) = rules.find_rule(origin, method, &requested).ok_or(Code::AccessForbidden)?;
    let mut response = response::empty(StatusCode::OK);
    insert_allowed(&mut response, rule, allowed);
    if !requested.is_empty() {
        response::set(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, requested.join(", ").to_ascii_lowercase());
    }
    if let Some(seconds) = rule.max_age {
        response::set(&mut response, ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
    }
    Ok(response)
}

/// Adds the CORS headers that let a browser hand the response to the page, errors included.
pub(crate) async fn add_headers(
    objects: &Objects,
    target: &ResourcePath,
    method: &str,
    headers: &HeaderMap,
    response: &mut S3Response,
) {
    let Some(origin) = headers.get(ORIGIN).and_then(|value| value.to_str().ok()) else { return };
    if is_admin(target) {
        response.headers_mut().extend(admin_response(origin).headers().clone());
        return;
    }
    // If the bucket lookup fails, the response goes out without CORS headers.
    let Ok(Some(rules)) = rules(objects, &target.bucket).await else { return };
    if let Some((rule, allowed)) = rules.find_rule(origin, method, &[]) {
        insert_allowed(response, rule, allowed);
    }
}

/// The admin API of Riak CS is open to consoles of every origin; requests still need a signature.
fn admin_response(origin: &str) -> S3Response {
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, ACCESS_CONTROL_ALLOW_ORIGIN, if origin.is_empty() { "*" } else { origin });
    response::set(&mut response, ACCESS_CONTROL_ALLOW_METHODS, "POST,PUT,GET,OPTIONS,DELETE");
    let headers = "host,origin,authorization,x-amz-content-sha256,x-amz-date,content-type,content-md5,accept,\
                   accept-encoding";
    response::set(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, headers);
    response.headers_mut().insert(VARY, VARIES);
    response
}

fn insert_allowed(response: &mut S3Response, rule: &CorsRule, origin: &str) {
    response::set(response, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response::set(response, ACCESS_CONTROL_ALLOW_METHODS, rule.methods.join(", "));
    // A browser refuses credentials together with the origin `*`.
    if origin != "*" {
        response::set(response, ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    if !rule.expose.is_empty() {
        response::set(response, ACCESS_CONTROL_EXPOSE_HEADERS, rule.expose.join(", "));
    }
    // Caches must not give the answer for one origin to another.
    response.headers_mut().append(VARY, VARIES);
}

/// The rules of a bucket. Preflights are unsigned, so this needs no permission.
pub(crate) async fn rules(objects: &Objects, bucket: &str) -> Result<Option<Cors>, S3Error> {
    if bucket.is_empty() {
        return Ok(None);
    }
    Ok(objects.buckets.find(bucket).await?.cors.clone())
}

fn bad_request(message: &'static str) -> S3Error {
    S3Error::new(Code::BadRequest, message)
}

const FOREIGN_HOST: &str =
    "The request has no signature, and its Host is none of this server's; the setting s3-host adds one.";
const FOREIGN_ORIGIN: &str = "A browser sent the request, which has no signature, for a page of another origin; the bucket's rules of CORS may allow one.";

/// Refuses an unsigned request at a host that is none of the `roots`, and an unsigned write for a page of another origin that the
/// bucket's rules of CORS do not allow. Pages everywhere may show what all may read, as on AWS.
///
/// # Errors
/// `AccessDenied`, and the errors of looking up the bucket.
pub(crate) async fn check_unsigned(
    objects: &Objects,
    host: &str,
    roots: &[String],
    target: &ResourcePath,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(), S3Error> {
    if is_unknown_host(host, roots) {
        return Err(S3Error::new(Code::AccessDenied, FOREIGN_HOST));
    }
    if matches!(*method, Method::GET | Method::HEAD) || BrowserRules::default().check(headers).is_ok() {
        return Ok(());
    }
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_allowed = match (origin, rules(objects, &target.bucket).await?) {
        (Some(origin), Some(rules)) => rules.find_rule(origin, method.as_str(), &[]).is_some(),
        _ => false,
    };
    if is_allowed { Ok(()) } else { Err(S3Error::new(Code::AccessDenied, FOREIGN_ORIGIN)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_all_origins_allows_no_credentials() {
        let rule = CorsRule { methods: vec!["GET".into()], expose: vec!["etag".into()], ..CorsRule::default() };
        for (origin, credentials) in [("*", false), ("http://a", true)] {
            let mut response = response::empty(StatusCode::OK);
            insert_allowed(&mut response, &rule, origin);
            assert_eq!(response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
            assert_eq!(response.headers()[ACCESS_CONTROL_EXPOSE_HEADERS], "etag");
            assert_eq!(response.headers().contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS), credentials);
        }
    }
}
