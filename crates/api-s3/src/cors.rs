//! Pages of other origins: what a browser is told about who may ask, before it asks and when it is answered.

use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use larder_gateway::objects::Objects;
use larder_model::objects::cors::{Cors, CorsRule};

use crate::errors::{Code, Fault};
use crate::path::Target;
use crate::reply::{self, Reply};
use crate::route::is_admin;

/// What the answer to a preflight depends on.
const VARIES: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Headers, Access-Control-Request-Method");

/// Answers an `OPTIONS` request.
///
/// # Errors
/// `BadRequest` when it is no preflight or the bucket has no rules, `AccessForbidden` when no rule allows what is asked, `NoSuchBucket`.
pub(crate) async fn preflight(objects: &Objects, target: &Target, headers: &HeaderMap) -> Result<Reply, Fault> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = text(ORIGIN).ok_or_else(|| bad("Insufficient information. Origin request header needed."))?;
    let method =
        text(ACCESS_CONTROL_REQUEST_METHOD).ok_or_else(|| bad("Invalid Access-Control-Request-Method: null"))?;
    if is_admin(target) {
        return Ok(of_admin(origin));
    }
    let asked = text(ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let asked: Vec<&str> = asked.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let rules = rules(objects, &target.bucket).await?.ok_or_else(|| bad("CORS is not enabled for this bucket."))?;
    let (rule, allowed) = rules.matches(origin, method, &asked).ok_or(Code::AccessForbidden)?;
    let mut reply = reply::empty(StatusCode::OK);
    allow(&mut reply, rule, allowed);
    if !asked.is_empty() {
        reply::set(&mut reply, ACCESS_CONTROL_ALLOW_HEADERS, asked.join(", ").to_ascii_lowercase());
    }
    if let Some(seconds) = rule.max_age {
        reply::set(&mut reply, ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
    }
    Ok(reply)
}

/// Adds what a browser needs to hand an answer, a refusal too, to the page that asked.
pub(crate) async fn simple(objects: &Objects, target: &Target, asked: (&str, &HeaderMap), reply: &mut Reply) {
    let (method, headers) = asked;
    let Some(origin) = headers.get(ORIGIN).and_then(|value| value.to_str().ok()) else { return };
    if is_admin(target) {
        reply.headers_mut().extend(of_admin(origin).headers().clone());
        return;
    }
    // A bucket that cannot be looked up has no rules: the answer goes out as it is.
    let Ok(Some(rules)) = rules(objects, &target.bucket).await else { return };
    if let Some((rule, allowed)) = rules.matches(origin, method, &[]) {
        allow(reply, rule, allowed);
    }
}

/// Riak CS's own paths are open to the consoles of every origin; who asks has to sign all the same.
fn of_admin(origin: &str) -> Reply {
    let mut reply = reply::empty(StatusCode::OK);
    reply::set(&mut reply, ACCESS_CONTROL_ALLOW_ORIGIN, if origin.is_empty() { "*" } else { origin });
    reply::set(&mut reply, ACCESS_CONTROL_ALLOW_METHODS, "POST,PUT,GET,OPTIONS,DELETE");
    let headers = "host,origin,authorization,x-amz-content-sha256,x-amz-date,content-type,content-md5,accept,\
                   accept-encoding";
    reply::set(&mut reply, ACCESS_CONTROL_ALLOW_HEADERS, headers);
    reply.headers_mut().insert(VARY, VARIES);
    reply
}

fn allow(reply: &mut Reply, rule: &CorsRule, origin: &str) {
    reply::set(reply, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    reply::set(reply, ACCESS_CONTROL_ALLOW_METHODS, rule.methods.join(", "));
    if origin != "*" {
        reply::set(reply, ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    if !rule.expose.is_empty() {
        reply::set(reply, ACCESS_CONTROL_EXPOSE_HEADERS, rule.expose.join(", "));
    }
    reply.headers_mut().append(VARY, VARIES);
}

/// The rules of a bucket. Browsers ask for them without a signature.
async fn rules(objects: &Objects, bucket: &str) -> Result<Option<Cors>, Fault> {
    if bucket.is_empty() {
        return Ok(None);
    }
    Ok(objects.bucket(bucket).await?.cors.clone())
}

fn bad(message: &'static str) -> Fault {
    Fault::new(Code::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_all_origins_gives_no_credentials() {
        let rule = CorsRule { methods: vec!["GET".into()], expose: vec!["etag".into()], ..CorsRule::default() };
        for (origin, credentials) in [("*", false), ("http://a", true)] {
            let mut reply = reply::empty(StatusCode::OK);
            allow(&mut reply, &rule, origin);
            assert_eq!(reply.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
            assert_eq!(reply.headers()[ACCESS_CONTROL_EXPOSE_HEADERS], "etag");
            assert_eq!(reply.headers().contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS), credentials);
        }
    }
}
