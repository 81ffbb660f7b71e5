//! The listener of Riak's HTTP API.

use std::future::Future;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use larder_http_edge::{ConnectionHandler, HttpDialect, Requester};
use tokio::net::TcpListener;

use larder_gateway::{Error, Gateway};

pub use larder_http_edge::ConnectionSettings as HttpSettings;

use super::body::RiakBody;
use super::{HttpService, RiakResponse, reply, service};

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

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> RiakResponse {
        self.answer(requester, request).await
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
