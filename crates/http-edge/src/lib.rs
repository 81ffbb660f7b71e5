//! Sockets and connections, below every face that speaks HTTP. It knows no route, no error and no gateway.
//!
//! ```text
//! accept      takes connections, turns away what is too much, drains at the end
//! acceptor    the next connection of a listener, whatever the system says
//! limit       how many connections all listeners of a process hold
//! requester   whose a request is, and the memory it holds        paid   an answer gives that back when it was sent
//! incoming    the body of a request, at a pace                   arriving  with the client that pays for its memory
//! held        how much memory bodies hold on their way
//! connection  one client: requests to the face, its silences, its last request
//! linger      a socket that sees what goes through it and says goodbye properly
//! ```

mod accept;
mod acceptor;
mod arriving;
mod connection;
mod held;
mod incoming;
mod limit;
mod linger;
mod paid;
mod requester;

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use larder_admission::MemoryBudget;

pub use accept::serve;
pub use acceptor::Acceptor;
pub use arriving::ArrivingBody;
pub use held::{PIECE_BYTES_MAX, held_by_pieces, held_by_stream, held_twice};
pub use incoming::{IncomingError, PacedIncoming};
pub use limit::{ConnectionLimit, REFUSALS_MAX};
pub use requester::Requester;

/// Settings of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most connections at a time, of all listeners that share it; one more is answered 503 and closed.
    pub connections: ConnectionLimit,
    /// The memory that clients of all listeners hold together.
    pub memory: MemoryBudget,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long requests may take that run when the server is told to end.
    pub drain_timeout: Duration,
}

/// Memory of all clients where a listener is not told otherwise.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: ConnectionLimit::default(),
            memory: MemoryBudget::new(MEMORY_BYTES, 0),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How a face speaks HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// The listener's name in log lines.
    pub name: &'static str,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Most bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// Whether the names of headers are written `Like-This`, for clients that are particular about it.
    pub title_case: bool,
    /// The 503 of one connection too many: media type and body.
    pub turned_away: (&'static str, &'static str),
}

/// The code that answers the requests of a listener. A clone is taken for each connection.
pub trait Face: Clone + Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// How it speaks HTTP.
    const WIRE: Wire;

    /// Its settings; they do not change.
    fn settings(&self) -> Settings;

    /// Answers one request of a client. It must not panic.
    fn respond(
        &self,
        requester: &Requester<'_>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Bytes of memory that an answer holds while it is sent.
    fn memory_of(answer: &Self::Body) -> u64;

    /// The answer that the server is busy: 503, and when to try again.
    fn busy(&self) -> Response<Self::Body>;
}
