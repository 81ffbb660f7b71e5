//! The listener of the console: it checks host, route, session and form token of a request, and calls the page.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{ALLOW, COOKIE, HeaderMap, HeaderValue, RETRY_AFTER, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use larder_kv::Gateway;
use larder_net::{
    ArrivingBody, ClientListener, ConnectionHandler, ConnectionSettings, HttpDialect, ListenerWork, Requester,
    ShutdownRequest, joined, names_two_hosts,
};
use larder_s3::Objects;
use parking_lot::Mutex;

use super::settings::ConsoleSettings;
use crate::access::{AuditedRequest, ConsoleSession, SESSION_LIFETIME};
use crate::call::ConsoleCall;
use crate::escaped::label;
use crate::faults::ConsoleFault;
use crate::live::LiveFeed;
use crate::reply::{self, ChangeTarget, ConsoleBody, ConsoleFields, ConsoleReply};
use crate::routes::{ConsoleAction, ConsoleRight, ConsoleRoute};
use crate::{frame, pages};

/// Most bytes of a form: a value of 64 KiB, percent-encoded, and its other fields.
const FORM_BYTES_MAX: u64 = 256 * 1024;
/// Most bytes of a path in the audit log.
const PATH_BYTES_SHOWN: usize = 128;

/// Answers requests over a gateway and its S3 side.
#[derive(Clone)]
struct ConsoleService {
    gateway: Arc<Gateway>,
    objects: Arc<Objects>,
    settings: Arc<ConsoleSettings>,
    feed: Arc<LiveFeed>,
}

/// Serves `listener` until `shutdown`; after that it finishes the requests under way.
#[must_use]
pub fn serve(
    listener: ClientListener,
    gateway: Arc<Gateway>,
    objects: Arc<Objects>,
    settings: ConsoleSettings,
    shutdown: ShutdownRequest,
) -> ListenerWork {
    Box::pin(async move {
        let feed = Arc::new(LiveFeed::default());
        let sampler = tokio::spawn(Arc::clone(&feed).sample(Arc::clone(&objects), settings.connection.memory.clone()));
        let service = ConsoleService { gateway, objects, settings: Arc::new(settings), feed };
        larder_net::serve(listener, service, shutdown).await;
        sampler.abort();
    })
}

impl ConnectionHandler for ConsoleService {
    type Body = ConsoleBody;

    const DIALECT: HttpDialect = HttpDialect {
        name: "console",
        headers_max: 64,
        // The address of an object is in the link, percent-encoded.
        header_bytes_max: 192 * 1024,
        title_case: false,
        overload_response: ("text/plain", "The server has too many connections.\n"),
    };

    fn settings(&self) -> ConnectionSettings {
        self.settings.connection.clone()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> ConsoleReply {
        let (request, body) = request.into_parts();
        let body = ArrivingBody::new(body, requester);
        let answered = AssertUnwindSafe(self.answer(&request, body, requester)).catch_unwind().await;
        let mut reply = answered.unwrap_or_else(|panic| {
            self.gateway.context().report_panic("console", &*panic);
            reply::page(StatusCode::INTERNAL_SERVER_ERROR, frame::outside("Failed", &maud::html! {}))
        });
        reply::protect(reply.headers_mut());
        reply
    }

    fn response_memory(answer: &ConsoleBody) -> u64 {
        answer.memory()
    }

    fn busy(&self) -> ConsoleReply {
        let text = maud::html! { p { "The server is busy. Load the page again in a moment." } };
        let mut reply = reply::page(StatusCode::SERVICE_UNAVAILABLE, frame::outside("Busy", &text));
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        reply
    }
}

impl ConsoleService {
    async fn answer(&self, request: &Parts, body: ArrivingBody<'_>, requester: &Requester<'_>) -> ConsoleReply {
        let cookie = self.cookie(&request.headers);
        let now = self.gateway.context().monotonic();
        let session = cookie.as_deref().and_then(|cookie| self.settings.access.session(cookie, now));
        let number = session.as_ref().map(|session| session.number);
        let checked = self.check(request, session.as_ref());
        let refused = match checked {
            Ok(route) if route.right == ConsoleRight::Open => return self.open(route, request, requester),
            Ok(route) => match session {
                Some(session) => return self.with_session(route, &session, request, body, requester).await,
                None => sign_in_first(),
            },
            Err(fault) => refusal(&fault),
        };
        if matches!(refused.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            self.audit_refusal(request, requester, number, refused.status());
        }
        refused
    }

    /// The route of a request that a page of the console may send.
    fn check(&self, request: &Parts, session: Option<&ConsoleSession>) -> Result<&'static ConsoleRoute, ConsoleFault> {
        if names_two_hosts(&request.headers) {
            return Err(ConsoleFault::new(StatusCode::BAD_REQUEST, "The request has two Host headers."));
        }
        if self.settings.browsers.check(&request.headers).is_err() {
            let reason = "The host or the origin of this request is not the console's. \
                          The setting console-hosts adds a host.";
            return Err(ConsoleFault::new(StatusCode::FORBIDDEN, reason));
        }
        let Some(route) = ConsoleRoute::find(request.uri.path()) else {
            // A client without a session learns nothing, not even the paths.
            return match session {
                Some(_) => Err(ConsoleFault::not_found("The console has no such page.")),
                None => Err(ConsoleFault::new(StatusCode::UNAUTHORIZED, SIGN_IN)),
            };
        };
        let allowed = if route.is_post() { request.method == Method::POST } else { request.method == Method::GET };
        if !allowed {
            return Err(ConsoleFault::new(StatusCode::METHOD_NOT_ALLOWED, "This page has another method."));
        }
        Ok(route)
    }

    /// A file of the program, or a sign-in.
    fn open(&self, route: &'static ConsoleRoute, request: &Parts, requester: &Requester<'_>) -> ConsoleReply {
        match route.action {
            ConsoleAction::Style => reply::asset("text/css; charset=utf-8", include_str!("../assets/console.css")),
            ConsoleAction::Script => {
                reply::asset("text/javascript; charset=utf-8", include_str!("../assets/console.js"))
            }
            ConsoleAction::Icon => reply::asset("image/svg+xml", include_str!("../assets/icon.svg")),
            _ => self.sign_in(request, requester),
        }
    }

    fn sign_in(&self, request: &Parts, requester: &Requester<'_>) -> ConsoleReply {
        let query = ConsoleFields::parse(request.uri.query().unwrap_or_default().as_bytes());
        let (access, now) = (&self.settings.access, self.gateway.context().monotonic());
        let Some(cookie) = access.redeem(&query.bytes("token"), now) else {
            self.audit_refusal(request, requester, None, StatusCode::FORBIDDEN);
            let fault = ConsoleFault::new(StatusCode::FORBIDDEN, USED_LINK);
            return refusal(&fault);
        };
        let session = access.session(cookie.as_bytes(), now).map(|session| session.number);
        self.audit("SignIn", "", session, requester, StatusCode::OK);
        let mut reply = reply::page(StatusCode::OK, frame::welcome());
        let age = SESSION_LIFETIME.as_secs();
        let secure = if requester.source.secure { "; Secure" } else { "" };
        let cookie =
            format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}", self.cookie_name());
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            reply.headers_mut().insert(SET_COOKIE, cookie);
        }
        reply
    }

    async fn with_session(
        &self,
        route: &'static ConsoleRoute,
        session: &ConsoleSession,
        request: &Parts,
        body: ArrivingBody<'_>,
        requester: &Requester<'_>,
    ) -> ConsoleReply {
        let query = ConsoleFields::parse(request.uri.query().unwrap_or_default().as_bytes());
        let cookie = self.cookie(&request.headers).unwrap_or_default();
        let (form, body, unread) = match route.right {
            ConsoleRight::Store(_) => (ConsoleFields::default(), Some(body), None),
            _ if route.is_post() => match read_form(body).await {
                Ok(form) => (form, None, None),
                Err(fault) => (ConsoleFields::default(), None, Some(fault)),
            },
            _ => (ConsoleFields::default(), None, None),
        };
        let call = ConsoleCall {
            gateway: &self.gateway,
            objects: &self.objects,
            settings: &self.settings,
            feed: &self.feed,
            route,
            session,
            cookie: &cookie,
            query,
            form,
            headers: &request.headers,
            body: Mutex::new(body),
        };
        let done = match unread {
            Some(fault) => Err(fault),
            None => match check_form(&call) {
                // A change that panics has its line in the audit log, too: it may be made.
                Ok(()) => {
                    let answered = AssertUnwindSafe(Box::pin(pages::answer(&call))).catch_unwind().await;
                    answered.unwrap_or_else(|panic| {
                        self.gateway.context().report_panic(route.path, &*panic);
                        Err(ConsoleFault::panicked())
                    })
                }
                Err(fault) => Err(fault),
            },
        };
        let reply = done.unwrap_or_else(|fault| {
            if fault.of_server {
                tracing::error!(path = route.path, reasons = ?fault.reasons, "page of the console failed");
            }
            reply::page(fault.status, frame::failure(&call, pages::path_section(route.path), &fault))
        });
        match route.change() {
            Some(action) => {
                let target = reply.extensions().get::<ChangeTarget>().map(|target| target.0.clone());
                let target = target.unwrap_or_else(|| pages::request_target(&call));
                self.audit(action, &target, Some(session.number), requester, reply.status());
            }
            None if reply.status() == StatusCode::FORBIDDEN => {
                self.audit_refusal(request, requester, Some(session.number), reply.status());
            }
            None => {}
        }
        self.after_leaving(route, reply)
    }

    /// Takes the cookie from the browser that signed out.
    fn after_leaving(&self, route: &ConsoleRoute, mut reply: ConsoleReply) -> ConsoleReply {
        let cookie = format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", self.cookie_name());
        if route.action == ConsoleAction::SignOut
            && reply.status() == StatusCode::OK
            && let Ok(cookie) = HeaderValue::from_str(&cookie)
        {
            reply.headers_mut().insert(SET_COOKIE, cookie);
        }
        reply
    }

    fn audit(&self, action: &str, target: &str, session: Option<u64>, requester: &Requester<'_>, status: StatusCode) {
        let source = requester.source;
        AuditedRequest { action, target, session, source, status }.record(&self.gateway);
    }

    fn audit_refusal(&self, request: &Parts, requester: &Requester<'_>, session: Option<u64>, status: StatusCode) {
        let path = label(request.uri.path(), PATH_BYTES_SHOWN);
        self.audit(request.method.as_str(), &path, session, requester, status);
    }

    fn cookie_name(&self) -> String {
        format!("larder-console-{}", self.settings.port)
    }

    /// The value of the session's cookie.
    fn cookie(&self, headers: &HeaderMap) -> Option<Bytes> {
        let all = joined(headers, COOKIE, b";")?;
        let name = self.cookie_name();
        all.split(|byte| *byte == b';').find_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(Bytes::copy_from_slice(value))
        })
    }
}

const SIGN_IN: &str = "Sign in with a link: the command `kv-admin console link` prints one, and so does the server when it \
                       starts on a terminal.";
const USED_LINK: &str =
    "This link was used or is older than 15 minutes. The command `kv-admin console link` prints another one.";

fn sign_in_first() -> ConsoleReply {
    refusal(&ConsoleFault::new(StatusCode::UNAUTHORIZED, SIGN_IN))
}

/// A refusal before there is a session to show a page for.
fn refusal(fault: &ConsoleFault) -> ConsoleReply {
    let title = if fault.status == StatusCode::UNAUTHORIZED { "Sign in" } else { "Not allowed" };
    let text = maud::html! { @for reason in &fault.reasons { p { (reason) } } };
    let mut reply = reply::page(fault.status, frame::outside(title, &text));
    if fault.status == StatusCode::METHOD_NOT_ALLOWED {
        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    reply
}

/// Refuses a form that no page of this session has made, and every change of a read-only console.
fn check_form(call: &ConsoleCall<'_>) -> Result<(), ConsoleFault> {
    let is_checked_later = matches!(call.route.right, ConsoleRight::Store(_));
    if call.route.is_post() && !is_checked_later && !call.session.has_csrf(&call.form.bytes("csrf")) {
        return Err(ConsoleFault::foreign_form());
    }
    if pages::is_named_twice(call) {
        return Err(ConsoleFault::bad("A name stands in the link and in the form."));
    }
    if call.route.change().is_some() && !call.may_change() {
        let reason = "The console is read-only: the server runs with the setting console-read-only.";
        return Err(ConsoleFault::new(StatusCode::FORBIDDEN, reason));
    }
    Ok(())
}

/// Reads a form of at most [`FORM_BYTES_MAX`].
async fn read_form(body: ArrivingBody<'_>) -> Result<ConsoleFields, ConsoleFault> {
    let too_large = || ConsoleFault::new(StatusCode::PAYLOAD_TOO_LARGE, "The form is larger than 256 KiB.");
    if body.length().is_some_and(|length| length > FORM_BYTES_MAX) {
        return Err(too_large());
    }
    // The encoded bytes and the decoded fields.
    let memory = body.length().unwrap_or(FORM_BYTES_MAX) * 2;
    let busy = |_| ConsoleFault::new(StatusCode::SERVICE_UNAVAILABLE, "The server has no memory for this form now.");
    let mut incoming = body.admit(memory).await.map_err(busy)?;
    let mut encoded = BytesMut::new();
    while let Some(piece) = incoming.next().await.map_err(|_| ConsoleFault::bad("The form broke off."))? {
        if (encoded.len() + piece.len()) as u64 > FORM_BYTES_MAX {
            return Err(too_large());
        }
        encoded.extend_from_slice(&piece);
    }
    Ok(ConsoleFields::parse(&encoded))
}
