//! A connection of HTTP/2, which a client asks for in its handshake: several requests at a time, each a stream.
//!
//! The handler sees each request as one of HTTP/1.1: with a `Host` header, and a path without authority. Streams end with their
//! connection, as a request does.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{HOST, HeaderValue};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use larder_admission::MemorySpent;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::accept::ConnectedClient;
use crate::client_socket::ClientSocket;
use crate::lingering_close::{ConnectionActivity, LingeringSocket};
use crate::request_answer::{answer, forwarded};
use crate::requester::{MemoryHoldingBody, UNCOUNTED_BYTES};
use crate::watchers::{ConnectionWatchers, wait_for_slow_reader};
use crate::{ConnectionHandler, ConnectionSettings};

/// Most requests at a time.
const STREAMS_MAX: u32 = 32;
/// Bytes that a client may send before its request reads them: of one stream, and of all.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of a response that wait for the socket.
const SEND_BYTES_MAX: usize = 16 * 1024;
/// Streams that a client may open and reset before they were accepted.
const RESETS_MAX: usize = 20;
/// Memory of a connection besides that of one of HTTP/1.1.
const BYTES_HELD: u64 = CONNECTION_WINDOW as u64 + STREAMS_MAX as u64 * (SEND_BYTES_MAX as u64 + UNCOUNTED_BYTES);

/// The streams of a connection, as its timers see them.
#[derive(Debug, Default)]
struct StreamActivity {
    /// Responses that are not sent to their end.
    sending: AtomicUsize,
    /// Those of them whose client has not taken what it has got.
    untaken: AtomicUsize,
}

/// Serves one connection to its end. After `shutdown` the requests under way are its last.
pub(crate) async fn serve<F: ConnectionHandler>(
    socket: ClientSocket,
    client: ConnectedClient,
    handler: F,
    shutdown: impl Future<Output = ()> + Send,
) {
    let settings = handler.settings();
    // The windows are promises to the client: their memory is drawn before they are made.
    let Ok(_held) = client.account.try_draw(BYTES_HELD) else {
        return tracing::debug!(address = %client.source.address, "no memory for a connection of HTTP/2: it is closed");
    };
    let (activity, streams) = (Arc::new(ConnectionActivity::default()), Arc::new(StreamActivity::default()));
    let io = TokioIo::new(LingeringSocket::new(socket, Arc::clone(&activity)));
    let is_proxy = settings.proxies.contains(client.source.address);
    let of_stream = Arc::new((handler, client, Arc::clone(&activity), Arc::clone(&streams), settings.clone()));
    let answer = service_fn(move |request| {
        let of_stream = Arc::clone(&of_stream);
        async move {
            let (handler, client, activity, streams, settings) = &*of_stream;
            let request = as_of_http1(request);
            // Bound: many heads may wait at a time, and each may be long.
            let head = head_bytes(&request);
            let _head = match head > UNCOUNTED_BYTES {
                true => match client.account.draw(head).await {
                    Ok(held) => Some(held),
                    Err(MemorySpent) => {
                        let busy = handler.busy().map(|body| MemoryHoldingBody::new(body, Vec::new()));
                        return Ok(busy.map(|body| StreamBody::new(body, streams)));
                    }
                },
                false => None,
            };
            let named = is_proxy.then(|| forwarded::<F>(client, &request, settings));
            let answered = answer(handler, activity, client, named, request).await;
            answered.map(|response| response.map(|body| StreamBody::new(body, streams)))
        }
    });
    let tasks = StreamTasks::default();
    let _end = EndOfStreams(tasks.clone());
    let connection = http2::Builder::new(tasks)
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_header_list_size(u32::try_from(F::DIALECT.header_bytes_max).unwrap_or(u32::MAX))
        .serve_connection(io, answer);
    let mut connection = pin!(connection);
    let mut watchers = ConnectionWatchers::new();
    watchers.add(async {
        shutdown.await;
        true
    });
    watchers.add(async {
        wait_for_silence(&activity, &streams, &settings).await;
        false
    });
    watchers.add(async {
        let is_blocked = || activity.is_blocked() || streams.untaken.load(Ordering::Relaxed) > 0;
        wait_for_slow_reader(|| (is_blocked(), activity.sent())).await;
        false
    });
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "connection of HTTP/2 broke off");
                }
                return;
            }
            is_shutdown = watchers.next() => match is_shutdown {
                // The client hears which requests are still answered.
                true => connection.as_mut().graceful_shutdown(),
                false => return,
            },
        }
    }
}

/// The request with what HTTP/1.1 has: its authority as the `Host` header, and no authority in its target.
fn as_of_http1(request: Request<Incoming>) -> Request<Incoming> {
    let (mut parts, body) = request.into_parts();
    if let Some(host) = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        // The authority is what the client connects to: a header beside it that says otherwise does not count.
        parts.headers.insert(HOST, host);
        let target = parts.uri.path_and_query().cloned();
        parts.uri = target.map_or_else(Uri::default, Uri::from);
    }
    Request::from_parts(parts, body)
}

/// Returns when the client asks for nothing, for too long. Frames that are no requests do not count.
async fn wait_for_silence(activity: &ConnectionActivity, streams: &StreamActivity, settings: &ConnectionSettings) {
    let mut ticks = tokio::time::interval(settings.header_timeout);
    // A late tick of a busy server must not shorten the time of its clients.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut idle) = (0, Duration::ZERO);
    loop {
        ticks.tick().await;
        let now = activity.counts();
        let is_quiet = now.begun == now.answered && streams.sending.load(Ordering::Relaxed) == 0 && now.begun == before;
        idle = if is_quiet { idle + settings.header_timeout } else { Duration::ZERO };
        if idle > settings.idle_timeout {
            return;
        }
        before = now.begun;
    }
}

/// The tasks of a connection's streams.
#[derive(Clone, Default)]
struct StreamTasks(Arc<Mutex<JoinSet<()>>>);

impl<T: Future<Output = ()> + Send + 'static> Executor<T> for StreamTasks {
    fn execute(&self, task: T) {
        let mut tasks = self.0.lock();
        // Ended tasks leave the set here: it would grow with each request otherwise.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Ends the streams when their connection is dropped. They hold the set that they are in, so it is not dropped by itself.
struct EndOfStreams(StreamTasks);

impl Drop for EndOfStreams {
    fn drop(&mut self) {
        self.0.0.lock().abort_all();
    }
}

/// Bytes of the names and values of a request's headers, and of its target.
fn head_bytes(request: &Request<Incoming>) -> u64 {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    (headers.sum::<usize>() + target) as u64
}

/// A response of a stream. HTTP/2 takes its next piece when the client has room for a byte of it, and keeps the rest: pieces are
/// small, so that what it keeps is little, and the response holds its memory until the last of them.
struct StreamBody<B: Body> {
    body: B,
    /// The rest of a piece of the body.
    rest: Option<B::Data>,
    streams: Arc<StreamActivity>,
    /// Whether the last piece may still wait for the client.
    is_untaken: bool,
}

impl<B: Body> StreamBody<B> {
    fn new(body: B, streams: &Arc<StreamActivity>) -> Self {
        streams.sending.fetch_add(1, Ordering::Relaxed);
        Self { body, rest: None, streams: Arc::clone(streams), is_untaken: false }
    }

    fn set_untaken(&mut self, is_untaken: bool) {
        match (self.is_untaken, is_untaken) {
            (false, true) => self.streams.untaken.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.streams.untaken.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.is_untaken = is_untaken;
    }
}

impl<B: Body> Drop for StreamBody<B> {
    fn drop(&mut self) {
        self.set_untaken(false);
        self.streams.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body<Data: Unpin> + Unpin> Body for StreamBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_none() {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            let is_piece = matches!(polled, Poll::Ready(Some(Ok(_))));
            self.set_untaken(is_piece);
            match ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = Some(data),
                    Err(frame) => {
                        return Poll::Ready(frame.into_trailers().ok().map(|trailers| Ok(Frame::trailers(trailers))));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let piece = rest.copy_to_bytes(rest.remaining().min(SEND_BYTES_MAX));
        if !rest.has_remaining() {
            self.rest = None;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let unsent_bytes = self.rest.as_ref().map_or(0, Buf::remaining) as u64;
        let body_size = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = body_size.upper() {
            hint.set_upper(upper + unsent_bytes);
        }
        hint.set_lower(body_size.lower() + unsent_bytes);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    #[tokio::test]
    async fn a_large_piece_goes_out_in_small_ones_so_that_little_waits_undrawn() {
        let streams = Arc::new(StreamActivity::default());
        let whole: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let mut body = StreamBody::new(Full::new(Bytes::from(whole.clone())), &streams);
        let mut got = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= SEND_BYTES_MAX);
            assert_eq!(body.size_hint().exact(), Some((whole.len() - got.len() - piece.len()) as u64));
            got.extend_from_slice(&piece);
            assert_eq!(body.is_end_stream(), got.len() == whole.len());
            // Until it is polled again, the client has not taken the piece.
            assert_eq!(streams.untaken.load(Ordering::Relaxed), 1);
        }
        assert_eq!(got, whole);
        drop(body);
        let left = [&streams.sending, &streams.untaken].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(left, [0, 0]);
    }
}
