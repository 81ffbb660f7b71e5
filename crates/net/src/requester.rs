//! The client of a request, and the memory that the request holds until its response is sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use larder_admission::{ClientAccount, HeldMemory, MemorySpent};
use parking_lot::Mutex;
use rustix::time::{ClockId, Timespec};

use crate::arriving_body::UnreadBody;
use crate::request_source::RequestSource;

/// The draws of a request so far, and their sum in bytes.
#[derive(Debug, Default)]
struct RequestDraws {
    draws: Vec<HeldMemory>,
    bytes: u64,
}

impl RequestDraws {
    /// The bytes that a memory of `bytes` in all lacks.
    fn missing(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.bytes.max(UNCOUNTED_BYTES))
    }

    fn add(&mut self, draw: HeldMemory, bytes: u64) {
        self.draws.push(draw);
        self.bytes = bytes;
    }
}

/// The memory of a response that grows while it is sent, beyond that of its request. It goes back when this is dropped.
#[derive(Debug)]
pub struct GrowingMemory {
    account: ClientAccount,
    held: RequestDraws,
}

impl GrowingMemory {
    /// Raises the memory to `bytes` in all, those of the request included, as [`Requester::hold`] does.
    ///
    /// # Errors
    /// [`MemorySpent`]: the response breaks off.
    pub async fn hold(&mut self, bytes: u64) -> Result<(), MemorySpent> {
        let missing = self.held.missing(bytes);
        if missing > 0 {
            let draw = self.account.draw(missing).await?;
            self.held.add(draw, bytes);
        }
        Ok(())
    }
}

/// A request's client. Its draws go back when the response is sent or breaks off.
#[derive(Debug)]
pub struct Requester<'a> {
    /// The client's address, and whether it encrypts.
    pub source: RequestSource,
    /// Whether a trusted proxy sent the request: the headers in which it forwards things are believed.
    pub is_forwarded: bool,
    account: &'a ClientAccount,
    held: Mutex<RequestDraws>,
    begun: Timespec,
    /// The place for a body that its handler leaves unread; `None`: it is dropped.
    unread: Option<UnreadBody>,
}

/// Bytes that a request holds without a draw: each connection's own memory covers them, and connections are bounded.
pub const UNCOUNTED_BYTES: u64 = 16 * 1024;

impl<'a> Requester<'a> {
    /// The client of one request.
    #[must_use]
    pub fn new(source: RequestSource, account: &'a ClientAccount) -> Self {
        Self { source, is_forwarded: false, account, held: Mutex::default(), begun: coarse_now(), unread: None }
    }

    /// The same, of a request that a trusted proxy sent or did not.
    #[must_use]
    pub(crate) fn with_forwarded(self, is_forwarded: bool) -> Self {
        Self { is_forwarded, ..self }
    }

    /// The same, with a place for a body that is left unread.
    #[must_use]
    pub(crate) fn with_unread(self, unread: Option<UnreadBody>) -> Self {
        Self { unread, ..self }
    }

    /// The place for a body that is left unread.
    pub(crate) fn unread(&self) -> Option<UnreadBody> {
        self.unread.clone()
    }

    /// The time since the request began, some milliseconds off.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(coarse_now() - self.begun).unwrap_or_default()
    }

    /// Raises the request's memory to `bytes` in all, and waits some seconds for other clients' memory. A response reuses the
    /// memory of the request's body: an applied write does not wait a second time.
    ///
    /// # Errors
    /// [`MemorySpent`]: the caller answers that the server is busy.
    pub async fn hold(&self, bytes: u64) -> Result<(), MemorySpent> {
        // The lock is free during the wait: a guard across `await` would block a thread of the runtime.
        let missing = self.held.lock().missing(bytes);
        if missing > 0 {
            let draw = self.account.draw(missing).await?;
            self.held.lock().add(draw, bytes);
        }
        Ok(())
    }

    /// Memory for a response that grows while it is sent.
    #[must_use]
    pub fn growing_memory(&self) -> GrowingMemory {
        let held = RequestDraws { draws: Vec::new(), bytes: self.held.lock().bytes };
        GrowingMemory { account: self.account.clone(), held }
    }

    /// The draws, to be held until the response is sent.
    pub(crate) fn into_held(self) -> Vec<HeldMemory> {
        self.held.into_inner().draws
    }
}

/// The clock of the system's timer: a look at it costs a few nanoseconds, a fraction of one at the exact clock.
fn coarse_now() -> Timespec {
    rustix::time::clock_gettime(ClockId::MonotonicCoarse)
}

/// A body that frees its memory when it is sent or breaks off.
#[derive(Debug)]
pub(crate) struct MemoryHoldingBody<B> {
    body: B,
    #[expect(dead_code, reason = "held, not read")]
    held: Vec<HeldMemory>,
}

impl<B> MemoryHoldingBody<B> {
    pub(crate) fn new(body: B, held: Vec<HeldMemory>) -> Self {
        Self { body, held }
    }
}

impl<B: Body + Unpin> Body for MemoryHoldingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
