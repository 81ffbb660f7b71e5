//! Which operation a request is: the most specific line of the table that fits, and nothing when it asks for more than that
//! line knows. A put of `?website` taken for a put of the object would destroy it.

use hyper::Method;
use hyper::header::HeaderMap;

use crate::errors::{Code, Fault};
use crate::operations::{OPERATIONS, Operation, Scope, Verb};
use crate::path::Target;
use crate::query::Query;

/// The bucket whose keys are Riak CS's own paths.
pub const ADMIN_BUCKET: &str = "riak-cs";
/// The bucket whose keys are usage reports.
pub const USAGE_BUCKET: &str = "usage";

/// Sub-resources that no line of the table is about.
const FOREIGN: &[&str] = &[
    "analytics",
    "annotation",
    "append",
    "intelligent-tiering",
    "inventory",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
];

/// Parameters that may come without a value in a request that changes something.
const MAY_BE_EMPTY: &[&str] = &["partNumber", "versionId", "x-id", "select-type"];

/// The header that makes a put a copy.
const COPY_SOURCE: &str = "x-amz-copy-source";

/// What a request is about, in the words of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About<'a> {
    Service,
    Bucket,
    Object,
    Admin(&'a str),
}

impl About<'_> {
    fn is(self, scope: Scope) -> bool {
        match (self, scope) {
            (Self::Service, Scope::Service) | (Self::Bucket, Scope::Bucket) | (Self::Object, Scope::Object) => true,
            (Self::Admin(segment), Scope::Admin(name)) => segment == name,
            _ => false,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Service => "SERVICE",
            Self::Bucket => "BUCKET",
            Self::Object => "OBJECT",
            Self::Admin(_) => "ADMIN",
        }
    }
}

/// Whether the target is one of Riak CS's own paths.
#[must_use]
pub fn is_admin(target: &Target) -> bool {
    target.bucket == ADMIN_BUCKET || target.bucket == USAGE_BUCKET
}

/// The operation of a request.
///
/// # Errors
/// `NotImplemented` for a sub-resource that is not known here, `MethodNotAllowed`, `InvalidArgument` for a part number
/// without an upload, `NoSuchKey` for a path of the administrator that there is none of.
pub fn route(
    method: &Method,
    target: &Target,
    query: &Query,
    headers: &HeaderMap,
) -> Result<&'static Operation, Fault> {
    let about = about(target)?;
    let of_scope = || OPERATIONS.iter().filter(|operation| about.is(operation.scope));
    if of_scope().next().is_none() {
        return Err(Code::NoSuchKey.into());
    }
    let fits = |operation: &&Operation| {
        let header = operation.header.is_none_or(|name| headers.contains_key(name));
        operation.method.name() == method.as_str() && header && operation.keys.iter().all(|key| has(query, key))
    };
    let found = of_scope().filter(fits).max_by_key(|operation| weight(operation));
    if !matches!(about, About::Admin(_))
        && let Some((name, _)) = query.iter().find(|(name, value)| is_beyond(found, method, name, value))
    {
        return Err(Fault::parameter_not_offered(name));
    }
    let Some(operation) = found else { return Err(not_allowed(method, about)) };
    if *method == Method::PUT && about == About::Object && query.has("partNumber") && !query.has("uploadId") {
        let value = query.get("partNumber").unwrap_or_default();
        return Err(Fault::argument("partNumber", value, "A part number needs the id of an upload"));
    }
    Ok(operation)
}

fn about(target: &Target) -> Result<About<'_>, Fault> {
    match &*target.bucket {
        "" => Ok(About::Service),
        USAGE_BUCKET => Ok(About::Admin("usage")),
        ADMIN_BUCKET => {
            let key = std::str::from_utf8(&target.key).map_err(|_| Code::InvalidURI)?;
            Ok(About::Admin(key.split(['/', '.']).next().unwrap_or_default()))
        }
        _ if target.key.is_empty() => Ok(About::Bucket),
        _ => Ok(About::Object),
    }
}

fn has(query: &Query, key: &str) -> bool {
    match key.split_once('=') {
        Some((name, value)) => query.get(name) == Some(value),
        None => query.has(key),
    }
}

/// A parameter weighs more than a header: `?acl` of a request that also names a source is about the list.
fn weight(operation: &Operation) -> usize {
    operation.keys.len() * 2 + usize::from(operation.header.is_some())
}

/// Whether a parameter asks for more than the operation that was found.
fn is_beyond(found: Option<&'static Operation>, method: &Method, name: &str, value: &str) -> bool {
    if found.is_some_and(|operation| operation.keys.contains(&name)) {
        return false;
    }
    if is_subresource(name) {
        // A HEAD with the id of an upload is one of the object.
        return !(*method == Method::HEAD && name == "uploadId");
    }
    let writes = *method != Method::GET && *method != Method::HEAD;
    if writes && name.eq_ignore_ascii_case(COPY_SOURCE) {
        // A signer that moves headers into the query: as a plain put it would replace the object by nothing.
        return found.is_some_and(|operation| operation.header.is_none());
    }
    writes && value.is_empty() && !MAY_BE_EMPTY.contains(&name) && !name.to_ascii_lowercase().starts_with("x-amz-")
}

/// Whether a parameter decides which operation a request is.
pub(crate) fn is_subresource(name: &str) -> bool {
    FOREIGN.contains(&name) || OPERATIONS.iter().any(|operation| operation.keys.contains(&name))
}

fn not_allowed(method: &Method, about: About<'_>) -> Fault {
    let mut allowed: Vec<Verb> = OPERATIONS
        .iter()
        .filter(|operation| about.is(operation.scope) && operation.keys.is_empty())
        .map(|operation| operation.method)
        .collect();
    allowed.sort_unstable();
    allowed.dedup();
    let allowed: Vec<&str> = allowed.into_iter().map(Verb::name).collect();
    Fault::not_allowed(method.as_str(), about.kind(), &allowed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Op;
    use hyper::header::HeaderValue;

    fn routed(method: &str, path: &str, query: &str, header: Option<&'static str>) -> Result<Op, Code> {
        let target = Target::of(&crate::host::Place::Service, path).unwrap();
        let headers =
            header.map(|name| (name.parse().unwrap(), HeaderValue::from_static("/b/k"))).into_iter().collect();
        let found = route(&method.parse().unwrap(), &target, &Query::of(Some(query)), &headers);
        found.map(|operation| operation.op).map_err(|fault| fault.code)
    }

    #[test]
    fn every_line_is_reached_by_the_request_it_describes() {
        for operation in OPERATIONS {
            let path = match operation.scope {
                Scope::Service => "/".to_owned(),
                Scope::Bucket => "/b".to_owned(),
                Scope::Object => "/b/k".to_owned(),
                Scope::Admin(segment) => format!("/riak-cs/{segment}"),
            };
            for suffix in ["", "&x-id=Whatever&X-Amz-Date=&versionId=1"] {
                let query = operation.keys.join("&") + suffix;
                let op = routed(operation.method.name(), &path, &query, operation.header);
                assert_eq!(op, Ok(operation.op), "{} {path}?{query}", operation.method.name());
            }
        }
    }

    #[test]
    fn what_is_not_known_is_never_a_plain_put_or_get() {
        for (method, path, query) in [
            ("PUT", "/b/k", "website"),
            ("PUT", "/b", "metadataTable"),
            ("PUT", "/b/k", "something-new"),
            ("DELETE", "/b", "lifecycle&website"),
            ("GET", "/b/k", "lifecycle"),
            ("GET", "/b", "inventory&id=1"),
            ("PUT", "/b/k", "append&position=0"),
            ("POST", "/b/k", "acl"),
            ("GET", "/b/k", "acl&tagging"),
            ("HEAD", "/b/k", "acl"),
            ("PUT", "/b/k", "X-Amz-Copy-Source=b%2Fother"),
        ] {
            assert_eq!(routed(method, path, query, None), Err(Code::NotImplemented), "{method} {path}?{query}");
        }
    }

    #[test]
    fn the_most_specific_line_wins() {
        let copy = Some("x-amz-copy-source");
        assert_eq!(routed("PUT", "/b/k", "", copy), Ok(Op::CopyObject));
        assert_eq!(routed("PUT", "/b/k", "acl", copy), Ok(Op::PutObjectAcl));
        assert_eq!(routed("PUT", "/b/k", "uploadId=u&partNumber=1", copy), Ok(Op::UploadPartCopy));
        assert_eq!(routed("PUT", "/b/k", "uploadId=&partNumber=1", None), Ok(Op::UploadPart));
        assert_eq!(routed("GET", "/b/k", "uploadId=", None), Ok(Op::ListParts));
        assert_eq!(routed("HEAD", "/b/k", "uploadId=u", None), Ok(Op::HeadObject));
        assert_eq!(routed("GET", "/b", "list-type=1", None), Ok(Op::ListObjects));
        assert_eq!(routed("GET", "/b", "list-type=2&versions", None), Ok(Op::ListObjectVersions));
        assert_eq!(routed("GET", "/b/k", "cachebuster", None), Ok(Op::GetObject));
        assert_eq!(routed("PUT", "/b/k", "partNumber=1", None), Err(Code::InvalidArgument));
    }

    #[test]
    fn methods_and_paths_there_are_none_of() {
        assert_eq!(routed("POST", "/b/k", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("PATCH", "/b/k", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("DELETE", "/", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("DELETE", "/riak-cs/stats", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("GET", "/riak-cs/what", "", None), Err(Code::NoSuchKey));
        assert_eq!(routed("GET", "/riak-cs/usage.KEY.abj", "", None), Ok(Op::AdminUsage));
        assert_eq!(routed("GET", "/usage/KEY/abj", "a", None), Ok(Op::AdminUsage));
        let target = Target { bucket: "b".into(), key: "k".into() };
        let fault = route(&Method::POST, &target, &Query::default(), &HeaderMap::new()).unwrap_err();
        assert!(fault.extras.contains(&("AllowedMethods", "GET, HEAD, PUT, DELETE".into())), "{:?}", fault.extras);
    }
}
