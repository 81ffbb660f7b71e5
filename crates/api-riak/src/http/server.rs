//! The listener of Riak's HTTP API.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use larder_http_edge::{ConnectionHandler, HttpDialect, Requester};
use tokio::net::TcpListener;

use larder_gateway::metrics::Event;
use larder_gateway::{Error, Gateway};

pub use larder_http_edge::ConnectionSettings as HttpSettings;

use super::body::RiakBody;
use super::reply::{self, RiakFault, page};
use super::{HttpService, RiakResponse, service};

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

    fn settings(&self) -> HttpSettings {
        self.settings.clone()
    }

    /// Answers one request, and turns a panic into a 500.
    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> RiakResponse {
        match AssertUnwindSafe(self.dispatch(requester, request)).catch_unwind().await {
            Ok(Ok(reply)) => reply,
            Ok(Err(fault)) => {
                if let RiakFault::Gateway(error @ (Error::Internal(_) | Error::Damaged(_))) = &fault {
                    tracing::error!(%error, "request failed: the client gets an error of the server");
                }
                fault.into_reply()
            }
            Err(panic) => {
                let reason =
                    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(|text| &**text));
                tracing::error!(
                    reason = reason.unwrap_or("unknown"),
                    "request panicked: the client gets 500, this is a bug"
                );
                self.gateway.core.count_event(Event::Panicked);
                page(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    fn memory_of(answer: &RiakBody) -> u64 {
        answer.memory()
    }

    fn busy(&self) -> RiakResponse {
        reply::of_error(&Error::Overloaded { retry_after: 1 })
    }
}

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past the deadline.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    settings: HttpSettings,
    shutdown: impl Future<Output = ()>,
) {
    larder_http_edge::serve(listener, service(gateway, settings), shutdown).await;
}
