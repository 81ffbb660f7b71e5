//! Sockets and connections: the listener of every protocol, and the connections of HTTP. This crate knows no route, no error
//! and no gateway.
//!
//! ```text
//! accept           the listener: its connections, refusals, draining
//! acceptor         the next connection, and pauses after failures
//! connection_limit one bound of connections for all listeners
//! client_socket    its socket, encrypted or not
//! server_tls       the certificate of a listener, and its replacement
//! request_source   the client of a request: the peer, or the client that a trusted proxy names
//! proxy_header     the PROXY protocol of trusted proxies
//! connection       one client: requests to the handler, timeouts, its last request
//! http2            the same, of several requests at a time
//! request_framing  where the heads of requests lie, to refuse a bare LF
//! request_answer   one request of a connection: its client, its memory, its answer
//! broken_answer    answers that end in the middle
//! lingering_close  a socket that counts its reads and writes, and drains input before it closes
//! requester        the client of a request, and the memory held until its response is sent
//! watchers         what a connection waits for besides its client: the end of the server, its timers
//! browser_rules    the pages whose requests are refused, by host and origin
//! arriving_body    the body of a request: its memory, and the least rate of a transfer
//! form_pieces      the body of a form with a file, as its parser may have it
//! ```

mod accept;
mod acceptor;
mod arriving_body;
mod broken_answer;
mod browser_rules;
mod client_socket;
mod connection;
mod connection_limit;
mod form_pieces;
mod http2;
mod lingering_close;
mod proxy_header;
mod request_answer;
mod request_framing;
mod request_source;
mod requester;
mod server_tls;
mod watchers;

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{AsHeaderName, HOST, HeaderMap, HeaderValue};
use hyper::{Request, Response};
use larder_admission::MemoryBudget;

pub use accept::{ConnectedClient, ConnectionServer, ListenerWork, ShutdownRequest, serve_connections};
pub use acceptor::Acceptor;
pub use arriving_body::{
    ArrivingBody, IncomingError, MinRate, PIECE_BYTES_MAX, RatedIncoming, parsed_body_memory, response_memory,
    upload_memory,
};
pub use broken_answer::break_off;
pub use browser_rules::{AllowedOrigins, BrowserRules, ForeignRequest};
pub use client_socket::{ClientListener, ClientSocket};
pub use connection::serve;
pub use connection_limit::{ConnectionLimit, REFUSALS_MAX};
pub use form_pieces::form_pieces;
pub use larder_store::RateLimitedLog;
pub use lingering_close::close_lingering;
pub use request_answer::pause_before_refusal;
pub use request_source::{RequestSource, TrustedProxies};
pub use requester::{GrowingMemory, Requester, UNCOUNTED_BYTES};
pub use server_tls::{CIPHER_NAMES, CipherList, ServerTls, TlsFiles};
pub use watchers::ConnectionWatchers;

/// Settings of a listener.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// Most connections at a time, of all listeners that share it; one more gets 503 and is closed.
    pub connections: ConnectionLimit,
    /// The memory budget that clients of all listeners share.
    pub memory: MemoryBudget,
    /// The proxies that name clients.
    pub proxies: TrustedProxies,
    /// Requests that take longer get a line in the log; `None`: none do.
    pub slow_after: Option<Duration>,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long running requests may take after the server is asked to end.
    pub drain_timeout: Duration,
}

/// The default memory budget of a listener.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            connections: ConnectionLimit::default(),
            memory: MemoryBudget::new(MEMORY_BYTES, 0),
            proxies: TrustedProxies::default(),
            slow_after: None,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How a listener speaks HTTP.
#[derive(Debug, Clone, Copy)]
pub struct HttpDialect {
    /// The listener's name in log lines.
    pub name: &'static str,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Most bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// Whether header names are written `Like-This`, for clients that compare them by case.
    pub title_case: bool,
    /// The 503 of a connection above the limit: media type and body.
    pub overload_response: (&'static str, &'static str),
}

/// The code that answers the requests of a listener. Each connection takes a clone.
pub trait ConnectionHandler: Clone + Send + Sync + 'static {
    /// The body of its responses.
    type Body: Body<Data: Send + Unpin, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// How it speaks HTTP.
    const DIALECT: HttpDialect;

    /// Its settings; they do not change.
    fn settings(&self) -> ConnectionSettings;

    /// Answers one request of a client. It must not panic.
    fn respond(
        &self,
        requester: &Requester<'_>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Bytes of memory that a response holds while it is sent.
    fn response_memory(answer: &Self::Body) -> u64;

    /// The response of a busy server: 503 and `Retry-After`.
    fn busy(&self) -> Response<Self::Body>;
}

/// Whether a request names two hosts: one part of the way could take the first, and another the last (RFC 9112 §3.2).
#[must_use]
pub fn names_two_hosts(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().nth(1).is_some()
}

/// All values of a header as one, with `separator` between them; `None` without the header.
#[must_use]
pub fn joined(headers: &HeaderMap, name: impl AsHeaderName, separator: &[u8]) -> Option<Bytes> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| values.join(separator).into())
}
