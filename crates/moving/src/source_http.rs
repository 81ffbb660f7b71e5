//! The port to the source: HTTP requests that change nothing there. A fetch from a queue takes its element away.

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
    /// A question with a body.
    Post,
}

impl SourceRequest {
    /// Its name in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// Headers of a request: names in lower case, and values.
pub type CallHeaders = Vec<(&'static str, String)>;

/// One request, as it is sent.
#[derive(Clone, Copy)]
pub struct SourceCall<'a> {
    /// Its method.
    pub method: SourceRequest,
    /// Its URL, `http://` or `https://`. The client sends the authority in it as `Host`, letter by letter.
    pub url: &'a str,
    /// Its headers. They may have a signature, so the client sends them as they are.
    pub headers: &'a [(&'static str, String)],
    /// The body of a question; else empty.
    pub body: &'a str,
}

/// Reads from a source over HTTP.
#[async_trait]
pub trait SourceHttp: Send + Sync {
    /// Sends one request to its URL and to no other: it follows no redirection. The caller gives it up after its time.
    ///
    /// # Errors
    /// One line: no connection, or no answer.
    async fn send(&self, call: SourceCall<'_>) -> Result<SourceAnswer, String>;
}
