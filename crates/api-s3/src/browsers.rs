//! Unsigned requests on loopback that a browser sends for a page of another site.
//!
//! Attack: a page anywhere can make its reader's browser use the public buckets of a server on the reader's machine. A page whose
//! host was pointed there (DNS rebinding) reads them, too. A signature is proof of its own: no page can make one.

use hyper::Method;
use hyper::header::{HeaderMap, ORIGIN};
use larder_net::BrowserRules;
use larder_s3::Objects;

use crate::cors;
use crate::errors::{Code, S3Error};
use crate::target::{ResourcePath, is_unknown_host};

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
    (host, roots): (&str, &[String]),
    target: &ResourcePath,
    (method, headers): (&Method, &HeaderMap),
) -> Result<(), S3Error> {
    if is_unknown_host(host, roots) {
        return Err(S3Error::new(Code::AccessDenied, FOREIGN_HOST));
    }
    if matches!(*method, Method::GET | Method::HEAD) || BrowserRules::default().check(headers).is_ok() {
        return Ok(());
    }
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_allowed = match (origin, cors::rules(objects, &target.bucket).await?) {
        (Some(origin), Some(rules)) => rules.find_rule(origin, method.as_str(), &[]).is_some(),
        _ => false,
    };
    if is_allowed { Ok(()) } else { Err(S3Error::new(Code::AccessDenied, FOREIGN_ORIGIN)) }
}
