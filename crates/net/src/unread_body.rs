//! The rest of a body that a handler leaves unread.
//!
//! On a connection of HTTP/1 it stands before the next request: unless it is read, the connection ends, and a client that the
//! answer does not say so to sends its next request into the close. HTTP/2 resets the stream of a request whose body is dropped;
//! that follows the answer, but clients that still send (curl before version 8) take it for a failure, and show no answer.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use parking_lot::Mutex;
use tokio::time::timeout;

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
        let rest = async {
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
        Some(timeout(TIME_MAX, rest).await.unwrap_or(false))
    }
}
