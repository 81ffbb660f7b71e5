//! The rest of a body that a handler leaves unread, where the protocol wants it read.
//!
//! HTTP/2 resets the stream of a request whose body is dropped. That follows the answer, but clients that still send (curl before
//! version 8) take it for a failure of the stream, and show no answer.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Most bytes that are read: of a longer body the client hears of the answer by the reset.
const BYTES_MAX: usize = 256 * 1024;
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

    /// Reads and drops the rest of a short body, for a moment.
    pub(crate) async fn read_rest(&self) {
        let Some(mut body) = self.0.lock().take() else { return };
        let rest = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > BYTES_MAX {
                    return;
                }
            }
        };
        // Bound: a client that sends nothing more gets its answer all the same.
        let _ = timeout(TIME_MAX, rest).await;
    }
}
