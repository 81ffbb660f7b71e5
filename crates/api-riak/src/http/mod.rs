//! Riak's HTTP API.
//!
//! ```text
//! server ── a connection ──> mod: route, method, checks that all share ──> one file per resource ──> gateway
//!                              path query headers: decoders, pure             reply body: encoders
//! ```
//! Decoders take any bytes and answer; the path is split before it is decoded; checks come in Riak's order (HTTP reference
//! §0.1). No request ends the server: a panic is an answer 500 and a line in the log.

mod accept;
mod body;
mod buckets;
mod call;
mod conditional;
mod delete;
mod headers;
mod keys;
mod links;
mod listing;
mod multipart;
mod not_built;
mod object;
mod params;
mod path;
mod ping;
mod props;
mod put;
mod query;
mod range;
mod reply;
mod root;
pub mod routes;
mod server;
mod stats;
mod type_props;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use larder_gateway::metrics::Event;
use larder_gateway::{Error, Gateway};
use larder_http_edge::{ArrivingBody, PacedIncoming, Requester};

pub use body::Body;
pub use reply::Reply;
pub use server::{HttpSettings, serve};

use call::Call;
use path::Segments;
use query::Query;
use reply::{Fault, page};
use routes::{Match, Resource, Route};

/// Answers requests over one gateway.
#[derive(Clone)]
pub struct HttpService {
    gateway: Arc<Gateway>,
    settings: HttpSettings,
}

/// Riak's HTTP API over `gateway`.
#[must_use]
pub fn service(gateway: Arc<Gateway>, settings: HttpSettings) -> HttpService {
    HttpService { gateway, settings }
}

impl HttpService {
    /// Answers one request, whatever happens in it.
    pub async fn answer(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Reply {
        match AssertUnwindSafe(self.carry_out(requester, request)).catch_unwind().await {
            Ok(Ok(reply)) => reply,
            Ok(Err(fault)) => {
                if let Fault::Gateway(error @ (Error::Internal(_) | Error::Damaged(_))) = &fault {
                    tracing::error!(%error, "a request failed");
                }
                fault.into_reply()
            }
            Err(panic) => {
                let reason =
                    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(|text| &**text));
                tracing::error!(reason = reason.unwrap_or("unknown"), "a request panicked: this is a bug");
                self.gateway.event(Event::Panicked);
                page(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    async fn carry_out(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Result<Reply, Fault> {
        let (request, body) = request.into_parts();
        let body = ArrivingBody::new(PacedIncoming::new(body), requester);
        let segments = Segments::of(request.uri.path());
        let route = route(&segments, &request.method)?;
        let call = Call {
            gateway: &self.gateway,
            route,
            method: &request.method,
            headers: &request.headers,
            segments,
            query: Query::of(request.uri.query()),
        };
        if call.is_foreign() {
            return Err(Fault::page(StatusCode::FORBIDDEN));
        }
        match (route.resource, call.method) {
            (Resource::Object, &Method::GET | &Method::HEAD) => object::get(&call).await,
            // A box keeps what every request moves small: a get needs far less room than these.
            (Resource::Object, &Method::DELETE) => Box::pin(delete::delete(&call)).await,
            (Resource::Object, _) => Box::pin(put::put(&call, body)).await,
            (Resource::NewObject, _) => Box::pin(put::post_new(&call, body)).await,
            _ => Box::pin(self.other(&call, body)).await,
        }
    }

    async fn other(&self, call: &Call<'_>, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
        match call.route.resource {
            Resource::Object | Resource::NewObject => Err(Fault::page(StatusCode::NOT_FOUND)),
            Resource::Keys => keys::get(call, &self.gateway).await,
            Resource::Buckets => buckets::get(call, &self.gateway).await,
            Resource::OldBucket if *call.method != Method::PUT => buckets::get_old(call, &self.gateway).await,
            Resource::BucketProps | Resource::OldBucket => props::answer(call, body).await,
            Resource::TypeProps => type_props::answer(call, body).await,
            Resource::Ping => Ok(ping::get(call)),
            Resource::Root => Ok(root::get(call)),
            Resource::Stats => Ok(stats::get(call)),
            Resource::Metrics => Ok(stats::metrics(call)),
            Resource::Index => not_built::index(call).await,
            Resource::LinkWalk => not_built::link_walk(call),
            Resource::DataType => not_built::data_type(call).await,
            Resource::NotBuilt(feature) => not_built::answer(feature),
        }
    }
}

/// The route of a request: 404, 501 and 405 are decided here.
fn route(segments: &Segments<'_>, method: &Method) -> Result<&'static Route, Fault> {
    match routes::find(segments, method) {
        Match::Route(route) => Ok(route),
        Match::None => Err(Fault::page(StatusCode::NOT_FOUND)),
        Match::NotAllowed(_) if !is_known(method) => Err(reply::unknown_method(method.as_str()).into()),
        Match::NotAllowed(route) => Err(reply::not_allowed(&route.allow()).into()),
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
