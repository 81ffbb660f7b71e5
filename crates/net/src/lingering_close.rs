//! A lingering close, as nginx does it. A refusal can go out while the client still sends its body; an immediate close would
//! reset the connection and lose the refusal. So the socket ends its writes, drains input for a while, and closes then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use larder_admission::{ClientAccount, HeldMemory, MemorySpent};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;

use crate::client_socket::ClientSocket;
use crate::request_framing::RequestFraming;
use crate::requester::UNCOUNTED_BYTES;

/// How long the socket drains input before it closes.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes held for a long request head, whose buffer grows by doubling: the longest that any listener takes.
const HEAD_BYTES_HELD: u64 = 256 * 1024;

/// Bytes that one read of a lingering close takes.
const DRAIN_BYTES: usize = 16 * 1024;

/// Closes a socket whose client may still be sending: ends the writes, then drops input until the client closes too, or for a
/// while.
pub async fn close_lingering(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drain = async {
        socket.shutdown().await?;
        let mut space = vec![0; DRAIN_BYTES];
        while socket.read(&mut space).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Bound: a client that sends for ever must not keep its socket open for ever.
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, drain).await {
        tracing::debug!(%error, "connection ended before its client closed it");
    }
}

/// Counters of a connection, shared with its timers. They only grow.
#[derive(Debug, Default)]
pub(crate) struct ConnectionActivity {
    begun: AtomicU64,
    answered: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Reads before the last response.
    reads_answered: AtomicU64,
    /// Whether a request was answered before its whole body arrived.
    unread: AtomicBool,
    /// Bytes that went out.
    sent: AtomicU64,
    /// Whether bytes wait because the client does not read.
    blocked: AtomicBool,
}

/// The counters of a [`ConnectionActivity`] at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ActivityCounts {
    /// Requests begun.
    pub(crate) begun: u64,
    /// Requests answered; their response bodies may still be on the way.
    pub(crate) answered: u64,
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Writes that took bytes.
    pub(crate) writes: u64,
}

impl ConnectionActivity {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        // hyper parses a request only after the body before it was read to its end.
        self.unread.store(false, Ordering::Relaxed);
    }

    /// Counts a response; `unread`: the request's body may still be arriving.
    pub(crate) fn answered(&self, unread: bool) {
        if unread {
            self.unread.store(true, Ordering::Relaxed);
        }
        // Reads so far belong to answered requests: later ones are unanswered input.
        self.reads_answered.store(self.reads.load(Ordering::Relaxed), Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of the counters.
    pub(crate) fn counts(&self) -> ActivityCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ActivityCounts {
            begun: count(&self.begun),
            answered: count(&self.answered),
            reads: count(&self.reads),
            writes: count(&self.writes),
        }
    }

    /// Bytes that went out.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Whether the socket waits for the client to read.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        // A pending write means a full socket: the client does not read.
        self.blocked.store(result.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(result) = result {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.sent.fetch_add(result.as_ref().map_or(0, |count| *count as u64), Ordering::Relaxed);
        }
    }

    /// Whether the client may still be sending: an unread body, or bytes that were no request.
    fn has_unread_input(&self) -> bool {
        let unanswered = self.reads.load(Ordering::Relaxed) != self.reads_answered.load(Ordering::Relaxed);
        unanswered || self.unread.load(Ordering::Relaxed)
    }
}

/// A client's socket, with its counters and its lingering close.
pub(crate) struct LingeringSocket {
    stream: ClientSocket,
    activity: Arc<ConnectionActivity>,
    /// Of HTTP/1.
    heads: Option<RequestHeads>,
    linger_deadline: Option<Pin<Box<Sleep>>>,
}

/// The heads of HTTP/1: where they lie, and the memory of one that has begun and not ended. A connection's own memory covers a
/// short one.
struct RequestHeads {
    framing: RequestFraming,
    account: ClientAccount,
    held: Option<HeldMemory>,
}

impl RequestHeads {
    /// Looks at the bytes that arrived next, and refuses a bare LF of a head.
    ///
    /// # Errors
    /// `OutOfMemory`: the client's share has no memory for a long head.
    fn look(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.framing.refuse_bare_line_feeds(bytes);
        if self.framing.head_bytes() <= UNCOUNTED_BYTES {
            self.held = None;
        } else if self.held.is_none() {
            // Bound: a client could otherwise send a long head slowly on many connections and fill the memory.
            let held = self.account.try_draw(HEAD_BYTES_HELD);
            self.held = Some(held.map_err(|MemorySpent| io::Error::from(io::ErrorKind::OutOfMemory))?);
        }
        Ok(())
    }
}

impl LingeringSocket {
    /// Wraps a socket.
    #[must_use]
    pub(crate) fn new(stream: ClientSocket, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, activity, heads: None, linger_deadline: None }
    }

    /// The same of HTTP/1, whose heads have no bare LF, and memory of the client's share while they are long.
    #[must_use]
    pub(crate) fn with_heads(self, account: ClientAccount) -> Self {
        let heads = RequestHeads { framing: RequestFraming::default(), account, held: None };
        Self { heads: Some(heads), ..self }
    }

    /// Reads and drops input until the client closes or the linger deadline passes.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.linger_deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        // Bound: a client that sends for ever must not keep its socket open for ever.
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut space = [0; DRAIN_BYTES];
        loop {
            let mut space = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space)) {
                Ok(()) if !space.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl AsyncRead for LingeringSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(end) = self.heads.as_mut().and_then(|heads| heads.framing.end_of_refused()) {
            buf.put_slice(&end[..end.len().min(buf.remaining())]);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let count = buf.filled().len() - before;
        if count > 0 {
            self.activity.reads.fetch_add(1, Ordering::Relaxed);
            if let Some(heads) = &mut self.heads {
                heads.look(&mut buf.filled_mut()[before..])?;
            }
        }
        result
    }
}

impl AsyncWrite for LingeringSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.activity.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.activity.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger_deadline.is_none() {
            // The response must reach the client before the drain: the write side closes first.
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.linger_deadline.is_some() || self.activity.has_unread_input() {
            ready!(self.drain(cx));
        }
        Poll::Ready(Ok(()))
    }
}
