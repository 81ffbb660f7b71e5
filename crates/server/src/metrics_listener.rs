//! The listener of `/metrics`, for scrapers of a server whose other listeners are off or are for clients.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use larder_core::Core;
use larder_net::{BrowserRules, ConnectionHandler, ConnectionSettings, HttpDialect, Requester};

/// The one path.
const PATH: &str = "/metrics";
/// The type of the Prometheus exposition format.
const EXPOSITION: &str = "text/plain; version=0.0.4";

/// Answers the requests of a scraper.
#[derive(Clone)]
pub(crate) struct MetricsHandler {
    pub(crate) core: Arc<Core>,
    pub(crate) connection: ConnectionSettings,
    /// The hosts that requests may name: on loopback, a page of another site could read by DNS rebinding.
    pub(crate) browsers: Arc<BrowserRules>,
}

impl ConnectionHandler for MetricsHandler {
    type Body = Full<Bytes>;

    const DIALECT: HttpDialect = HttpDialect {
        name: "metrics",
        headers_max: 64,
        header_bytes_max: 16 * 1024,
        title_case: false,
        overload_response: ("text/plain", "too many connections\n"),
    };

    fn settings(&self) -> ConnectionSettings {
        self.connection.clone()
    }

    async fn respond(&self, _: &Requester<'_>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if self.browsers.check(request.headers()).is_err() {
            return text(StatusCode::FORBIDDEN, "requests of other sites are refused\n");
        }
        match (request.uri().path(), request.method()) {
            (PATH, &Method::GET | &Method::HEAD) => {
                let mut page = text(StatusCode::OK, self.core.metrics_text());
                page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EXPOSITION));
                page
            }
            (PATH, _) => {
                let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD alone\n");
                refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                refused
            }
            _ => text(StatusCode::NOT_FOUND, "not found: /metrics is here\n"),
        }
    }

    fn response_memory(_: &Full<Bytes>) -> u64 {
        0
    }

    fn busy(&self) -> Response<Full<Bytes>> {
        let mut busy = text(StatusCode::SERVICE_UNAVAILABLE, "busy\n");
        busy.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
        busy
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
