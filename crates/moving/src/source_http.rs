//! The port to the source: HTTP requests that only read.

use async_trait::async_trait;
use larder_core::body::ByteStream;

use crate::rules::SourceHeaders;

/// An answer of the source.
pub struct SourceAnswer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: SourceHeaders,
    /// Its body.
    pub body: Box<dyn ByteStream>,
}

/// A request to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceRequest {
    /// With the body.
    Get,
    /// The head alone.
    Head,
}

/// Reads from a source over HTTP.
#[async_trait]
pub trait SourceHttp: Send + Sync {
    /// Sends one request to this URL and to no other: it follows no redirection. The caller gives it up after its time.
    ///
    /// # Errors
    /// One line: no connection, or no answer.
    async fn send(&self, method: SourceRequest, url: &str, accept: &str) -> Result<SourceAnswer, String>;
}
