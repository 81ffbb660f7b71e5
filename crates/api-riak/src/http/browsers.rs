//! Answers to the browsers of pages: refusals of other sites, preflights, and headers by which pages of allowed origins read answers.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, VARY,
};
use hyper::{Method, StatusCode};
use larder_net::ForeignRequest;

use super::reply::{RiakResponse, empty};

/// Methods of a preflight's answer: all that any route has.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE");
/// How long a browser may keep the answer to a preflight, in seconds.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");
const ANY: HeaderValue = HeaderValue::from_static("*");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// The text of a refusal, with the setting that would allow the request.
pub(super) fn refusal(foreign: ForeignRequest) -> &'static str {
    match foreign {
        ForeignRequest::Host => {
            "Forbidden: the Host of the request is none of this server's; the setting http-hosts adds one\n"
        }
        ForeignRequest::Origin => {
            "Forbidden: a browser sent the request for a page of another origin; the setting http-origins allows one\n"
        }
    }
}

/// Whether a browser asks beforehand if a page may send a request.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that question for an allowed origin.
pub(super) fn preflight(headers: &HeaderMap) -> RiakResponse {
    let mut reply = empty(StatusCode::NO_CONTENT);
    let answer = reply.headers_mut();
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    // A wildcard would not cover `Authorization`.
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    reply
}

/// Lets the page of this origin read an answer with all its headers.
pub(super) fn show_to(reply: &mut RiakResponse, origin: HeaderValue) {
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ANY);
    headers.append(VARY, VARY_ORIGIN);
}
