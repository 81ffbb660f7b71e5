//! The listener.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use larder_admission::MemoryBudget;
use larder_gateway::objects::Objects;
use larder_http_edge::{ConnectionHandler, ConnectionLimit, ConnectionSettings, HttpDialect, Requester};
use tokio::net::TcpListener;

use crate::pipeline::S3Service;
use crate::response::{S3Body, S3Response};

/// Settings of the S3 listener.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Root hosts. A label in front of a root host names a bucket.
    pub roots: Vec<String>,
    /// The only region accepted in signatures; `None` accepts any.
    pub region: Option<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are trusted.
    pub proxies: Vec<IpAddr>,
    /// Whether anonymous clients may create users; Riak CS creates its first administrator this way.
    pub anonymous_user_creation: bool,
    /// Connection limit of all listeners that share it. A connection above the limit is answered 503 and closed.
    pub connections: ConnectionLimit,
    /// Memory budget of all listeners that share it.
    pub memory: MemoryBudget,
    /// Longest time from the first byte of a request to the end of its headers.
    pub header_timeout: Duration,
    /// Longest idle time of a connection.
    pub idle_timeout: Duration,
    /// Time that running requests get to finish after shutdown begins.
    pub drain_timeout: Duration,
}

impl Default for S3Settings {
    fn default() -> Self {
        let ConnectionSettings { connections, memory, header_timeout, idle_timeout, drain_timeout } =
            ConnectionSettings::default();
        Self {
            roots: vec!["s3.localhost".into(), "localhost".into()],
            region: None,
            proxies: Vec::new(),
            anonymous_user_creation: false,
            connections,
            memory,
            header_timeout,
            idle_timeout,
            drain_timeout,
        }
    }
}

impl S3Settings {
    /// The settings that every HTTP listener has.
    fn connection_settings(&self) -> ConnectionSettings {
        ConnectionSettings {
            connections: self.connections.clone(),
            memory: self.memory.clone(),
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            drain_timeout: self.drain_timeout,
        }
    }
}

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
        self.settings().connection_settings()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> S3Response {
        self.handle(requester, request).await
    }

    fn memory_of(response: &S3Body) -> u64 {
        response.memory()
    }

    fn busy(&self) -> S3Response {
        S3Service::busy(self)
    }
}

/// Serves `listener` until `shutdown` completes. The server then accepts nothing new and lets running requests finish;
/// at `drain_timeout` it cancels the rest.
pub async fn serve(
    listener: TcpListener,
    objects: Arc<Objects>,
    settings: S3Settings,
    shutdown: impl Future<Output = ()>,
) {
    let service = S3Service::new(objects, settings);
    larder_http_edge::serve(listener, service.clone(), shutdown).await;
    service.background().drain(service.settings().drain_timeout).await;
}
