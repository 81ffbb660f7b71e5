//! The body of a request, read at a least rate.

use std::fmt;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use larder_admission::Pace;
use tokio::time::timeout_at;

/// The bytes of a request's body, in order.
pub struct PacedIncoming {
    body: Incoming,
    /// Begun by the first read: time before it counts against the server, not the client.
    pace: Option<Pace>,
}

/// The reason why a body ends early.
#[derive(Debug)]
pub enum IncomingError {
    /// The client sends below the least rate.
    TooSlow,
    /// The connection broke off, or its bytes are no valid body.
    BrokenOff(hyper::Error),
}

impl fmt::Debug for PacedIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacedIncoming({:?} bytes)", self.length())
    }
}

impl PacedIncoming {
    /// An unread body.
    #[must_use]
    pub fn new(body: Incoming) -> Self {
        Self { body, pace: None }
    }

    /// Bytes in all, where the client states them.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Whether the whole body was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// [`IncomingError`]; no bytes come after it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, IncomingError> {
        let pace = self.pace.get_or_insert_with(Pace::begin);
        loop {
            let frame = timeout_at(pace.deadline(), self.body.frame()).await;
            match frame.map_err(|_| IncomingError::TooSlow)? {
                None => return Ok(None),
                Some(Err(error)) => return Err(IncomingError::BrokenOff(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => {
                        pace.count(bytes.len() as u64);
                        return Ok(Some(bytes));
                    }
                    _ => {}
                },
            }
        }
    }
}
