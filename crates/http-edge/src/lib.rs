//! What every face that speaks HTTP has below it: sockets and connections. It knows no route, no error and no gateway.
//!
//! ```text
//! accept      takes connections, turns away what is too much, drains at the end
//! acceptor    the next connection of a listener, whatever the system says
//! limit       how many connections all listeners of a process hold
//! connection  one client: requests to the face, its silences, its last request
//! linger      a socket that sees what goes through it and says goodbye properly
//! ```

mod accept;
mod acceptor;
mod connection;
mod limit;
mod linger;

use std::error::Error;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};

pub use accept::serve;
pub use acceptor::Acceptor;
pub use connection::serve_connection;
pub use limit::{ConnectionLimit, REFUSALS_MAX};

/// Settings of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most connections at a time, of all listeners that share it; one more is answered 503 and closed.
    pub connections: ConnectionLimit,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long requests may take that run when the server is told to end.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: ConnectionLimit::default(),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How a face speaks HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// What log lines call the listener.
    pub name: &'static str,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Most bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// Whether the names of headers are written `Like-This`, for clients that are particular about it.
    pub title_case: bool,
    /// What one connection too many is told: media type and body of its 503.
    pub turned_away: (&'static str, &'static str),
}

/// What answers the requests of a listener. A clone is taken for each connection.
pub trait Face: Clone + Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// How it speaks HTTP.
    const WIRE: Wire;

    /// Its settings; they do not change.
    fn settings(&self) -> Settings;

    /// Answers one request of the client at `peer`. It must not panic.
    fn respond(&self, peer: IpAddr, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}
