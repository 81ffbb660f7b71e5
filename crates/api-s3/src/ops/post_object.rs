//! `POST /bucket` with a form: uploads from browsers.
//!
//! ```text
//! form      the fields before the file, and the file as a stream
//! policy    the POST policy: what the signer allows in the fields
//! response  the document or the redirect for the browser
//! ```

mod form;
mod policy;
mod response;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use larder_rows::limits::OBJECT_TAGS_MAX;
use larder_s3::Caller;
use larder_s3::put::{PutObject, UploadBody, WriteConditions};
use larder_s3_rules::Tag;
use larder_s3_rules::access::AccessContext;

use super::{checksums, conditions, encryption, grants, lock_headers, object_metadata, tagging};
use crate::auth::{self, post::FormSignature};
use crate::body::DOCUMENT_TIME_MAX;
use crate::call::{self, S3Call};
use crate::errors::{Code, S3Error};
use crate::response::S3Response;
use crate::write_terms;
use form::{FormFields, PostForm};
use policy::PostPolicy;

/// Fields that equal PutObject headers of the same name, besides those with a prefix.
const HEADERS: &[&str] = &[
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "content-md5",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-acl",
    "x-amz-tagging",
];
/// Prefixes of such fields.
const PREFIXES: &[&str] =
    &["x-amz-meta-", "x-amz-checksum-", "x-amz-grant-", "x-amz-server-side-", "x-amz-object-lock-"];

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let mut form = PostForm::open(&call.headers, call.take_body())?;
    // Bound: a form that never ends must not hold its admission.
    let fields = tokio::time::timeout(DOCUMENT_TIME_MAX, form.fields()).await.map_err(|_| Code::RequestTimeout)??;
    let (mut caller, policy) = signer(call, &fields).await?;
    let key = form_key(&fields)?;
    let range = match &policy {
        Some(policy) => policy.check(&fields, &call.bucket, &key, call.now)?,
        None => None,
    };
    // The policy is checked before the file is read: a refused form stores nothing.
    let headers = form_headers(&fields)?;
    let mut metadata = object_metadata::metadata_from_headers(&headers, call.now)?;
    metadata.acl = grants::acl_from_headers(&headers)?;
    if let Some(document) = fields.get("tagging") {
        metadata.tags = tagging::read(document.as_bytes(), OBJECT_TAGS_MAX)?;
    }
    update_access_context(&mut caller.access_context, &headers, &metadata.tags);
    let key_bytes = Bytes::copy_from_slice(key.as_bytes());
    metadata.encryption = encryption::choice_for(call, &caller, &key_bytes, &headers).await?;
    let (md5, checksum) = (checksums::md5(&headers)?, checksums::wanted(&headers)?);
    let (stream, failure) = form.file(range)?;
    let request = PutObject {
        bucket: call.bucket.clone(),
        key: key_bytes,
        metadata,
        upload_body: UploadBody { stream: Box::new(stream), length: None, md5, checksum },
        conditions: WriteConditions::default(),
    };
    let stored = call.objects.post(&caller, request).await.map_err(|error| failure.error_for(error))?;
    Ok(response::stored_response(call, &fields, &headers, &key, &stored))
}

/// Authenticates the signer of the form and parses its policy. An unsigned form keeps the anonymous caller.
async fn signer(call: &S3Call, fields: &FormFields) -> Result<(Caller, Option<PostPolicy>), S3Error> {
    let Some(signature) = FormSignature::from_fields(|name| fields.get(name))? else {
        return Ok((call.caller.clone(), None));
    };
    if let (Some(ours), Some(theirs)) = (call.settings.region.as_deref(), signature.region())
        && ours != theirs
    {
        let message = format!("the region '{theirs}' is wrong; expecting '{ours}'");
        return Err(S3Error::new(Code::AuthorizationHeaderMalformed, message).with("Region", ours));
    }
    let token = fields.get(auth::SECURITY_TOKEN);
    let holder = call::holder_of_key(&call.objects, &signature.access_key, token).await?;
    signature.verify(holder.secret())?;
    let holder = call::require_usable(holder, call.now)?;
    let (policies, is_session) = (holder.policies(), holder.session().is_some());
    let mut caller = Caller { user: Some(holder.user), policies, ..call.caller.clone() };
    caller.access_context.is_session = is_session;
    let keys = &mut caller.access_context.keys;
    // The form's signature counts now, not the request's missing one.
    keys.retain(|(name, _)| !matches!(*name, "s3:authType" | "s3:signatureversion"));
    let version = if signature.region().is_some() { "AWS4-HMAC-SHA256" } else { "AWS" };
    keys.extend([("s3:authType", "POST".to_owned()), ("s3:signatureversion", version.to_owned())]);
    Ok((caller, Some(PostPolicy::parse(signature.policy())?)))
}

/// Updates the context that a bucket policy tests: the fields of the form count, the request's own headers do not.
fn update_access_context(access_context: &mut AccessContext, headers: &HeaderMap, tags: &[Tag]) {
    access_context.keys.retain(|(name, _)| !name.starts_with("s3:x-amz-"));
    lock_headers::replace_conditions(access_context, Vec::new());
    access_context.keys.extend(conditions::header_conditions(headers, access_context.now));
    access_context.request_tags = tags.to_vec();
}

/// The key, with `${filename}` replaced by the name of the file.
fn form_key(fields: &FormFields) -> Result<String, S3Error> {
    let message =
        "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields.";
    let missing = || S3Error::argument("key", "", message);
    let key = fields.get("key").filter(|key| !key.is_empty()).ok_or_else(missing)?;
    let key = key.replace("${filename}", fields.file_name());
    if key.is_empty() { Err(missing()) } else { Ok(key) }
}

/// The fields that equal PutObject headers.
fn form_headers(fields: &FormFields) -> Result<HeaderMap, S3Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter() {
        let name = match name {
            "acl" => grants::CANNED,
            name if write_terms::is_refused_field(name) => return Err(S3Error::field_not_offered(name)),
            name if HEADERS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => name,
            _ => continue,
        };
        let bad = || S3Error::new(Code::InvalidArgument, format!("The field {name} cannot be one of the object."));
        let header = HeaderName::try_from(name).map_err(|_| bad())?;
        headers.append(header, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_may_contain_the_file_name() {
        let key = |key: &str| {
            form_key(&FormFields::fixed(&[("key", key)], "C:\\a\\b.txt")).map_err(|error| error.extras[0].1.clone())
        };
        assert_eq!(key("k"), Ok("k".into()));
        assert_eq!(key("dir/${filename}"), Ok("dir/b.txt".into()));
        assert_eq!(key(""), Err("key".into()));
        assert!(form_key(&FormFields::fixed(&[], "f")).is_err());
        assert!(form_key(&FormFields::fixed(&[("key", "${filename}")], "")).is_err());
    }

    #[test]
    fn a_bucket_policy_sees_the_form_and_not_the_headers_around_it() {
        let keys = vec![("s3:x-amz-acl", "private".to_owned()), ("aws:UserAgent", "u".to_owned())];
        let mut access_context = AccessContext { keys, ..AccessContext::default() };
        let headers = form_headers(&FormFields::fixed(&[("acl", "public-read")], "")).unwrap();
        let tag = Tag { key: "a".into(), value: "b".into() };
        update_access_context(&mut access_context, &headers, std::slice::from_ref(&tag));
        assert_eq!(access_context.keys, [("aws:UserAgent", "u".into()), ("s3:x-amz-acl", "public-read".into())]);
        assert_eq!(access_context.request_tags, [tag]);
    }

    #[test]
    fn only_known_fields_become_headers() {
        let fields = FormFields::fixed(
            &[
                ("acl", "public-read"),
                ("content-type", "text/plain"),
                ("x-amz-meta-a", "é"),
                ("policy", "p"),
                ("x-amz-date", "d"),
            ],
            "",
        );
        let headers = form_headers(&fields).unwrap();
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "x-amz-acl", "x-amz-meta-a"]);
        assert!(form_headers(&FormFields::fixed(&[("x-amz-meta-a b", "c")], "")).is_err());
        assert!(form_headers(&FormFields::fixed(&[("x-amz-meta-a", "c\n")], "")).is_err());
    }
}
