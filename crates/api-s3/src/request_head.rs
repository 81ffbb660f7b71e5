//! A request's line and headers, parsed.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap, HeaderName, REFERER, USER_AGENT};
use hyper::http::request::Parts;
use larder_net::{RequestSource, names_two_hosts};
use larder_rows::Timestamp;
use larder_rows::text::beginning;
use larder_s3_rules::access::AccessContext;
use larder_s3_rules::policy::PolicyWork;

use crate::auth::AuthScheme;
use crate::errors::{Code, S3Error};
use crate::operations::OperationSpec;
use crate::ops::conditions;
use crate::target::{AddressingStyle, ResourcePath, S3Query};

/// The header in which a proxy passes on the host of its client.
const FORWARDED_HOST: &str = "x-forwarded-host";
/// Bytes of a key in the log.
const KEY_BYTES_SHOWN: usize = 16;
/// Longest host that is taken from a proxy, in bytes.
const FORWARDED_HOST_BYTES_MAX: usize = 512;

/// A request's line and headers, parsed.
pub(crate) struct RequestHead {
    pub(crate) parts: Parts,
    pub(crate) id: String,
    pub(crate) now: Timestamp,
    pub(crate) source: RequestSource,
    pub(crate) host: String,
    /// The host that the client named to a trusted proxy.
    pub(crate) forwarded_host: Option<String>,
    /// Whether the host names the website of a bucket.
    pub(crate) is_website: bool,
    pub(crate) addressing: AddressingStyle,
    /// The parameters; a website has none.
    pub(crate) query: S3Query,
}

impl RequestHead {
    /// The host that the client named.
    pub(crate) fn asked_host(&self) -> &str {
        self.forwarded_host.as_deref().unwrap_or(&self.host)
    }

    /// The condition keys that bucket policies can test. Values that are not UTF-8 are included with replacement
    /// characters, so that a `Deny` cannot be evaded.
    pub(crate) fn access_context(&self, scheme: Option<AuthScheme>) -> AccessContext {
        let headers = &self.parts.headers;
        let header = |name: &HeaderName| Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()).into_owned());
        let (auth_type, version) = match scheme {
            Some(AuthScheme::V2Header) => (Some("REST-HEADER"), Some("AWS")),
            Some(AuthScheme::V2Query) => (Some("REST-QUERY-STRING"), Some("AWS")),
            Some(AuthScheme::V4Header) => (Some("REST-HEADER"), Some("AWS4-HMAC-SHA256")),
            Some(AuthScheme::V4Query) => (Some("REST-QUERY-STRING"), Some("AWS4-HMAC-SHA256")),
            Some(AuthScheme::Form) => (Some("POST"), None),
            None => (None, None),
        };
        let known = [
            ("aws:Referer", header(&REFERER)),
            ("aws:UserAgent", header(&USER_AGENT)),
            ("s3:authType", auth_type.map(str::to_owned)),
            ("s3:signatureversion", version.map(str::to_owned)),
        ];
        let mut keys: Vec<_> = known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        keys.extend(conditions::header_conditions(headers, self.now));
        keys.extend(conditions::query_conditions(&self.query));
        let request_tags = conditions::request_tags(headers);
        let RequestSource { address, secure } = self.source;
        AccessContext {
            source: Some(address),
            secure,
            now: self.now,
            is_session: false,
            keys,
            request_tags,
            work: PolicyWork::default(),
        }
    }
}

impl RequestHead {
    /// Logs the request as a slow one.
    pub(crate) fn log_slow(
        &self,
        target: &ResourcePath,
        operation: Option<&'static OperationSpec>,
        status: StatusCode,
        elapsed: Duration,
    ) {
        // A key may be personal: its beginning tells which one it is to those who know it.
        let key = String::from_utf8_lossy(&target.key);
        let cut = beginning(&key, KEY_BYTES_SHOWN);
        tracing::warn!(
            request = self.id,
            client = %self.source.address,
            method = %self.parts.method,
            operation = operation.map(|operation| operation.name),
            bucket = target.bucket,
            key = if cut.len() < key.len() { format!("{cut}…") } else { cut.to_owned() },
            status = status.as_u16(),
            millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            "request slow: it took longer than slow-log allows"
        );
    }
}

/// Headers beside `x-amz-…` whose lines are no list.
const SINGLE: &[&str] = &["content-md5", "content-type", "content-disposition", "expires", "range", "if-range"];

/// Beginnings of the headers `x-amz-…` that are lists, a line for each item in some clients; two tokens have a refusal of their own.
const LISTS: &[&str] = &["meta-", "grant-", "object-attributes", "optional-object-attributes", "security-token"];

/// Refuses two lines of a header that has one value: each reader would take one of them, and drop the other unseen.
///
/// # Errors
/// 400 with the header.
pub(crate) fn check_lines(headers: &HeaderMap) -> Result<(), S3Error> {
    if names_two_hosts(headers) {
        return Err(S3Error::new(Code::BadRequest, "The request has two Host headers."));
    }
    // As many lines as names: none comes twice.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let differs = |name: &&HeaderName| {
        let mut lines = headers.get_all(*name).iter();
        let first = lines.next();
        lines.any(|line| Some(line) != first)
    };
    match headers.keys().filter(|name| has_one_value(name.as_str())).find(differs) {
        Some(name) => Err(S3Error::invalid(format!("The request has two different {name} headers."))),
        None => Ok(()),
    }
}

fn has_one_value(name: &str) -> bool {
    let is_other = |rest: &str| LISTS.iter().any(|list| rest.starts_with(list));
    SINGLE.contains(&name) || name.strip_prefix("x-amz-").is_some_and(|rest| !is_other(rest))
}

/// The host as the client wrote it. `Host` wins over the authority of an absolute-form target, because older proxies
/// forward the target unchanged.
pub(crate) fn request_host(parts: &Parts) -> String {
    let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| parts.uri.authority().map(|authority| authority.as_str())).unwrap_or_default().to_owned()
}

/// The host that the client of a trusted proxy named: the first one, since each further proxy adds the host that it was asked
/// for. A client may forge it, as it may any `Host`: a signature holds for the host alone that was signed.
pub(crate) fn forwarded_host(headers: &HeaderMap) -> Option<String> {
    let line = headers.get(FORWARDED_HOST)?.to_str().ok()?;
    let host = line.split(',').next().unwrap_or_default().trim();
    let fits = !host.is_empty() && host.len() <= FORWARDED_HOST_BYTES_MAX && !host.contains(char::is_whitespace);
    fits.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_lines_of_a_header_with_one_value_the_first_won_unseen() {
        let check = |lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            check_lines(&headers).map_err(|error| error.message.into_owned())
        };
        for name in ["content-md5", "x-amz-acl", "x-amz-copy-source", "x-amz-object-lock-mode", "range"] {
            assert!(check(&[(name, "a"), (name, "b")]).unwrap_err().contains(name));
            assert_eq!(check(&[(name, "a"), ("x-amz-date", "b"), (name, "a")]), Ok(()), "the same twice loses nothing");
        }
        for list in ["x-amz-meta-a", "x-amz-grant-read", "x-amz-object-attributes", "if-match", "cache-control"] {
            assert_eq!(check(&[(list, "a"), (list, "b")]), Ok(()));
        }
        assert!(check(&[("host", "a"), ("host", "a")]).is_err());
    }
}
