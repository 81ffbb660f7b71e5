//! `POST /bucket` with a form: what browsers upload with.
//!
//! ```text
//! form    the fields in front of the file, and the file as a stream
//! policy  what the signer of the form allows its fields to be
//! answer  what the browser is sent, or sent to
//! ```

mod answer;
mod form;
mod policy;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use larder_gateway::objects::Caller;
use larder_gateway::objects::put::{Incoming, PutObject, WriteConditions};
use larder_model::limits::OBJECT_TAGS_MAX;
use larder_model::objects::Tag;
use larder_model::objects::access::Circumstances;

use super::{about, checksums, grants, tagging};
use crate::auth::post::Claim;
use crate::body::DOCUMENT_TIME_MAX;
use crate::call::{Call, joined};
use crate::errors::{Code, Fault};
use crate::identity;
use crate::reply::Reply;

use form::{Fields, Form};
use policy::Policy;

/// Fields that are headers of a put by the same name, beside those with a prefix.
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
];
/// What other such fields begin with.
const PREFIXES: &[&str] =
    &["x-amz-meta-", "x-amz-checksum-", "x-amz-grant-", "x-amz-server-side-", "x-amz-object-lock-"];

/// Condition keys of policies with the headers they are about.
const POLICY_KEYS: &[(&str, &str)] = &[
    ("s3:x-amz-acl", grants::CANNED),
    ("s3:x-amz-grant-read", "x-amz-grant-read"),
    ("s3:x-amz-grant-write", "x-amz-grant-write"),
    ("s3:x-amz-grant-read-acp", "x-amz-grant-read-acp"),
    ("s3:x-amz-grant-write-acp", "x-amz-grant-write-acp"),
    ("s3:x-amz-grant-full-control", "x-amz-grant-full-control"),
    ("s3:x-amz-storage-class", "x-amz-storage-class"),
];

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let mut form = Form::open(&call.headers, call.take_body())?;
    let fields = tokio::time::timeout(DOCUMENT_TIME_MAX, form.fields()).await.map_err(|_| Code::RequestTimeout)??;
    let (mut caller, policy) = signer(call, &fields).await?;
    let key = key_of(&fields)?;
    let range = match &policy {
        Some(policy) => policy.check(&fields, &call.bucket, &key, call.now)?,
        None => None,
    };
    let headers = headers_of(&fields)?;
    let mut about = about::of(&headers)?;
    about.acl = grants::of(&headers)?;
    if let Some(document) = fields.get("tagging") {
        about.tags = tagging::read(document.as_bytes(), OBJECT_TAGS_MAX)?;
    }
    said(&mut caller.circumstances, &headers, &about.tags);
    let (md5, checksum) = (checksums::md5(&headers)?, checksums::wanted(&headers)?);
    let (stream, verdict) = form.file(range)?;
    let request = PutObject {
        bucket: call.bucket.clone(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        about,
        incoming: Incoming { stream: Box::new(stream), length: None, md5, checksum },
        conditions: WriteConditions::default(),
    };
    let stored = call.objects.put(&caller, request).await.map_err(|error| verdict.of(error))?;
    Ok(answer::of(call, &fields, &key, &stored))
}

/// Who signed the form, and what for. Nobody: then it depends on what everybody may.
async fn signer(call: &Call, fields: &Fields) -> Result<(Caller, Option<Policy>), Fault> {
    let Some(claim) = Claim::of(|name| fields.get(name))? else { return Ok((call.caller.clone(), None)) };
    if let (Some(ours), Some(theirs)) = (call.settings.region.as_deref(), claim.region())
        && ours != theirs
    {
        let message = format!("the region '{theirs}' is wrong; expecting '{ours}'");
        return Err(Fault::new(Code::AuthorizationHeaderMalformed, message).with("Region", ours));
    }
    let user = identity::by_key(&call.objects, &claim.access_key).await?;
    claim.check(&user.secret)?;
    let mut circumstances = call.caller.circumstances.clone();
    circumstances.keys.retain(|(name, _)| !matches!(*name, "s3:authType" | "s3:signatureversion"));
    let version = if claim.region().is_some() { "AWS4-HMAC-SHA256" } else { "AWS" };
    circumstances.keys.extend([("s3:authType", "POST".to_owned()), ("s3:signatureversion", version.to_owned())]);
    let caller = Caller { user: Some(identity::enabled(user)?), circumstances };
    Ok((caller, Some(Policy::parse(claim.policy())?)))
}

/// Lets the bucket's policy see what the form says in the place of headers, and not what headers say: they count for nothing.
fn said(circumstances: &mut Circumstances, headers: &HeaderMap, tags: &[Tag]) {
    circumstances.keys.retain(|(name, _)| !name.starts_with("s3:x-amz-"));
    for (key, header) in POLICY_KEYS {
        let value = joined(headers, *header).map(|value| String::from_utf8_lossy(&value).into_owned());
        circumstances.keys.extend(value.map(|value| (*key, value)));
    }
    circumstances.request_tags = tags.to_vec();
}

/// The key, the file's name put in where it is asked for.
fn key_of(fields: &Fields) -> Result<String, Fault> {
    let message =
        "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields.";
    let missing = || Fault::argument("key", "", message);
    let key = fields.get("key").filter(|key| !key.is_empty()).ok_or_else(missing)?;
    let key = key.replace("${filename}", fields.file_name());
    if key.is_empty() { Err(missing()) } else { Ok(key) }
}

/// The fields that would be headers of a put.
fn headers_of(fields: &Fields) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter() {
        let name = match name {
            "acl" => grants::CANNED,
            name if HEADERS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => name,
            _ => continue,
        };
        let bad = || Fault::new(Code::InvalidArgument, format!("The field {name} cannot be one of the object."));
        let header = HeaderName::try_from(name).map_err(|_| bad())?;
        headers.append(header, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = |key: &str| {
            key_of(&Fields::fixed(&[("key", key)], "C:\\a\\b.txt")).map_err(|fault| fault.extras[0].1.clone())
        };
        assert_eq!(key("k"), Ok("k".into()));
        assert_eq!(key("dir/${filename}"), Ok("dir/b.txt".into()));
        assert_eq!(key(""), Err("key".into()));
        assert!(key_of(&Fields::fixed(&[], "f")).is_err());
        assert!(key_of(&Fields::fixed(&[("key", "${filename}")], "")).is_err());
    }

    #[test]
    fn a_bucket_policy_sees_the_form_and_not_the_headers_around_it() {
        let keys = vec![("s3:x-amz-acl", "private".to_owned()), ("aws:UserAgent", "u".to_owned())];
        let mut circumstances = Circumstances { keys, ..Circumstances::default() };
        let headers = headers_of(&Fields::fixed(&[("acl", "public-read")], "")).unwrap();
        let tag = Tag { key: "a".into(), value: "b".into() };
        said(&mut circumstances, &headers, std::slice::from_ref(&tag));
        assert_eq!(circumstances.keys, [("aws:UserAgent", "u".into()), ("s3:x-amz-acl", "public-read".into())]);
        assert_eq!(circumstances.request_tags, [tag]);
    }

    #[test]
    fn fields_that_are_headers() {
        let fields = Fields::fixed(
            &[
                ("acl", "public-read"),
                ("content-type", "text/plain"),
                ("x-amz-meta-a", "é"),
                ("policy", "p"),
                ("x-amz-date", "d"),
            ],
            "",
        );
        let headers = headers_of(&fields).unwrap();
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "x-amz-acl", "x-amz-meta-a"]);
        assert!(headers_of(&Fields::fixed(&[("x-amz-meta-a b", "c")], "")).is_err());
        assert!(headers_of(&Fields::fixed(&[("x-amz-meta-a", "c\n")], "")).is_err());
    }
}
