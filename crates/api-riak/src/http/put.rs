//! PUT and POST of an object. All checks run in Riak's order (Riak KV HTTP reference §1.1), before the body is read.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, HeaderValue, LOCATION};
use larder_kv::{FetchedObject, KvPut};
use larder_net::{ArrivingBody, joined};
use larder_rows::address::Address;
use larder_rows::content::KvContent;

use super::body::upload;
use super::call::RiakCall;
use super::errors::RiakFault;
use super::headers::{self, IF_NOT_MODIFIED, check_media, content_type, insert, media_header, meta, terms};
use super::links::{self, LinkContext};
use super::object::{self, ShownValue};
use super::params::ObjectParams;
use super::path::quote_segment;
use super::reply::{RiakResponse, TEXT, done, not_found_page};
use super::routes::PathPart;
use super::write_headers::check_object_write;

/// PUT and POST of `/…/keys/K`.
///
/// # Errors
/// An invalid parameter or header, or an error of the gateway.
pub(super) async fn put(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let request = decode_request(call, None)?;
    decode_and_put(call, request, body, None).await.map_err(RiakFault::after_checks)
}

/// POST of `/…/keys`: the server makes the key and returns the object's location.
///
/// # Errors
/// An invalid parameter or header, or an error of the gateway.
pub(super) async fn post_new(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    // There is no object that it could be compared with.
    if call.headers.contains_key(IF_NOT_MODIFIED) {
        return Err(RiakFault::bad(format!("{IF_NOT_MODIFIED} needs a key in the path\n")));
    }
    let key = call.gateway.context().new_unique_name();
    let location = location(call, &key);
    let request = decode_request(call, Some(key))?;
    decode_and_put(call, request, body, Some(location)).await.map_err(RiakFault::after_checks)
}

/// A put without its body, which is not read yet.
struct PutRequest {
    address: Address,
    params: ObjectParams,
    content: KvContent,
}

fn decode_request(call: &RiakCall<'_>, new_key: Option<String>) -> Result<PutRequest, RiakFault> {
    check_object_write(call.headers)?;
    let (media, charset) = content_type(call.headers)?;
    let params = ObjectParams::from_query(&call.query)?;
    let links = match joined(call.headers, "link", b", ") {
        Some(link) => {
            let context = LinkContext::from_call(call);
            links::parse(&link, context.style, &context.bucket)?
        }
        None => Vec::new(),
    };
    let terms = terms(call.headers)?;
    // After the other headers, as in Riak: a client sees the same refusal first.
    check_media(&media).map_err(RiakFault::after_checks)?;
    let content = KvContent {
        content_type: Some(media),
        charset,
        encoding: call.headers.get(CONTENT_ENCODING).map(|value| Bytes::copy_from_slice(value.as_bytes())),
        meta: meta(call.headers),
        links,
        terms,
        ..KvContent::default()
    };
    let address = match new_key {
        Some(key) => Address::new(call.bucket()?, key.into()).map_err(larder_core::Error::from)?,
        None => call.address()?,
    };
    Ok(PutRequest { address, params, content })
}

/// Decodes the remaining headers and the body, puts the object, and builds the answer.
async fn decode_and_put(
    call: &RiakCall<'_>,
    request: PutRequest,
    body: ArrivingBody<'_>,
    location: Option<Vec<u8>>,
) -> Result<RiakResponse, RiakFault> {
    let media = HeaderValue::from_maybe_shared(media_header(&request.content)).unwrap_or(TEXT);
    let put = KvPut {
        address: request.address,
        context: headers::context(call.headers, "x-riak-vclock")?,
        conditions: headers::conditions(call.headers),
        if_not_modified: headers::if_not_modified(call.headers)?,
        content: request.content,
        // The body comes after all headers: an invalid header is refused before the body is read.
        upload: upload(body, call.headers, call.gateway.context().config.object_bytes_max).await?,
        quorums: request.params.quorums,
        return_body: request.params.return_body,
        timeout: request.params.timeout,
    };
    let outcome = call.gateway.kv.put(put).await.map_err(|error| RiakFault::from_write(error, call.method))?;
    let mut reply = match outcome.filter(|written| !written.versions.siblings.is_empty()) {
        Some(written) => put_response(call, written),
        None => done(media),
    };
    if let Some(location) = location {
        *reply.status_mut() = StatusCode::CREATED;
        insert(reply.headers_mut(), LOCATION, location);
    }
    Ok(reply)
}

fn put_response(call: &RiakCall<'_>, mut written: FetchedObject) -> RiakResponse {
    let context = LinkContext::from_call(call);
    if let [only] = written.versions.siblings.as_slice() {
        let etag = only.vtag();
        return match ShownValue::new(&mut written, 0) {
            Some(shown) => object::value_response(&context, shown, &etag, None),
            None => not_found_page(),
        };
    }
    object::siblings_response(&context, written, object::wants_multipart(call.headers))
}

/// The path of a new object, in the form of the request's path.
fn location(call: &RiakCall<'_>, key: &str) -> Vec<u8> {
    let mut path = Vec::with_capacity(64);
    for part in call.route.parts {
        path.push(b'/');
        match part {
            PathPart::Word(word) => path.extend_from_slice(word.as_bytes()),
            part => quote_segment(&super::path::name(call.raw(*part)), &mut path),
        }
    }
    path.push(b'/');
    path.extend_from_slice(key.as_bytes());
    path
}
