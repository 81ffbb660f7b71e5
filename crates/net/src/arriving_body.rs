//! The body of a request: the client that pays for its memory, and the least rate at which it must arrive.
//!
//! The rest of a body that a handler leaves unread.
//!
//! On a connection of HTTP/1 it stands before the next request: unless it is read, the connection ends, and a client that the
//! answer does not say so to sends its next request into the close. HTTP/2 resets the stream of a request whose body is dropped;
//! that follows the answer, but clients that still send (curl before version 8) take it for a failure, and show no answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use larder_admission::MemorySpent;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::Requester;

/// Longest piece of a response that goes out in pieces.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Memory of a response in pieces: two pieces wait for the socket, the engine keeps the last one, one is being read.
const PIECES_BYTES_HELD: u64 = 4 * PIECE_BYTES_MAX as u64;
/// Memory of a streamed upload: the bytes read before a blob begins, and as many on their way to it.
const STREAM_BYTES_HELD: u64 = 2 * 1024 * 1024;
/// How long a transfer may take to start.
const PACE_GRACE: Duration = Duration::from_secs(20);
/// The least average rate after that, in bytes per second.
const MIN_RATE_BYTES_PER_SECOND: u64 = 16 * 1024;

/// An unread body, and the client that sends it.
#[derive(Debug)]
pub struct ArrivingBody<'a> {
    incoming: RatedIncoming,
    requester: &'a Requester<'a>,
}

impl<'a> ArrivingBody<'a> {
    /// The body that this client sends.
    #[must_use]
    pub fn new(body: Incoming, requester: &'a Requester<'a>) -> Self {
        Self { incoming: RatedIncoming { body: Some(body), min_rate: None, unread: requester.unread() }, requester }
    }

    /// Bytes in all, where the client states them.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.incoming.length()
    }

    /// The body, once the request holds `memory` bytes in all.
    ///
    /// # Errors
    /// [`MemorySpent`]: the caller answers that the server is busy.
    pub async fn admit(self, memory: u64) -> Result<RatedIncoming, MemorySpent> {
        self.requester.hold(memory).await?;
        Ok(self.incoming)
    }

    /// The body and its client, where the headers decide how much memory is needed.
    #[must_use]
    pub fn into_parts(self) -> (RatedIncoming, &'a Requester<'a>) {
        (self.incoming, self.requester)
    }
}

/// The bytes of a request's body, in order.
pub struct RatedIncoming {
    /// There until this is dropped.
    body: Option<Incoming>,
    /// Begun by the first read: time before it counts against the server, not the client.
    min_rate: Option<MinRate>,
    /// The place for the rest, where somebody wants it.
    unread: Option<UnreadBody>,
}

/// The reason why a body ends early.
#[derive(Debug)]
pub enum IncomingError {
    /// The client sends below the least rate.
    TooSlow,
    /// The connection broke off, or its bytes are no valid body.
    BrokenOff(hyper::Error),
}

impl fmt::Debug for RatedIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RatedIncoming({:?} bytes)", self.length())
    }
}

impl RatedIncoming {
    /// Bytes in all, where the client states them.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.as_ref()?.size_hint().exact()
    }

    /// Whether the whole body was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    /// The next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// [`IncomingError`]; no bytes come after it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, IncomingError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let min_rate = self.min_rate.get_or_insert_with(MinRate::begin);
        loop {
            let frame = timeout_at(min_rate.deadline(), body.frame()).await;
            match frame.map_err(|_| IncomingError::TooSlow)? {
                None => return Ok(None),
                Some(Err(error)) => return Err(IncomingError::BrokenOff(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => {
                        min_rate.count(bytes.len() as u64);
                        return Ok(Some(bytes));
                    }
                    // Trailers and empty frames carry no data: the caller would take an empty piece for the end.
                    _ => {}
                },
            }
        }
    }
}

impl Drop for RatedIncoming {
    fn drop(&mut self) {
        if let (Some(unread), Some(body)) = (&self.unread, self.body.take()) {
            unread.put(body);
        }
    }
}

/// The least rate of one transfer, in either direction: a grace period, then an average.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    begun: Instant,
    bytes: u64,
}

impl MinRate {
    /// A rate whose grace period starts now.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now(), bytes: 0 }
    }

    /// Counts bytes received or sent.
    pub fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The deadline of the next bytes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let at_least = Duration::from_millis(self.bytes.saturating_mul(1000) / MIN_RATE_BYTES_PER_SECOND);
        self.begun + PACE_GRACE + at_least
    }
}

/// Bytes of memory that a response of this length holds while it goes out in pieces; `None`: an unknown length.
#[must_use]
pub fn response_memory(length: Option<u64>) -> u64 {
    length.unwrap_or(u64::MAX).min(PIECES_BYTES_HELD)
}

/// Bytes of memory that a body of this length holds while it streams in; `None`: an unknown length.
#[must_use]
pub fn upload_memory(length: Option<u64>) -> u64 {
    parsed_body_memory(length, STREAM_BYTES_HELD)
}

/// Bytes of memory that a parsed body of this length holds, `max` at most. Each byte counts twice: as read, and as parsed.
#[must_use]
pub fn parsed_body_memory(length: Option<u64>, max: u64) -> u64 {
    length.unwrap_or(max).saturating_mul(2).min(max)
}

/// Most bytes that are read: a longer body costs more than a new connection.
const BYTES_MAX: u64 = 256 * 1024;
/// How long they may take.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The place for the rest of a body. Clones are the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadBody(Arc<Mutex<Option<Incoming>>>);

impl UnreadBody {
    /// Puts a body that nobody reads any more.
    pub(crate) fn put(&self, body: Incoming) {
        *self.0.lock() = Some(body);
    }

    /// Reads and drops the rest of a short body, for a moment; returns whether that was all of it. `None`: the handler kept the body.
    /// A client that waits to send it (`Expect`) is not asked for it.
    pub(crate) async fn read_rest(&self, client_waits: bool) -> Option<bool> {
        let mut body = self.0.lock().take()?;
        if body.is_end_stream() {
            return Some(true);
        }
        // A body that is known to be too long is not begun: its client waits for the answer.
        if client_waits || body.size_hint().lower() > BYTES_MAX {
            return Some(false);
        }
        let reading = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if bytes > BYTES_MAX {
                    return false;
                }
            }
            true
        };
        // Bound: a client that sends nothing more gets its answer all the same.
        Some(timeout(TIME_MAX, reading).await.unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transfer_at_the_least_rate_is_never_late() {
        let mut min_rate = MinRate::begin();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(Instant::now() < min_rate.deadline());
            min_rate.count(MIN_RATE_BYTES_PER_SECOND);
        }
        tokio::time::sleep(PACE_GRACE + Duration::from_secs(1)).await;
        assert!(Instant::now() > min_rate.deadline(), "a transfer that stops is late after the grace period");
    }
}
