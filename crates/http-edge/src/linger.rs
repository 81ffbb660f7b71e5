//! A socket that says goodbye properly. A refusal can go out while the client still sends its body: closing at once would
//! reset the connection and take the refusal with it. So the socket stops writing, takes in a little more, and closes then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use larder_admission::{ClientAccount, HeldMemory, MemorySpent};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::requester::UNCOUNTED_BYTES;

/// How long a client may take to stop sending.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes held for a long head, whose buffer grows by doubling: the longest that any listener takes.
const HEAD_BYTES_HELD: u64 = 256 * 1024;

/// The doings of a connection, seen from outside: counters that only grow.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    begun: AtomicU64,
    answered: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Of the reads, those before the last answer.
    reads_answered: AtomicU64,
    /// Whether a request was answered before its body had come.
    unread: AtomicBool,
    /// Bytes that went out.
    sent: AtomicU64,
    /// Whether bytes wait for the client to take what was sent before.
    blocked: AtomicBool,
}

/// A pulse at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Requests begun.
    pub(crate) begun: u64,
    /// Requests answered, but for the bodies of the answers.
    pub(crate) answered: u64,
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Writes that took bytes.
    pub(crate) writes: u64,
}

impl Pulse {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        // A request comes only when the body before it was read to its end.
        self.unread.store(false, Ordering::Relaxed);
    }

    /// It is answered; `unread`: with a body that may still be coming.
    pub(crate) fn answered(&self, unread: bool) {
        if unread {
            self.unread.store(true, Ordering::Relaxed);
        }
        self.reads_answered.store(self.reads.load(Ordering::Relaxed), Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts until now.
    pub(crate) fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
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

    /// Whether the client has to take something before more can go out.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        self.blocked.store(result.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(result) = result {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.sent.fetch_add(result.as_ref().map_or(0, |count| *count as u64), Ordering::Relaxed);
        }
    }

    /// Whether the client may still be sending: a body nobody wanted, or what was no request.
    fn is_cut_short(&self) -> bool {
        let unanswered = self.reads.load(Ordering::Relaxed) != self.reads_answered.load(Ordering::Relaxed);
        unanswered || self.unread.load(Ordering::Relaxed)
    }
}

/// A client's socket.
pub(crate) struct Socket {
    stream: TcpStream,
    pulse: Arc<Pulse>,
    head: HeadMemory,
    goodbye: Option<Pin<Box<Sleep>>>,
}

/// The memory of a head that has begun and not ended: a short one is in what every connection costs.
pub(crate) struct HeadMemory {
    account: ClientAccount,
    /// Requests that had begun when its first bytes came.
    behind: u64,
    bytes: u64,
    held: Option<HeldMemory>,
}

impl HeadMemory {
    pub(crate) fn new(account: ClientAccount) -> Self {
        Self { account, behind: 0, bytes: 0, held: None }
    }

    /// Counts bytes of the head behind so many requests.
    ///
    /// # Errors
    /// There is no memory for a long one.
    fn came(&mut self, begun: u64, bytes: u64) -> io::Result<()> {
        if begun != self.behind {
            // The head before has become a request.
            (self.behind, self.bytes, self.held) = (begun, 0, None);
        }
        self.bytes += bytes;
        if self.held.is_none() && self.bytes > UNCOUNTED_BYTES {
            let held = self.account.try_draw(HEAD_BYTES_HELD);
            self.held = Some(held.map_err(|MemorySpent| io::Error::from(io::ErrorKind::OutOfMemory))?);
        }
        Ok(())
    }
}

impl Socket {
    /// Wraps a socket.
    #[must_use]
    pub(crate) fn new(stream: TcpStream, pulse: Arc<Pulse>, head: HeadMemory) -> Self {
        Self { stream, pulse, head, goodbye: None }
    }

    /// Reads what still comes, until the client closes or its time is over.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.goodbye.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut space = [0; 16 * 1024];
        loop {
            let mut space = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space)) {
                Ok(()) if !space.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let count = buf.filled().len() - before;
        if count > 0 {
            self.pulse.reads.fetch_add(1, Ordering::Relaxed);
            let begun = self.pulse.begun.load(Ordering::Relaxed);
            let is_head = begun == self.pulse.answered.load(Ordering::Relaxed);
            self.head.came(begun, if is_head { count as u64 } else { 0 })?;
        }
        result
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.pulse.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.pulse.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.goodbye.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.goodbye.is_some() || self.pulse.is_cut_short() {
            ready!(self.drain(cx));
        }
        Poll::Ready(Ok(()))
    }
}
