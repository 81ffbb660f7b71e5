//! GET and HEAD of an object, and the answers with values, which puts with `returnbody` use too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, LINK, RANGE,
    VARY,
};
use larder_core::Error;
use larder_core::body::GetBody;
use larder_kv::rules::causality::{Context, CurrentValue, FailedCondition, Sibling, Vtag};
use larder_kv::{FetchedObject, KvGet};
use larder_rows::Timestamp;
use larder_rows::content::KvContent;

use super::body::RiakBody;
use super::call::RiakCall;
use super::errors::{RiakFault, error_response};
use super::headers::{self, OCTETS, add_content_headers, http_date, insert};
use super::links::{self, LinkContext};
use super::params::ObjectParams;
use super::reply::{
    DELETED, DOWNGRADED, RiakResponse, TEXT, VARY_BOTH, VARY_ENCODING, VCLOCK, empty, not_found_page, text, with_body,
};
use super::{accept, multipart};

/// Media types of siblings; the first is the default.
const SIBLING_MEDIA: [&str; 2] = ["text/plain", "multipart/mixed"];

/// GET and HEAD.
///
/// # Errors
/// An invalid parameter or header, or an error of the gateway.
pub(super) async fn get(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let params = ObjectParams::from_query(&call.query)?;
    let request =
        KvGet { address: call.address()?, quorums: params.quorums, bodies: !call.is_head(), timeout: params.timeout };
    // A `vtag` chooses among siblings; most objects are one value, which needs no wait.
    if call.query.get("vtag").is_none()
        && let Some(object) = call.gateway.kv.try_get(&request, usize::MAX)
    {
        let shown = ShownValue {
            sibling: &object.sibling,
            context: &object.context,
            encoded_context: Some(&object.encoded_context),
            body: request.bodies.then_some(GetBody::Bytes(object.value)),
        };
        return show_value(call, shown);
    }
    let object = call.gateway.kv.get(request).await?;
    let downgraded = object.downgraded;
    let mut reply = found_response(call, object)?;
    if downgraded {
        reply.headers_mut().insert(DOWNGRADED, HeaderValue::from_static("true"));
    }
    Ok(reply)
}

/// The answer: not found, one value, or siblings.
fn found_response(call: &RiakCall<'_>, object: FetchedObject) -> Result<RiakResponse, RiakFault> {
    if object.versions.siblings.is_empty() {
        return Ok(not_found_response(&object));
    }
    let several = object.versions.siblings.len() > 1;
    // With siblings only a `vtag` chooses one: any other choice would hide values.
    match call.query.get("vtag") {
        None if several => show_siblings(call, object),
        None => show_sibling(call, object, 0),
        Some(vtag) => {
            let index = object.versions.siblings.iter().position(|sibling| sibling.vtag().as_bytes() == vtag);
            index.map_or_else(|| Ok(not_found_page()), |index| show_sibling(call, object, index))
        }
    }
}

fn show_sibling(call: &RiakCall<'_>, mut object: FetchedObject, index: usize) -> Result<RiakResponse, RiakFault> {
    ShownValue::new(&mut object, index).map_or_else(|| Ok(not_found_page()), |shown| show_value(call, shown))
}

/// A value to show, and the context of its key.
pub(super) struct ShownValue<'a> {
    /// The value.
    sibling: &'a Sibling,
    context: &'a Context,
    encoded_context: Option<&'a Bytes>,
    /// `None`: the answer has the headers alone.
    body: Option<GetBody>,
}

impl<'a> ShownValue<'a> {
    /// The value at `index`, with its body if it was read. It takes the body out.
    pub(super) fn new(object: &'a mut FetchedObject, index: usize) -> Option<Self> {
        let body = (index < object.bodies.len()).then(|| object.bodies.swap_remove(index));
        let encoded_context = object.context.as_ref();
        Some(Self {
            sibling: object.versions.siblings.get(index)?,
            context: &object.versions.context,
            encoded_context,
            body,
        })
    }
}

/// 404. A tombstone's answer has its context, with which a client can write the key again without a sibling.
fn not_found_response(object: &FetchedObject) -> RiakResponse {
    let mut reply = text(StatusCode::NOT_FOUND, "not found\n");
    // Without the context the next put and the delete would be siblings [invariant 11].
    if object.versions.deleted {
        reply.headers_mut().insert(DELETED, HeaderValue::from_static("true"));
        set_context(&mut reply, object.context.as_ref());
    }
    reply
}

fn show_value(call: &RiakCall<'_>, shown: ShownValue<'_>) -> Result<RiakResponse, RiakFault> {
    let content = &shown.sibling.content;
    negotiate(call.headers, content)?;
    let etag = shown.sibling.vtag();
    if let Some(reply) = check_conditions(call, shown.context, &etag, shown.sibling.modified())? {
        return Ok(with_vary(reply, vary_header(content)));
    }
    let span =
        // A HEAD has no body: it answers the headers of the whole value.
        if call.is_head() { None } else { ByteRange::from_headers(call.headers, content.body.length(), &etag) };
    Ok(value_response(&LinkContext::from_call(call), shown, &etag, span))
}

fn show_siblings(call: &RiakCall<'_>, object: FetchedObject) -> Result<RiakResponse, RiakFault> {
    let media = accept::require(call.headers, &SIBLING_MEDIA)?;
    let etag = object.versions.etag().unwrap_or_default();
    let modified = object.versions.modified().unwrap_or_default();
    if let Some(reply) = check_conditions(call, &object.versions.context, &etag, modified)? {
        return Ok(with_vary(reply, Some(VARY_BOTH)));
    }
    let mut reply = siblings_response(&LinkContext::from_call(call), object, media == 1);
    reply.headers_mut().insert(VARY, VARY_BOTH);
    Ok(reply)
}

/// Checks `Accept`, `Accept-Charset` and `Accept-Encoding` against a value (Riak KV HTTP reference §0.1).
fn negotiate(headers: &HeaderMap, content: &KvContent) -> Result<(), RiakFault> {
    let media = accept::takes_any(headers) || {
        let media = content.content_type.as_deref().map(String::from_utf8_lossy);
        accept::media(headers, &[media.as_deref().unwrap_or(OCTETS)]).is_some()
    };
    let charset = accept::takes_charset(headers, content.charset.as_deref());
    if media && charset && accept::takes_encoding(headers, content.encoding.as_deref()) {
        return Ok(());
    }
    Err(RiakFault::page(StatusCode::NOT_ACCEPTABLE))
}

/// The answer to a read whose condition fails; `None` if all hold.
fn check_conditions(
    call: &RiakCall<'_>,
    context: &Context,
    etag: &str,
    modified: Timestamp,
) -> Result<Option<RiakResponse>, RiakFault> {
    let conditions = headers::conditions(call.headers);
    if conditions.is_empty() {
        return Ok(None);
    }
    let current = CurrentValue { etag: Some(etag), modified: modified.as_secs(), context };
    match conditions.check(current, true, call.gateway.context().now().as_secs()) {
        Ok(()) => Ok(None),
        Err(FailedCondition::NotModified) => {
            let mut reply = empty(StatusCode::NOT_MODIFIED);
            set_etag(&mut reply, etag.as_bytes());
            Ok(Some(reply))
        }
        Err(failed) => Ok(Some(error_response(&Error::Condition(failed)))),
    }
}

/// 200 or 206 with a value, whose entity tag is `etag`. A read without bodies gets the headers alone.
#[must_use]
pub(super) fn value_response(
    link_context: &LinkContext,
    shown: ShownValue<'_>,
    etag: &Vtag,
    span: Option<ByteRange>,
) -> RiakResponse {
    let content = &shown.sibling.content;
    let mut reply = value(shown.body, content.body.length(), span);
    set_times(&mut reply, etag.as_bytes(), shown.sibling.modified());
    set_context(&mut reply, shown.encoded_context);
    let headers = reply.headers_mut();
    add_content_headers(content, headers);
    insert(headers, LINK, links::render(&content.links, link_context.style, &link_context.bucket));
    with_vary(reply, vary_header(content))
}

fn value(download: Option<GetBody>, size: u64, span: Option<ByteRange>) -> RiakResponse {
    let Some(download) = download else {
        let mut reply = empty(StatusCode::OK);
        reply.headers_mut().reserve(10);
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
        return reply;
    };
    let Some(span) = span else {
        let mut reply = with_body(StatusCode::OK, RiakBody::from_download(download));
        reply.headers_mut().reserve(10);
        return reply;
    };
    let mut reply = with_body(StatusCode::PARTIAL_CONTENT, RiakBody::part(download, span.from, span.length));
    insert(reply.headers_mut(), CONTENT_RANGE, span.header(size));
    reply.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    reply
}

/// 300 with the values as parts of a multipart body, or with a list of their tags. The boundary is their common entity tag: no
/// value can contain it, since it depends on all of them, and equal values have an equal one.
#[must_use]
pub(super) fn siblings_response(link_context: &LinkContext, object: FetchedObject, as_parts: bool) -> RiakResponse {
    let (etag, modified) = (object.versions.etag().unwrap_or_default(), object.versions.modified().unwrap_or_default());
    let context = object.context.clone();
    let mut reply = match as_parts {
        true => multipart::siblings(link_context, object, &etag),
        false => tags(&object.versions.siblings),
    };
    *reply.status_mut() = StatusCode::MULTIPLE_CHOICES;
    set_times(&mut reply, etag.as_bytes(), modified);
    set_context(&mut reply, context.as_ref());
    with_vary(reply, Some(VARY_ENCODING))
}

fn tags(siblings: &[Sibling]) -> RiakResponse {
    let mut list = String::from("Siblings:\n");
    for sibling in siblings {
        list.push_str(&sibling.vtag());
        list.push('\n');
    }
    super::reply::typed(StatusCode::MULTIPLE_CHOICES, TEXT, list)
}

/// Whether a write shows siblings as multipart. A write is never refused for its `Accept`.
#[must_use]
pub(super) fn wants_multipart(headers: &HeaderMap) -> bool {
    accept::media(headers, &SIBLING_MEDIA) == Some(1)
}

fn set_times(reply: &mut RiakResponse, etag: &[u8], modified: Timestamp) {
    set_etag(reply, etag);
    insert(reply.headers_mut(), LAST_MODIFIED, http_date(modified));
}

fn set_etag(reply: &mut RiakResponse, etag: &[u8]) {
    insert(reply.headers_mut(), ETAG, [b"\"", etag, b"\""].concat());
}

fn set_context(reply: &mut RiakResponse, context: Option<&Bytes>) {
    if let Some(context) = context {
        insert(reply.headers_mut(), VCLOCK, STANDARD.encode(context));
    }
}

/// `Vary` of a value. A value with a stored encoding is sent as it is; Riak might compress any other.
fn vary_header(content: &KvContent) -> Option<HeaderValue> {
    content.encoding.is_none().then_some(VARY_ENCODING)
}

fn with_vary(mut reply: RiakResponse, vary: Option<HeaderValue>) -> RiakResponse {
    if let Some(vary) = vary {
        reply.headers_mut().insert(VARY, vary);
    }
    reply
}

/// A range of a value's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// First byte.
    pub from: u64,
    /// Number of bytes, at least one.
    pub length: u64,
}

impl ByteRange {
    /// The range that a request asks for, of a value of `size` bytes with this entity tag; `None`: the whole value.
    #[must_use]
    pub(super) fn from_headers(headers: &HeaderMap, size: u64, etag: &str) -> Option<Self> {
        let range = headers.get(RANGE)?.to_str().ok()?;
        let is_other = |tag: &HeaderValue| tag.to_str().map_or(true, |tag| headers::tag(tag) != etag);
        // The client's part belongs to another value: it needs the whole of this one.
        if headers.get(IF_RANGE).is_some_and(is_other) {
            return None;
        }
        Self::parse(range, size)
    }

    fn parse(range: &str, size: u64) -> Option<Self> {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        match (first, last) {
            (Some(from), _) if from >= size => None,
            (Some(from), None) => Some(Self { from, length: size - from }),
            (Some(from), Some(to)) => Some(Self { from, length: to.min(size - 1).checked_sub(from)? + 1 }),
            (None, Some(tail)) if tail > 0 && size > 0 => {
                let length = tail.min(size);
                Some(Self { from: size - length, length })
            }
            (None, _) => None,
        }
    }

    /// The `Content-Range` header.
    #[must_use]
    pub(super) fn header(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.from, self.from + self.length - 1)
    }
}

/// A number; the inner `None` is an empty text, the outer one is no number.
fn number(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(range: &str, size: u64, span: Option<(u64, u64)>) {
        assert_eq!(
            ByteRange::parse(range, size),
            span.map(|(from, length)| ByteRange { from, length }),
            "{range} of {size}"
        );
    }

    #[test]
    fn ranges_are_cut_to_the_value() {
        check("bytes=0-1", 6, Some((0, 2)));
        check("bytes=2-", 6, Some((2, 4)));
        check("bytes=-2", 6, Some((4, 2)));
        check("bytes=-9", 6, Some((0, 6)));
        check("bytes=0-100", 6, Some((0, 6)));
        check("bytes=5-9", 1, None);
        check("bytes=3-1", 6, None);
        check("bytes=-0", 6, None);
        check("bytes=0-", 0, None);
        check("bytes=0-1,3-4", 6, None);
        check("items=0-1", 6, None);
        check("bytes=-", 6, None);
        assert_eq!(ByteRange { from: 0, length: 2 }.header(6), "bytes 0-1/6");
    }

    #[test]
    fn a_range_of_another_version_gets_the_whole_value() {
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
        headers.insert(IF_RANGE, HeaderValue::from_static("\"old\""));
        assert_eq!(ByteRange::from_headers(&headers, 6, "new"), None);
        assert!(ByteRange::from_headers(&headers, 6, "old").is_some());
    }

    proptest! {
        #[test]
        fn ranges_lie_within_the_value(range in "bytes=[0-9]{0,20}-[0-9]{0,20}", size: u64) {
            if let Some(span) = ByteRange::parse(&range, size) {
                prop_assert!(span.length > 0 && span.from.checked_add(span.length).is_some_and(|end| end <= size));
            }
        }
    }
}
