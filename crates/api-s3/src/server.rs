//! The listener.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use hyper::Request;
use hyper::body::Incoming;
use larder_net::{
    ClientListener, ConnectionHandler, ConnectionSettings, HttpDialect, ListenerWork, Requester, ShutdownRequest,
};
use larder_s3::Objects;

use super::settings::S3Settings;
use crate::pipeline::S3Service;
use crate::response::{S3Body, S3Response};

impl ConnectionHandler for S3Service {
    type Body = S3Body;

    const DIALECT: HttpDialect = HttpDialect {
        name: "s3",
        headers_max: 256,
        // Room for an escaped key of 1 KiB, 2 KiB of metadata, and a presigned query with a token.
        header_bytes_max: 64 * 1024,
        title_case: false,
        overload_response: (
            "application/xml",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your \
             request rate.</Message></Error>",
        ),
    };

    fn settings(&self) -> ConnectionSettings {
        self.settings().connection.clone()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> S3Response {
        self.handle(requester, request).await
    }

    fn response_memory(response: &S3Body) -> u64 {
        response.memory()
    }

    fn busy(&self) -> S3Response {
        S3Service::busy(self)
    }
}

/// Serves the listeners until `shutdown` completes. The server then accepts nothing new and lets running requests finish;
/// at `drain_timeout` it cancels the rest.
#[must_use]
pub fn serve(
    listeners: Vec<ClientListener>,
    objects: Arc<Objects>,
    settings: S3Settings,
    shutdown: ShutdownRequest,
) -> ListenerWork {
    let service = S3Service::new(objects, settings);
    Box::pin(async move {
        let shutdown = shutdown.shared();
        let serve = |listener| larder_net::serve(listener, service.clone(), Box::pin(shutdown.clone()));
        join_all(listeners.into_iter().map(serve)).await;
        service.background().drain(service.settings().connection.drain_timeout).await;
    })
}
