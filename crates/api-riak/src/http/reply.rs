//! Answers: how they are put together, and the default pages of Riak's server.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY};
use hyper::{Response, StatusCode};

use larder_gateway::Error;

use super::body::Body;
use crate::errors::{self, Form};

/// An answer on its way out.
pub type Reply = Response<Body>;

/// Media type of texts.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// Media type of pages.
pub(super) const HTML: HeaderValue = HeaderValue::from_static("text/html");
/// Media type of JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What an object's answer depends on.
pub(super) const VARY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
/// What the answer of siblings depends on.
pub(super) const VARY_BOTH: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

/// Marks the answer of fewer replicas than were asked for.
pub(super) const STEPPED_DOWN: HeaderName = HeaderName::from_static("x-larder-stepped-down");
/// The context of an object.
pub(super) const VCLOCK: HeaderName = HeaderName::from_static("x-riak-vclock");
/// Marks a tombstone.
pub(super) const DELETED: HeaderName = HeaderName::from_static("x-riak-deleted");

/// Why a request is not answered as it hoped: an error of the gateway, or a refusal that is an answer already.
#[derive(Debug)]
pub(super) enum Fault {
    /// From below.
    Gateway(Error),
    /// From here.
    Reply(Box<Reply>),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Gateway(error)
    }
}

impl From<Reply> for Fault {
    fn from(reply: Reply) -> Self {
        Self::Reply(Box::new(reply))
    }
}

impl Fault {
    /// 400 with a text.
    pub(super) fn bad(text: impl Into<Bytes>) -> Self {
        Self::text_of(StatusCode::BAD_REQUEST, text)
    }

    /// This status with a text.
    pub(super) fn text_of(status: StatusCode, body: impl Into<Bytes>) -> Self {
        text(status, body).into()
    }

    /// This status with its default page.
    #[must_use]
    pub(super) fn page(status: StatusCode) -> Self {
        page(status).into()
    }

    /// The same, found after the checks of the request: Riak has settled on a media type by then and says what that depends on.
    /// What its checks find is left as it is, and so is a failure of the server, which is to be logged.
    #[must_use]
    pub(super) fn after_checks(self) -> Self {
        if let Self::Gateway(error) = &self {
            use Error::{BadAddress, BrokenBody, Context, Damaged, Internal, UnknownType};
            if matches!(error, BadAddress(_) | BrokenBody(_) | Context(_) | Damaged(_) | Internal(_) | UnknownType(_)) {
                return self;
            }
        }
        let mut reply = self.into_reply();
        reply.headers_mut().insert(VARY, VARY_ENCODING);
        reply.into()
    }

    /// The answer.
    #[must_use]
    pub(super) fn into_reply(self) -> Reply {
        match self {
            Self::Gateway(error) => of_error(&error),
            Self::Reply(reply) => *reply,
        }
    }
}

/// The answer to an error of the gateway.
#[must_use]
pub(super) fn of_error(error: &Error) -> Reply {
    let answer = errors::http(error);
    let mut reply = match answer.form {
        Form::Text => text(answer.status, answer.body),
        Form::Json => json(answer.status, answer.body),
        Form::Page => page(answer.status),
        Form::Empty => empty(answer.status),
    };
    if matches!(error, Error::Condition(_)) {
        reply.headers_mut().insert(VARY, VARY_ENCODING);
    }
    if let Some(seconds) = answer.retry_after {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// An answer without a body.
#[must_use]
pub(super) fn empty(status: StatusCode) -> Reply {
    with_body(status, Body::empty())
}

/// An answer without headers.
#[must_use]
pub(super) fn with_body(status: StatusCode, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
}

/// An answer of this media type.
pub(super) fn typed(status: StatusCode, media: HeaderValue, body: impl Into<Bytes>) -> Reply {
    let mut reply = with_body(status, Body::full(body.into()));
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply
}

/// A text.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    typed(status, TEXT, body)
}

/// JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    let mut reply = typed(status, JSON, body);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// 204 with a media type, as Riak sends it.
#[must_use]
pub(super) fn done(media: HeaderValue) -> Reply {
    let mut reply = empty(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(CONTENT_TYPE, media);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// The default page of a status.
#[must_use]
pub(super) fn page(status: StatusCode) -> Reply {
    typed(status, HTML, page_text(status))
}

/// 404 with its page, for a resource that was looked for.
#[must_use]
pub(super) fn not_found_page() -> Reply {
    let mut reply = page(StatusCode::NOT_FOUND);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// 405 with the methods there are.
#[must_use]
pub(super) fn not_allowed(allow: &str) -> Reply {
    let mut reply = page(StatusCode::METHOD_NOT_ALLOWED);
    if let Ok(allow) = HeaderValue::from_str(allow) {
        reply.headers_mut().insert(ALLOW, allow);
    }
    reply
}

/// 501 for a method nobody knows.
#[must_use]
pub(super) fn unknown_method(method: &str) -> Reply {
    let body = format!(
        "<html><head><title>501 Not Implemented</title></head><body><h1>Not Implemented</h1>The server does not \
         support the {method:?} method.<br><P><HR><ADDRESS>mochiweb+webmachine web server</ADDRESS></body></html>"
    );
    typed(StatusCode::NOT_IMPLEMENTED, HTML, body)
}

fn page_text(status: StatusCode) -> Bytes {
    if status == StatusCode::NOT_FOUND {
        return Bytes::from_static(
            b"<HTML><HEAD><TITLE>404 Not Found</TITLE></HEAD><BODY><H1>Not Found</H1>The requested document was not \
              found on this server.<P><HR><ADDRESS>mochiweb+webmachine web server</ADDRESS></BODY></HTML>",
        );
    }
    let (code, reason) = (status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let page = format!(
        "<html><head><title>{code} {reason}</title></head><body><h1>{reason}</h1><p><hr><address>mochiweb+webmachine \
         web server</address></body></html>"
    );
    page.into()
}

#[cfg(test)]
impl Fault {
    /// The body of the answer, for tests.
    pub(crate) fn text(self) -> String {
        let body = self.into_reply().into_body();
        String::from_utf8(body.into_full().unwrap_or_default().to_vec()).unwrap_or_default()
    }
}
