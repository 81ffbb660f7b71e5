//! The listener.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use larder_admission::MemoryBudget;
use larder_gateway::objects::Objects;
use larder_http_edge::{ConnectionLimit, Face, Requester, Settings, Wire};
use tokio::net::TcpListener;

use crate::body::Body;
use crate::pipeline::S3Service;
use crate::reply::Reply;

/// Settings of the S3 listener.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Root hosts: what stands in front of one is a bucket.
    pub roots: Vec<String>,
    /// The only region that signatures may be for; `None`: any.
    pub region: Option<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub proxies: Vec<IpAddr>,
    /// Whether anybody may create users, as Riak CS lets the first administrator in.
    pub anonymous_user_creation: bool,
    /// Most connections at a time, of all listeners that share it; one more is answered 503 and closed.
    pub connections: ConnectionLimit,
    /// What all clients hold in memory, of all listeners that share it.
    pub memory: MemoryBudget,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long requests may take that run when the server is told to end.
    pub drain_timeout: Duration,
}

impl Default for S3Settings {
    fn default() -> Self {
        let Settings { connections, memory, header_timeout, idle_timeout, drain_timeout } = Settings::default();
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
    /// Those of the listener alone.
    fn of_listener(&self) -> Settings {
        Settings {
            connections: self.connections.clone(),
            memory: self.memory.clone(),
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            drain_timeout: self.drain_timeout,
        }
    }
}

impl Face for S3Service {
    type Body = Body;

    const WIRE: Wire = Wire {
        name: "s3",
        headers_max: 256,
        // A key of 1 KiB escaped, 2 KiB of metadata, a presigned query with a token.
        header_bytes_max: 64 * 1024,
        title_case: false,
        turned_away: (
            "application/xml",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your \
             request rate.</Message></Error>",
        ),
    };

    fn settings(&self) -> Settings {
        self.settings().of_listener()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Reply {
        self.answer(requester, request).await
    }

    fn memory_of(answer: &Body) -> u64 {
        answer.memory()
    }

    fn busy(&self) -> Reply {
        S3Service::busy(self)
    }
}

/// Serves `listener` until `shutdown`: then nothing new is accepted, requests under way are finished, and what is not
/// finished by the deadline is broken off.
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
