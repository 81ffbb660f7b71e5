//! Routing: selects the most specific row of the operation table. A request with a sub-resource that the row does not
//! handle is refused: a PUT of `?website` treated as PutObject would overwrite the object.

use hyper::Method;
use hyper::header::HeaderMap;

use crate::errors::{Code, S3Error};
use crate::operations::{OPERATIONS, OperationScope, OperationSpec, UNSUPPORTED_PARAMETERS};
use crate::target::ResourcePath;
use crate::target::S3Query;

/// The bucket that stands for the admin API of Riak CS.
pub const ADMIN_BUCKET: &str = "riak-cs";
/// The bucket that stands for usage reports.
pub const USAGE_BUCKET: &str = "usage";

/// Parameters that a writing request may carry without a value.
const MAY_BE_EMPTY: &[&str] = &["partNumber", "versionId", "x-id", "select-type"];

/// The header that turns a PUT into a copy.
const COPY_SOURCE: &str = "x-amz-copy-source";

/// The kind of resource that a request addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceKind<'a> {
    Service,
    Bucket,
    Object,
    Admin(&'a str),
}

impl ResourceKind<'_> {
    fn is_in(self, scope: OperationScope) -> bool {
        match (self, scope) {
            (Self::Service, OperationScope::Service)
            | (Self::Bucket, OperationScope::Bucket)
            | (Self::Object, OperationScope::Object) => true,
            (Self::Admin(segment), OperationScope::Admin(name)) => segment == name,
            _ => false,
        }
    }

    fn resource_type(self) -> &'static str {
        match self {
            Self::Service => "SERVICE",
            Self::Bucket => "BUCKET",
            Self::Object => "OBJECT",
            Self::Admin(_) => "ADMIN",
        }
    }
}

/// Whether the target belongs to the admin API of Riak CS.
#[must_use]
pub fn is_admin(target: &ResourcePath) -> bool {
    target.bucket == ADMIN_BUCKET || target.bucket == USAGE_BUCKET
}

/// Returns the operation of a request.
///
/// # Errors
/// `NotImplemented` for an unsupported sub-resource, `MethodNotAllowed`, `InvalidArgument` for a part number without an
/// upload id, `NoSuchKey` for an unknown admin path.
pub fn route(
    method: &Method,
    target: &ResourcePath,
    query: &S3Query,
    headers: &HeaderMap,
) -> Result<&'static OperationSpec, S3Error> {
    let kind = resource_kind(target)?;
    let of_scope = || OPERATIONS.iter().filter(|operation| kind.is_in(operation.scope));
    if of_scope().next().is_none() {
        return Err(Code::NoSuchKey.into());
    }
    let fits = |operation: &&OperationSpec| {
        operation.method == *method
            && operation.query_params.iter().all(|key| has(query, key))
            && operation.header.is_none_or(|name| headers.contains_key(name))
    };
    let operation = of_scope().filter(fits).max_by_key(|operation| specificity(operation));
    if !matches!(kind, ResourceKind::Admin(_))
        && let Some((name, _)) =
            query.iter().find(|(name, value)| is_unsupported(operation, method, headers, name, value))
    {
        return Err(S3Error::parameter_not_offered(name));
    }
    let Some(operation) = operation else { return Err(not_allowed(method, kind)) };
    let writes = matches!(*method, Method::PUT | Method::DELETE);
    if writes && kind == ResourceKind::Object && query.has("partNumber") && !query.has("uploadId") {
        let value = query.get("partNumber").unwrap_or_default();
        return Err(S3Error::argument("partNumber", value, "A part number needs the id of an upload"));
    }
    Ok(operation)
}

fn resource_kind(target: &ResourcePath) -> Result<ResourceKind<'_>, S3Error> {
    match &*target.bucket {
        "" => Ok(ResourceKind::Service),
        USAGE_BUCKET => Ok(ResourceKind::Admin("usage")),
        ADMIN_BUCKET => {
            let key = std::str::from_utf8(&target.key).map_err(|_| Code::InvalidURI)?;
            Ok(ResourceKind::Admin(key.split(['/', '.']).next().unwrap_or_default()))
        }
        _ if target.key.is_empty() => Ok(ResourceKind::Bucket),
        _ => Ok(ResourceKind::Object),
    }
}

fn has(query: &S3Query, key: &str) -> bool {
    match key.split_once('=') {
        Some((name, value)) => query.get(name) == Some(value),
        None => query.has(key),
    }
}

/// A parameter outranks a header: `?acl` in a request that also names a copy source addresses the ACL.
fn specificity(operation: &OperationSpec) -> usize {
    operation.query_params.len() * 2 + usize::from(operation.header.is_some())
}

/// Whether a parameter asks for something that the selected operation does not do.
fn is_unsupported(
    operation: Option<&'static OperationSpec>,
    method: &Method,
    headers: &HeaderMap,
    name: &str,
    value: &str,
) -> bool {
    if operation.is_some_and(|operation| operation.query_params.contains(&name)) {
        return false;
    }
    if is_subresource(name) {
        // Clients send HEAD with an upload id and expect HeadObject.
        return !(*method == Method::HEAD && name == "uploadId");
    }
    let writes = *method != Method::GET && *method != Method::HEAD;
    if writes && name.eq_ignore_ascii_case(COPY_SOURCE) {
        // A presigned link has made it a header. Treated as a plain PUT, the copy would replace the object with an empty one.
        return !headers.contains_key(COPY_SOURCE);
    }
    writes && value.is_empty() && !MAY_BE_EMPTY.contains(&name) && !name.to_ascii_lowercase().starts_with("x-amz-")
}

/// Whether a parameter selects the operation: the first of each row does, the others are arguments that another one has, too.
pub(crate) fn is_subresource(name: &str) -> bool {
    let selects = |operation: &OperationSpec| operation.query_params.first() == Some(&name);
    UNSUPPORTED_PARAMETERS.contains(&name) || OPERATIONS.iter().any(selects)
}

/// The order of methods in an `Allow` header.
static ALLOW_ORDER: [Method; 5] = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];

/// 405 with the methods of the operations that need neither a parameter nor a header.
fn not_allowed(method: &Method, kind: ResourceKind<'_>) -> S3Error {
    let fits = |allowed: &Method| {
        let mut rows = OPERATIONS.iter().filter(|row| row.method == *allowed && kind.is_in(row.scope));
        rows.any(|row| row.query_params.is_empty() && row.header.is_none())
    };
    let allowed: Vec<&str> = ALLOW_ORDER.iter().filter(|allowed| fits(allowed)).map(Method::as_str).collect();
    S3Error::not_allowed(method.as_str(), kind.resource_type(), &allowed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn routed(method: &str, path: &str, query: &str, header: Option<&'static str>) -> Result<&'static str, Code> {
        let target = ResourcePath::parse(&crate::target::AddressingStyle::PathStyle, path).unwrap();
        let headers =
            header.map(|name| (name.parse().unwrap(), HeaderValue::from_static("/b/k"))).into_iter().collect();
        let operation = route(&method.parse().unwrap(), &target, &S3Query::parse(Some(query)), &headers);
        operation.map(|operation| operation.name).map_err(|error| error.code)
    }

    #[test]
    fn every_row_is_reached_by_its_own_request() {
        for operation in OPERATIONS {
            let path = match operation.scope {
                OperationScope::Service => "/".to_owned(),
                OperationScope::Bucket => "/b".to_owned(),
                OperationScope::Object => "/b/k".to_owned(),
                OperationScope::Admin(segment) => format!("/riak-cs/{segment}"),
            };
            for suffix in ["", "&x-id=Whatever&X-Amz-Date=&versionId=1"] {
                let query = operation.query_params.join("&") + suffix;
                let name = routed(operation.method.as_str(), &path, &query, operation.header);
                assert_eq!(name, Ok(operation.name), "{} {path}?{query}", operation.method.as_str());
            }
        }
    }

    #[test]
    fn an_unknown_subresource_is_never_a_plain_put_or_get() {
        for (method, path, query) in [
            ("PUT", "/b/k", "website"),
            ("PUT", "/b", "metadataTable"),
            ("PUT", "/b/k", "annotation&tagging"),
            ("PUT", "/b/k", "something-new"),
            ("DELETE", "/b", "lifecycle&website"),
            ("GET", "/b/k", "lifecycle"),
            ("GET", "/b/k", "inventory&id=1"),
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
    fn a_list_of_directory_buckets_was_one_of_all_buckets() {
        assert_eq!(routed("GET", "/", "x-id=ListDirectoryBuckets", None), Ok("ListDirectoryBuckets"));
        assert_eq!(routed("GET", "/", "max-directory-buckets=3", None), Err(Code::NotImplemented));
        assert_eq!(routed("GET", "/", "x-id=ListBuckets", None), Ok("ListBuckets"));
    }

    #[test]
    fn a_client_of_minio_that_listens_for_events_got_a_list_of_keys() {
        let listening = "events=s3%3AObjectCreated%3A%2A&events=s3%3AObjectAccessed%3A%2A&ping=10&prefix=&suffix=";
        for path in ["/", "/b"] {
            assert_eq!(routed("GET", path, listening, None), Err(Code::NotImplemented), "{path}");
        }
    }

    #[test]
    fn the_answer_of_an_object_lambda_was_a_form_without_a_form() {
        let route = Some("x-amz-request-route");
        for path in ["/WriteGetObjectResponse", "/route/WriteGetObjectResponse"] {
            assert_eq!(routed("POST", path, "", route), Ok("WriteGetObjectResponse"), "{path}");
        }
        assert_eq!(routed("POST", "/b", "", None), Ok("PostObject"));
        assert_eq!(routed("POST", "/b/k", "uploads", route), Ok("CreateMultipartUpload"));
    }

    #[test]
    fn the_most_specific_row_wins() {
        let copy = Some("x-amz-copy-source");
        assert_eq!(routed("PUT", "/b/k", "", copy), Ok("CopyObject"));
        assert_eq!(routed("PUT", "/b/k", "acl", copy), Ok("PutObjectAcl"));
        assert_eq!(routed("PUT", "/b/k", "uploadId=u&partNumber=1", copy), Ok("UploadPartCopy"));
        assert_eq!(routed("PUT", "/b/k", "uploadId=&partNumber=1", None), Ok("UploadPart"));
        assert_eq!(routed("GET", "/b/k", "uploadId=", None), Ok("ListParts"));
        assert_eq!(routed("HEAD", "/b/k", "uploadId=u", None), Ok("HeadObject"));
        assert_eq!(routed("GET", "/b", "list-type=1", None), Ok("ListObjects"));
        assert_eq!(routed("GET", "/b", "list-type=2&versions", None), Ok("ListObjectVersions"));
        assert_eq!(routed("GET", "/b/k", "cachebuster", None), Ok("GetObject"));
        assert_eq!(routed("GET", "/b/k", "id=1", None), Ok("GetObject"));
        assert_eq!(routed("GET", "/b", "inventory&id=1", None), Ok("GetBucketInventoryConfiguration"));
        assert_eq!(routed("GET", "/b", "inventory", None), Ok("ListBucketInventoryConfigurations"));
        assert_eq!(routed("GET", "/b/k", "annotation&annotationName=n", None), Ok("GetObjectAnnotation"));
        assert_eq!(routed("PUT", "/b/k", "partNumber=1", None), Err(Code::InvalidArgument));
    }

    #[test]
    fn unknown_methods_and_admin_paths_are_refused() {
        assert_eq!(routed("POST", "/b/k", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("PATCH", "/b/k", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("DELETE", "/", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("DELETE", "/riak-cs/stats", "", None), Err(Code::MethodNotAllowed));
        assert_eq!(routed("GET", "/riak-cs/what", "", None), Err(Code::NoSuchKey));
        assert_eq!(routed("GET", "/riak-cs/usage.KEY.abj", "", None), Ok("AdminUsage"));
        assert_eq!(routed("GET", "/usage/KEY/abj", "a", None), Ok("AdminUsage"));
        let target = ResourcePath { bucket: "b".into(), key: "k".into() };
        let error = route(&Method::POST, &target, &S3Query::default(), &HeaderMap::new()).unwrap_err();
        assert!(error.extras.contains(&("AllowedMethods", "GET, HEAD, PUT, DELETE".into())), "{:?}", error.extras);
    }
}
