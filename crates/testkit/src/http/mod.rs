//! HTTP/1.1 by hand, so that a test may send any bytes. The client blocks: its server runs in another process, or in a
//! [`BackgroundServer`](crate::BackgroundServer).
//!
//! ```text
//! HttpClient       a connection that is opened when it is needed: requests, and their answers
//! HttpConnection   one connection: bytes to the server, answers from it
//! ```

mod client;
mod connection;
mod reader;
mod request;
mod response;

pub use client::HttpClient;
pub use connection::{HttpConnection, connect};
pub use request::HttpRequest;
pub use response::{HttpResponse, element};
