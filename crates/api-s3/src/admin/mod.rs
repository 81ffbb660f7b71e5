//! The admin API of Riak CS: users, usage reports and statistics, under `/riak-cs/` and through the buckets `riak-cs`
//! and `usage`.
//!
//! ```text
//! user, users  create, read, update, delete, list; ping, stats, info      document  users in JSON and XML
//! usage        accesses and storage of users
//! ```
//! A user may read and change itself; an administrator, every user.

mod document;
pub(crate) mod usage;
pub(crate) mod user;
pub(crate) mod users;

use hyper::header::{ACCEPT, HeaderMap};
use larder_s3::Error;

use crate::call::S3Call;
use crate::errors::S3Error;

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DocumentFormat {
    Json,
    Xml,
}

/// The access key id of a user that a request created, for the audit log. It is beside the response.
#[derive(Debug, Clone)]
pub(crate) struct ChangedUser(pub(crate) String);

/// Refuses callers who are not administrators.
fn admin_only(call: &S3Call) -> Result<(), S3Error> {
    if call.caller.require_user()?.admin { Ok(()) } else { Err(Error::AccessDenied.into()) }
}

/// Refuses callers who are neither administrators nor the user of this key.
fn self_or_admin(call: &S3Call, key_id: &str) -> Result<(), S3Error> {
    let user = call.caller.require_user()?;
    if user.admin || user.key_id == key_id { Ok(()) } else { Err(Error::AccessDenied.into()) }
}

/// The format that `Accept` asks for.
fn accepted_format(headers: &HeaderMap, default: DocumentFormat) -> DocumentFormat {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let medias = accept.split(',').map(|media| media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let known = medias.filter_map(|media| match media.as_str() {
        "application/json" => Some(DocumentFormat::Json),
        "application/xml" | "text/xml" => Some(DocumentFormat::Xml),
        _ => None,
    });
    known.into_iter().next().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_first_known_format_wins() {
        let of = |accept: &'static str| {
            accepted_format(&[(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect(), DocumentFormat::Xml)
        };
        assert_eq!(of("application/json"), DocumentFormat::Json);
        assert_eq!(of("text/html, Application/JSON;q=0.9, application/xml"), DocumentFormat::Json);
        assert_eq!(of("text/xml"), DocumentFormat::Xml);
        assert_eq!(of("*/*"), DocumentFormat::Xml);
        assert_eq!(accepted_format(&HeaderMap::new(), DocumentFormat::Json), DocumentFormat::Json);
    }
}
