//! Riak's HTTP API.
//!
//! ```text
//! server ── a connection ──> mod: route, method, common checks ──> one file per resource ──> gateway
//!                              path query headers: decoders, pure             reply body: encoders
//! ```
//! Decoders accept arbitrary bytes. The path is split before it is decoded, and checks run in Riak's order (HTTP reference
//! §0.1). No request ends the server: a panic becomes a 500 and a log line.

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

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use larder_gateway::Gateway;
use larder_http_edge::{ArrivingBody, Requester};

pub use body::RiakBody;
pub use reply::RiakResponse;
pub use server::{HttpSettings, serve};

use call::RiakCall;
use path::Segments;
use query::QueryParams;
use reply::RiakFault;
use routes::{Resource, Route, RouteMatch};

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
    /// Answers one request.
    async fn dispatch(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Result<RiakResponse, RiakFault> {
        let (request, body) = request.into_parts();
        let body = ArrivingBody::new(body, requester);
        let segments = Segments::of(request.uri.path());
        let route = route(&segments, &request.method)?;
        let call = RiakCall {
            gateway: &self.gateway,
            route,
            method: &request.method,
            headers: &request.headers,
            segments,
            query: QueryParams::of(request.uri.query()),
        };
        if call.is_foreign() {
            return Err(RiakFault::page(StatusCode::FORBIDDEN));
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
