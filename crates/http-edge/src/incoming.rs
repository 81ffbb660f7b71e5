//! The body of a request, which has to come at a pace.

use std::fmt;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use larder_admission::Pace;
use tokio::time::timeout_at;

/// The bytes of a request's body, front to back.
pub struct PacedIncoming {
    body: Incoming,
    /// Begun with the first read: nothing is late that was not asked for.
    pace: Option<Pace>,
}

/// Why no more bytes come.
#[derive(Debug)]
pub enum IncomingError {
    /// They come too slowly.
    TooSlow,
    /// The connection broke off, or what came is no body.
    BrokenOff(hyper::Error),
}

impl fmt::Debug for PacedIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacedIncoming({:?} bytes)", self.length())
    }
}

impl PacedIncoming {
    /// Nothing was read yet.
    #[must_use]
    pub fn new(body: Incoming) -> Self {
        Self { body, pace: None }
    }

    /// Bytes in all, where the client said so.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The next bytes, never none; `None` at the end.
    ///
    /// # Errors
    /// [`IncomingError`]; nothing comes after it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, IncomingError> {
        let pace = self.pace.get_or_insert_with(Pace::begin);
        loop {
            let frame = timeout_at(pace.latest(), self.body.frame()).await;
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
