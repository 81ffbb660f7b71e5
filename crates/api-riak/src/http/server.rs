//! The listener.

use std::future::Future;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use larder_http_edge::{Face, Requester, Wire};
use tokio::net::TcpListener;

use larder_gateway::{Error, Gateway};

pub use larder_http_edge::Settings as HttpSettings;

use super::body::Body;
use super::{HttpService, Reply, reply, service};

impl Face for HttpService {
    type Body = Body;

    const WIRE: Wire = Wire {
        name: "http",
        // An object can have many index fields.
        headers_max: 256,
        // Metadata and a percent-encoded address.
        header_bytes_max: 192 * 1024,
        title_case: true,
        turned_away: ("text/plain", "Error:\noverload\n\n"),
    };

    fn settings(&self) -> HttpSettings {
        self.settings.clone()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Reply {
        self.answer(requester, request).await
    }

    fn memory_of(answer: &Body) -> u64 {
        answer.memory()
    }

    fn busy(&self) -> Reply {
        reply::of_error(&Error::Overloaded { retry_after: 1 })
    }
}

/// Serves `listener` until `shutdown`: then nothing new is accepted, requests under way are finished, and what is not
/// finished by the deadline is broken off.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    settings: HttpSettings,
    shutdown: impl Future<Output = ()>,
) {
    larder_http_edge::serve(listener, service(gateway, settings), shutdown).await;
}
