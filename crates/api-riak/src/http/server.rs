//! The listener of Riak's HTTP API: it finds the route of a request, runs the common checks and calls the resource.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use larder_core::Error;
use larder_kv::Gateway;
use larder_net::{
    ArrivingBody, BrowserRules, ClientListener, ConnectionHandler, ConnectionSettings, ForeignRequest, HttpDialect,
    ListenerWork, Requester, ShutdownRequest, names_two_hosts,
};

use super::body::RiakBody;
use super::call::RiakCall;
use super::errors::{self, RiakFault, error_response};
use super::path::{QueryParams, Segments};
use super::reply::{self, RiakResponse, empty, page};
use super::request_notes::{log_request, reply_id, set_id};
use super::routes::{self, Resource, Route, RouteAccess, RouteMatch};
use super::{access, datatypes, delete, index, link_walk, listing, mapred, object, props, put, replication, root};
use crate::failure::{is_of_server, log_server_error};

/// Settings of the listener of Riak's HTTP API.
#[derive(Debug, Clone, Default)]
pub struct HttpSettings {
    /// The settings that every listener has.
    pub connection: ConnectionSettings,
    /// The pages whose requests are refused.
    pub browsers: BrowserRules,
}

impl From<ConnectionSettings> for HttpSettings {
    fn from(connection: ConnectionSettings) -> Self {
        Self { connection, ..Self::default() }
    }
}

/// Answers requests over one gateway.
#[derive(Clone)]
pub struct HttpService {
    gateway: Arc<Gateway>,
    settings: Arc<HttpSettings>,
}

/// Riak's HTTP API over `gateway`.
#[must_use]
pub fn service(gateway: Arc<Gateway>, settings: HttpSettings) -> HttpService {
    HttpService { gateway, settings: Arc::new(settings) }
}

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past the deadline.
#[must_use]
pub fn serve(
    listener: ClientListener,
    gateway: Arc<Gateway>,
    settings: HttpSettings,
    shutdown: ShutdownRequest,
) -> ListenerWork {
    larder_net::serve(listener, service(gateway, settings), shutdown)
}

impl ConnectionHandler for HttpService {
    type Body = RiakBody;

    const DIALECT: HttpDialect = HttpDialect {
        name: "http",
        // An object may have many index fields.
        headers_max: 256,
        // Metadata and a percent-encoded address.
        header_bytes_max: 192 * 1024,
        title_case: true,
        overload_response: ("text/plain", "Error:\noverload\n\n"),
    };

    fn settings(&self) -> ConnectionSettings {
        self.settings.connection.clone()
    }

    /// Answers one request, and turns a panic into a 500.
    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> RiakResponse {
        let (request, body) = request.into_parts();
        let body = ArrivingBody::new(body, requester);
        let reader = self.settings.browsers.reader(&request.headers);
        // The connection survives a panic: its client gets a 500 and can go on.
        let mut user = None;
        let dispatched = self.dispatch(requester, &request, body, &mut user);
        let mut reply = match AssertUnwindSafe(dispatched).catch_unwind().await {
            Ok(Ok(reply)) => reply,
            Ok(Err(RiakFault::Response(reply))) => *reply,
            Ok(Err(RiakFault::Gateway(error))) => {
                let mut reply = error_response(&error);
                if is_of_server(&error) {
                    set_id(&self.gateway, &request.headers, &mut reply);
                    log_server_error(&error, reply_id(&reply));
                }
                reply
            }
            Err(panic) => {
                self.gateway.context().report_panic("Riak's HTTP", &*panic);
                page(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        if let Some(reader) = reader {
            show_to(&mut reply, reader);
        }
        let user = user.as_deref();
        log_request(&self.gateway, self.settings.connection.slow_after, requester, user, &request, &mut reply);
        reply
    }

    fn response_memory(answer: &RiakBody) -> u64 {
        answer.memory()
    }

    fn busy(&self) -> RiakResponse {
        error_response(&Error::Overloaded { retry_after: 1 })
    }
}

impl HttpService {
    /// Answers one request.
    async fn dispatch(
        &self,
        requester: &Requester<'_>,
        request: &Parts,
        body: ArrivingBody<'_>,
        user: &mut Option<Arc<str>>,
    ) -> Result<RiakResponse, RiakFault> {
        if names_two_hosts(&request.headers) {
            return Err(RiakFault::status_text(StatusCode::BAD_REQUEST, "The request has two Host headers.\n"));
        }
        let segments = Segments::new(request.uri.path());
        let browsers = &self.settings.browsers;
        if is_preflight(&request.method, &request.headers) && browsers.reader(&request.headers).is_some() {
            return Ok(preflight(&request.headers));
        }
        let route = route(&segments, &request.method)?;
        let mut call = RiakCall {
            gateway: &self.gateway,
            route,
            method: &request.method,
            headers: &request.headers,
            segments,
            query: QueryParams::parse(request.uri.query()),
            user: None,
        };
        if let Err(foreign) = browsers.check(call.headers) {
            return Err(RiakFault::status_text(StatusCode::FORBIDDEN, refusal(foreign)));
        }
        if route.access != RouteAccess::Open && !self.gateway.security().is_surely_off() {
            // A box: most servers run without security, and need no room for it.
            Box::pin(access::authorize(&call, requester.source, user)).await?;
            call.user.clone_from(user);
        }
        match (route.resource, call.method) {
            (Resource::Object, &Method::GET | &Method::HEAD) => object::get(&call).await,
            // Boxes keep the future small that every request moves: a get needs far less room than these.
            (Resource::Object, &Method::DELETE) => Box::pin(delete::delete(&call)).await,
            (Resource::Object, _) => Box::pin(put::put(&call, body)).await,
            (Resource::NewObject, _) => Box::pin(put::post_new(&call, body)).await,
            _ => Box::pin(self.other(&call, body)).await,
        }
    }

    async fn other(&self, call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
        match call.route.resource {
            Resource::Object | Resource::NewObject => Err(RiakFault::page(StatusCode::NOT_FOUND)),
            Resource::Keys => listing::list_keys(call, &self.gateway).await,
            Resource::Buckets => listing::list_buckets(call, &self.gateway).await,
            Resource::OldBucket if *call.method != Method::PUT => listing::get_old(call, &self.gateway).await,
            Resource::BucketProps | Resource::OldBucket => props::answer(call, body).await,
            Resource::TypeProps => props::answer_for_type(call, body).await,
            Resource::Ping => Ok(root::ping(call)),
            Resource::Root => Ok(root::get(call)),
            Resource::Stats => Ok(root::stats(call)),
            Resource::Metrics => Ok(root::metrics(call)),
            Resource::Live => Ok(root::live()),
            Resource::Ready => Ok(root::ready(call)),
            Resource::Index => Box::pin(index::get(call, &self.gateway)).await,
            // As in Riak, where there is no such path.
            Resource::CombinedIndex if *call.method != Method::POST => Err(RiakFault::page(StatusCode::NOT_FOUND)),
            Resource::CombinedIndex => Box::pin(index::post(call, &self.gateway, body)).await,
            Resource::LinkWalk => link_walk::answer(call, &self.gateway, body).await,
            Resource::DataType if *call.method == Method::POST => datatypes::post(call, body).await,
            Resource::DataType => datatypes::get(call).await,
            Resource::Counter if *call.method == Method::POST => datatypes::post_counter(call, body).await,
            Resource::Counter => datatypes::get_counter(call).await,
            Resource::MapReduce => mapred::answer(call, &self.gateway, body).await,
            Resource::ReplicationQueue => replication::answer(call).await,
            Resource::NotBuilt(feature) => errors::answer(feature),
        }
    }
}

/// The route of a request; 404, 501 and 405 are decided here.
fn route(segments: &Segments<'_>, method: &Method) -> Result<&'static Route, RiakFault> {
    match routes::find(segments, method) {
        RouteMatch::Route(route) => Ok(route),
        RouteMatch::None => Err(RiakFault::page(StatusCode::NOT_FOUND)),
        RouteMatch::NotAllowed(_) if !is_known(method) => Err(reply::unknown_method(method.as_str()).into()),
        RouteMatch::NotAllowed(route) => Err(reply::not_allowed(&route.allow()).into()),
    }
}

fn is_known(method: &Method) -> bool {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::TRACE,
        Method::CONNECT,
        Method::OPTIONS,
    ];
    known.contains(method)
}

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
    if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
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
