//! The stream of figures: one event a second, until the client leaves, its session ends or the server stops.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use larder_kv::Gateway;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::overview;
use crate::access::ConsoleAccess;
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::live::{LiveFeed, LiveFigures};
use crate::reply::{ConsoleReply, events};

/// An open stream.
struct OpenStream {
    feed: Arc<LiveFeed>,
    gateway: Arc<Gateway>,
    access: Arc<ConsoleAccess>,
    cookie: Bytes,
    changes: watch::Receiver<u64>,
    /// Held as long as the stream is open.
    _place: OwnedSemaphorePermit,
}

/// `GET /live`.
///
/// # Errors
/// All places are taken.
pub(crate) fn live(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    // Bound: each stream holds a connection for as long as its page is open.
    let place = Arc::clone(&call.feed.streams).try_acquire_owned().map_err(|_| {
        ConsoleFault::new(StatusCode::SERVICE_UNAVAILABLE, "Too many pages show live figures. Load this one again.")
    })?;
    let open = OpenStream {
        feed: Arc::clone(call.feed),
        gateway: Arc::clone(call.gateway()),
        access: Arc::clone(&call.settings.access),
        cookie: Bytes::copy_from_slice(call.cookie),
        changes: call.feed.changes(),
        _place: place,
    };
    let next = async |mut open: OpenStream| open.next().await.map(|event| (event, open));
    Ok(events(Box::pin(stream::unfold(open, move |open| Box::pin(next(open))))))
}

impl OpenStream {
    async fn next(&mut self) -> Option<Bytes> {
        self.changes.changed().await.ok()?;
        let context = self.gateway.context();
        // A stream without an end would hold up the shutdown.
        let goes_on = !context.is_stopping() && self.access.session(&self.cookie, context.monotonic()).is_some();
        goes_on.then(|| event(&self.gateway, &LiveFigures::from_history(&self.feed.history())))
    }
}

/// One event: texts, meters and lines by the names that the page gives to their places.
fn event(gateway: &Gateway, figures: &LiveFigures) -> Bytes {
    let texts: Map<String, Value> =
        figures.texts().iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect();
    let data = json!({
        "texts": texts,
        "meters": { "memory": figures.memory_percent, "disk": figures.disk_percent },
        "lines": { "rate": figures.rate_line, "p99": figures.p99_line },
        "findings": overview::digest(&overview::node_findings(gateway, figures)),
    });
    format!("event: figures\ndata: {data}\n\n").into()
}
