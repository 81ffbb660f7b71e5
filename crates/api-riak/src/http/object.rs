//! GET and HEAD of an object, and the answers that show a value, which puts with `returnbody` give too.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, LINK, VARY,
};

use larder_gateway::Error;
use larder_gateway::body::Download;
use larder_gateway::kv::{Found, GetObject};
use larder_model::causality::{Current, Failed, Sibling};
use larder_model::content::Content;

use super::body::Body;
use super::call::Call;
use super::conditional;
use super::headers::{OCTETS, describe, insert};
use super::links::{self, Style};
use super::params::Params;
use super::range::Span;
use super::reply::{
    DELETED, Fault, Reply, STEPPED_DOWN, TEXT, VARY_BOTH, VARY_ENCODING, VCLOCK, empty, not_found_page, text, with_body,
};
use super::routes::Part;
use super::{accept, multipart, path};

/// Media types that siblings come in: the first is the default.
const SIBLING_MEDIA: [&str; 2] = ["text/plain", "multipart/mixed"];

/// Where a value is shown: what its links and its answer depend on.
pub(super) struct Place {
    /// Form of the links.
    pub style: Style,
    /// The bucket.
    pub bucket: Bytes,
}

impl Place {
    /// Of the object of a request.
    #[must_use]
    pub(super) fn of(call: &Call<'_>) -> Self {
        let style = if call.route.is_old() { Style::Riak } else { Style::Buckets };
        Self { style, bucket: path::name(call.raw(Part::Bucket)) }
    }
}

/// GET and HEAD.
///
/// # Errors
/// A parameter, a header or the gateway refuses.
pub(super) async fn get(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = Params::of(&call.query)?;
    let request = GetObject {
        address: call.address()?,
        quorums: params.quorums,
        bodies: !call.is_head(),
        timeout: params.timeout,
    };
    let found = call.gateway.get(request).await?;
    let stepped_down = found.stepped_down;
    let mut reply = show(call, found)?;
    if stepped_down {
        reply.headers_mut().insert(STEPPED_DOWN, HeaderValue::from_static("true"));
    }
    Ok(reply)
}

/// The answer: nothing, one value, or siblings.
fn show(call: &Call<'_>, found: Found) -> Result<Reply, Fault> {
    if found.versions.siblings.is_empty() {
        return Ok(missing(&found));
    }
    let several = found.versions.siblings.len() > 1;
    match call.query.get("vtag") {
        None if several => show_siblings(call, found),
        None => show_one(call, found, 0),
        Some(vtag) => {
            let place = found.versions.siblings.iter().position(|one| one.vtag().as_bytes() == vtag);
            place.map_or_else(|| Ok(not_found_page()), |place| show_one(call, found, place))
        }
    }
}

/// 404; of a tombstone its context too, which a client needs to write the key again without a sibling.
fn missing(found: &Found) -> Reply {
    let mut reply = text(StatusCode::NOT_FOUND, "not found\n");
    if found.versions.deleted {
        reply.headers_mut().insert(DELETED, HeaderValue::from_static("true"));
        set_context(&mut reply, found.context.as_ref());
    }
    reply
}

fn show_one(call: &Call<'_>, found: Found, place: usize) -> Result<Reply, Fault> {
    let Some(sibling) = found.versions.siblings.get(place) else { return Ok(not_found_page()) };
    negotiate(call.headers, &sibling.content)?;
    let etag = sibling.vtag();
    if let Some(reply) = refuse(call, &found, &etag, sibling.modified())? {
        return Ok(with_vary(reply, vary_of(&sibling.content)));
    }
    let span = if call.is_head() { None } else { Span::asked(call.headers, sibling.content.body.length(), &etag) };
    Ok(one(&Place::of(call), found, place, &etag, span))
}

fn show_siblings(call: &Call<'_>, found: Found) -> Result<Reply, Fault> {
    let media = accept::media(call.headers, &SIBLING_MEDIA);
    let media = media.ok_or_else(|| Fault::page(StatusCode::NOT_ACCEPTABLE))?;
    let etag = found.versions.etag().unwrap_or_default();
    let modified = found.versions.modified().unwrap_or_default();
    if let Some(reply) = refuse(call, &found, &etag, modified)? {
        return Ok(with_vary(reply, Some(VARY_BOTH)));
    }
    let mut reply = siblings(&Place::of(call), found, media == 1);
    reply.headers_mut().insert(VARY, VARY_BOTH);
    Ok(reply)
}

/// What `Accept`, `Accept-Charset` and `Accept-Encoding` say of a value (Riak KV HTTP reference §0.1).
fn negotiate(headers: &HeaderMap, content: &Content) -> Result<(), Fault> {
    let media = content.content_type.as_deref().map(String::from_utf8_lossy);
    let media = accept::media(headers, &[media.as_deref().unwrap_or(OCTETS)]).is_some();
    let charset = accept::takes_charset(headers, content.charset.as_deref());
    if media && charset && accept::takes_encoding(headers, content.encoding.as_deref()) {
        return Ok(());
    }
    Err(Fault::page(StatusCode::NOT_ACCEPTABLE))
}

/// The answer when a condition of a read does not hold.
fn refuse(call: &Call<'_>, found: &Found, etag: &str, modified: u64) -> Result<Option<Reply>, Fault> {
    let conditions = conditional::conditions(call.headers);
    if conditions.is_empty() {
        return Ok(None);
    }
    let current = Current { etag: Some(etag), modified: modified / 1_000_000, context: &found.versions.context };
    match conditions.check(current, true, call.gateway.now() / 1_000_000) {
        Ok(()) => Ok(None),
        Err(Failed::NotModified) => {
            let mut reply = empty(StatusCode::NOT_MODIFIED);
            set_etag(&mut reply, etag);
            Ok(Some(reply))
        }
        Err(failed) => Ok(Some(super::reply::of_error(&Error::Condition(failed)))),
    }
}

/// 200 or 206 with one value of what was found, whose entity tag is `etag`. Without its body when bodies were not asked for.
#[must_use]
pub(super) fn one(place: &Place, mut found: Found, index: usize, etag: &str, span: Option<Span>) -> Reply {
    let Some(sibling) = found.versions.siblings.get(index) else { return not_found_page() };
    let size = sibling.content.body.length();
    let download = (index < found.bodies.len()).then(|| found.bodies.swap_remove(index));
    let mut reply = value(download, size, span);
    let content = &sibling.content;
    set_times(&mut reply, etag, sibling.modified());
    set_context(&mut reply, found.context.as_ref());
    let headers = reply.headers_mut();
    describe(content, headers);
    insert(headers, LINK, links::render(&content.links, place.style, &place.bucket));
    with_vary(reply, vary_of(content))
}

fn value(download: Option<Download>, size: u64, span: Option<Span>) -> Reply {
    let Some(download) = download else {
        let mut reply = empty(StatusCode::OK);
        reply.headers_mut().reserve(10);
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
        return reply;
    };
    let Some(span) = span else {
        let mut reply = with_body(StatusCode::OK, Body::of(download));
        reply.headers_mut().reserve(10);
        return reply;
    };
    let mut reply = with_body(StatusCode::PARTIAL_CONTENT, Body::part(download, span.from, span.length));
    insert(reply.headers_mut(), CONTENT_RANGE, span.header(size));
    reply.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    reply
}

/// 300 with the values as parts of a multipart body, or with a list of their tags. What parts the body is their common entity
/// tag: no value could know it when it was written, and it is the same for the same values.
#[must_use]
pub(super) fn siblings(place: &Place, found: Found, as_parts: bool) -> Reply {
    let (etag, modified) = (found.versions.etag().unwrap_or_default(), found.versions.modified().unwrap_or_default());
    let context = found.context.clone();
    let mut reply = match as_parts {
        true => multipart::siblings(place, found, &etag),
        false => tags(&found.versions.siblings),
    };
    *reply.status_mut() = StatusCode::MULTIPLE_CHOICES;
    set_times(&mut reply, &etag, modified);
    set_context(&mut reply, context.as_ref());
    with_vary(reply, Some(VARY_ENCODING))
}

fn tags(siblings: &[Sibling]) -> Reply {
    let mut list = String::from("Siblings:\n");
    for sibling in siblings {
        list.push_str(&sibling.vtag());
        list.push('\n');
    }
    super::reply::typed(StatusCode::MULTIPLE_CHOICES, TEXT, list)
}

/// Which of [`SIBLING_MEDIA`] a write that shows siblings answers with: a write is never refused for its `Accept`.
#[must_use]
pub(super) fn wants_multipart(headers: &HeaderMap) -> bool {
    accept::media(headers, &SIBLING_MEDIA) == Some(1)
}

/// A moment as HTTP writes it.
#[must_use]
pub(super) fn http_date(micros: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(micros / 1_000_000))
}

fn set_times(reply: &mut Reply, etag: &str, modified: u64) {
    set_etag(reply, etag);
    insert(reply.headers_mut(), LAST_MODIFIED, http_date(modified));
}

fn set_etag(reply: &mut Reply, etag: &str) {
    insert(reply.headers_mut(), ETAG, ["\"", etag, "\""].concat());
}

fn set_context(reply: &mut Reply, context: Option<&Bytes>) {
    if let Some(context) = context {
        insert(reply.headers_mut(), VCLOCK, STANDARD.encode(context));
    }
}

/// A value with a stored encoding is sent as it is; any other might have been encoded.
fn vary_of(content: &Content) -> Option<HeaderValue> {
    content.encoding.is_none().then_some(VARY_ENCODING)
}

fn with_vary(mut reply: Reply, vary: Option<HeaderValue>) -> Reply {
    if let Some(vary) = vary {
        reply.headers_mut().insert(VARY, vary);
    }
    reply
}
