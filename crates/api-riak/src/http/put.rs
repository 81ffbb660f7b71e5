//! PUT and POST of an object. Checks come in Riak's order (Riak KV HTTP reference §1.1), before anything is read or written.

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderValue, LOCATION};
use hyper::{Method, StatusCode};

use larder_gateway::kv::{Found, PutObject};
use larder_http_edge::ArrivingBody;
use larder_model::address::Address;
use larder_model::content::Content;

use super::body::upload;
use super::call::{Call, joined};
use super::headers::{check_media, content_type, insert, media_header, meta, terms};
use super::object::{self, Place};
use super::params::Params;
use super::path::quote_segment;
use super::reply::{Fault, Reply, TEXT, done};
use super::routes::Part;
use super::{conditional, links};

/// PUT and POST of `/…/keys/K`.
///
/// # Errors
/// A parameter, a header or the gateway refuses.
pub(super) async fn put(call: &Call<'_>, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
    let request = request(call, None)?;
    store(call, request, body, None).await.map_err(Fault::after_checks)
}

/// POST of `/…/keys`: the server makes the key and says where the object is.
///
/// # Errors
/// A parameter, a header or the gateway refuses.
pub(super) async fn post_new(call: &Call<'_>, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
    let key = call.gateway.new_key();
    let location = location(call, &key);
    let request = request(call, Some(key))?;
    store(call, request, body, Some(location)).await.map_err(Fault::after_checks)
}

/// A put whose body is still on the wire.
struct Request {
    address: Address,
    params: Params,
    content: Content,
}

fn request(call: &Call<'_>, new_key: Option<String>) -> Result<Request, Fault> {
    let (media, charset) = content_type(call.headers)?;
    let params = Params::of(&call.query)?;
    let place = Place::of(call);
    let link = joined(call.headers, "link");
    let links = link.map(|link| links::parse(&link, place.style, &place.bucket)).transpose()?.unwrap_or_default();
    let terms = terms(call.headers)?;
    check_media(&media).map_err(Fault::after_checks)?;
    let content = Content {
        content_type: Some(media),
        charset,
        encoding: call.headers.get(CONTENT_ENCODING).map(|value| Bytes::copy_from_slice(value.as_bytes())),
        meta: meta(call.headers),
        links,
        terms,
        ..Content::default()
    };
    let address = match new_key {
        Some(key) => Address::new(call.bucket()?, key.into()).map_err(larder_gateway::Error::from)?,
        None => call.address()?,
    };
    Ok(Request { address, params, content })
}

async fn store(
    call: &Call<'_>,
    request: Request,
    body: ArrivingBody<'_>,
    location: Option<Vec<u8>>,
) -> Result<Reply, Fault> {
    let media = HeaderValue::from_maybe_shared(Bytes::from(media_header(&request.content))).unwrap_or(TEXT);
    // Riak looks at this header on PUT only.
    let if_not_modified = match *call.method == Method::PUT {
        true => conditional::context(call.headers, "x-riak-if-not-modified")?,
        false => None,
    };
    let put = PutObject {
        address: request.address,
        context: conditional::context(call.headers, "x-riak-vclock")?,
        conditions: conditional::conditions(call.headers),
        if_not_modified,
        content: request.content,
        upload: upload(body, call.headers, call.gateway.config().object_bytes_max).await?,
        quorums: request.params.quorums,
        return_body: request.params.return_body,
        timeout: request.params.timeout,
    };
    let stored = call.gateway.put(put).await?;
    let mut reply = match stored.found.filter(|found| !found.versions.siblings.is_empty()) {
        Some(found) => show(call, found),
        None => done(media),
    };
    if let Some(location) = location {
        *reply.status_mut() = StatusCode::CREATED;
        insert(reply.headers_mut(), LOCATION, location);
    }
    Ok(reply)
}

fn show(call: &Call<'_>, found: Found) -> Reply {
    let place = Place::of(call);
    if let [only] = found.versions.siblings.as_slice() {
        let etag = only.vtag();
        return object::one(&place, found, 0, &etag, None);
    }
    object::siblings(&place, found, object::wants_multipart(call.headers))
}

/// Path of a new object, in the form of the path that made it.
fn location(call: &Call<'_>, key: &str) -> Vec<u8> {
    let mut path = Vec::with_capacity(64);
    for part in call.route.parts {
        path.push(b'/');
        match part {
            Part::Word(word) => path.extend_from_slice(word.as_bytes()),
            part => quote_segment(&super::path::name(call.raw(*part)), &mut path),
        }
    }
    path.push(b'/');
    path.extend_from_slice(key.as_bytes());
    path
}
