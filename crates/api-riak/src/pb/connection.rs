//! One connection: requests in, answers out, in order.
//!
//! ```text
//! input   bytes that arrived; a request is taken when all of it is here
//! output  answers that are not sent yet: sent when no whole request is left, or at 64 KiB
//! ```
//! The connection reads nothing while it answers or sends, so a client that sends without reading is held back by its own
//! socket. Silence, slow requests and slow readers end it, at the paces of the other listeners.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use larder_admission::{ClientAccount, MemorySpent};
use larder_core::Error;
use larder_core::body::GetBody;
use larder_kv::Gateway;
use larder_net::{
    ConnectionWatchers, MinRate, PIECE_BYTES_MAX, Requester, UNCOUNTED_BYTES, break_off, close_lingering,
    pause_before_refusal, response_memory,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};

use super::fault::PbFault;
use super::frame::{FrameHead, LENGTH_BYTES};
use super::operations::{PbCode, PbOperation, UNKNOWN_BYTES_MAX, find};
use super::reply::{PagedReply, PbReply};
use super::reply_piece::ReplyPiece;
use super::service::{answer, try_answer};
use super::session::PbSession;

/// Answers that wait are sent when they exceed this many bytes.
const FLUSH_BYTES: usize = 64 * 1024;
/// A request holds memory for this part of it before it has arrived: a draw of the small ones.
const BEGUN_BYTES: usize = 32 * 1024;
/// A known request above its limit is read and dropped, up to this length; a longer one ends the connection.
const SKIPPED_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes that one read asks for.
const READ_BYTES: usize = 16 * 1024;
/// Buffers that grew beyond this are given back before a wait: a silent connection holds no memory of its largest request.
const KEPT_BYTES: usize = 2 * READ_BYTES;
/// How long an orderly end may wait for a client that does not read.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
/// Looks at the silence of a client within its timeout.
const TICKS_PER_SILENCE: u32 = 2;

/// The reason why a connection ends before its client closes it.
#[derive(Debug, thiserror::Error)]
enum PbEnd {
    /// The socket failed, or the client closed it within a request.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The client sends or reads below the least rate.
    #[error("the client is too slow")]
    TooSlow,
    /// The connection was silent for too long, or the server ends.
    #[error("the connection is idle")]
    Idle,
    /// The client begins a TLS handshake.
    #[error("the client starts TLS")]
    StartTls,
    /// The rest of the input means nothing, or an answer broke off.
    #[error("the stream of frames cannot go on")]
    Broken,
}

/// One connection with its buffers.
pub(super) struct PbConnection<S> {
    pub(super) socket: S,
    pub(super) account: ClientAccount,
    pub(super) gateway: Arc<Gateway>,
    pub(super) idle_timeout: Duration,
    pub(super) slow_after: Option<Duration>,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    pub(super) session: PbSession,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> PbConnection<S> {
    /// Serves the connection to its end, or to the begin of a TLS handshake: `true`. After `shutdown` it answers the requests that
    /// have arrived.
    pub(super) async fn serve(&mut self, shutdown: impl Future<Output = ()> + Send) -> bool {
        let waits = AtomicU64::new(0);
        let mut watchers = ConnectionWatchers::new();
        watchers.add(shutdown);
        watchers.add(wait_for_silence(&waits, self.idle_timeout));
        let ended = loop {
            let head = match FrameHead::parse(&self.input) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    waits.fetch_add(1, Ordering::Relaxed);
                    match self.wait_for_request(&mut watchers).await {
                        Ok(()) => continue,
                        Err(end) => break end,
                    }
                }
                Err(_) => break PbEnd::Broken,
            };
            // A client whose next request has always begun must not hide the end of the server either.
            if !head.is_whole(&self.input) && poll_fn(|context| Poll::Ready(watchers.poll(context).is_ready())).await {
                break PbEnd::Idle;
            }
            if let Err(end) = self.take_request(head).await {
                break end;
            }
        };
        // Answers given before the end still count.
        let _ = self.flush().await;
        match ended {
            // An immediate close would reset the connection under a client that still sends, and lose the error.
            PbEnd::Broken => close_lingering(&mut self.socket).await,
            // Bound: an encrypted socket says good-bye, which a client that reads nothing would hold up for ever.
            PbEnd::Io(_) | PbEnd::TooSlow | PbEnd::Idle => {
                let _ = timeout(GOODBYE_MAX, self.socket.shutdown()).await;
            }
            PbEnd::StartTls => return true,
        }
        tracing::debug!(reason = %ended, "connection of protocol buffers ended");
        false
    }

    /// Sends what waits, then waits for more bytes of a request whose head is not here yet.
    async fn wait_for_request(&mut self, watchers: &mut ConnectionWatchers<'_, ()>) -> Result<(), PbEnd> {
        self.flush().await?;
        self.input.reserve(READ_BYTES);
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::with_capacity(READ_BYTES);
        }
        if self.output.capacity() > KEPT_BYTES {
            self.output = BytesMut::new();
        }
        let has_begun = !self.input.is_empty();
        let read = async {
            if has_begun {
                let read = timeout_at(MinRate::begin().deadline(), self.socket.read_buf(&mut self.input)).await;
                return read.map_err(|_| PbEnd::TooSlow)?.map_err(PbEnd::from);
            }
            // The watcher of silence looks at the clock, not each wait for a request.
            self.socket.read_buf(&mut self.input).await.map_err(PbEnd::from)
        };
        let mut read = pin!(read);
        let read = poll_fn(|context| {
            // The end of the server first: a client that always has a request ready must not hide it.
            if watchers.poll(context).is_ready() {
                return Poll::Ready(Err(PbEnd::Idle));
            }
            read.as_mut().poll(context)
        });
        if read.await? == 0 { Err(PbEnd::Idle) } else { Ok(()) }
    }

    /// Takes the request with this head, and answers it.
    async fn take_request(&mut self, head: FrameHead) -> Result<(), PbEnd> {
        let row = find(head.code);
        if let Some(max) = self.length_max(row).filter(|max| head.length as u64 > *max) {
            PbFault::from(Error::TooLarge { bytes: head.length as u64, max }).put(&mut self.output);
            if row.is_none() || head.length > SKIPPED_BYTES_MAX {
                return Err(PbEnd::Broken);
            }
            // Why the rest is read: a client that still writes when its connection closes does not see the answer.
            return self.skip(head).await;
        }
        let is_short = read_and_decoded(row, head.length) <= UNCOUNTED_BYTES;
        let short = if is_short { head.take(&mut self.input) } else { None };
        if let Some(message) = &short
            && self.gateway.security().is_surely_off()
            && try_answer(&self.gateway, head.code, message, &mut self.output)
        {
            return if self.output.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) };
        }
        let account = self.account.clone();
        let requester = Requester::new(self.session.source, &account);
        let message = match short {
            Some(message) => message,
            None => match self.receive(head, row, &requester).await? {
                Some(message) => message,
                None => return Ok(()),
            },
        };
        let answered_before = self.output.len();
        let answered = answer(&self.gateway, &mut self.session, head.code, message, &mut self.output).await;
        self.log_if_slow(row, &requester);
        match answered {
            Ok(reply) => self.send(reply, &requester, answered_before).await,
            Err(fault) => {
                self.output.truncate(answered_before);
                if fault.is_overload() {
                    drop(requester);
                    self.flush().await?;
                    pause_before_refusal().await;
                }
                fault.put(&mut self.output);
                if fault.is_last() { Err(PbEnd::Broken) } else { Ok(()) }
            }
        }
    }

    fn log_if_slow(&self, row: Option<&PbCode>, requester: &Requester<'_>) {
        let elapsed = requester.elapsed();
        if self.slow_after.is_some_and(|limit| elapsed > limit) {
            tracing::warn!(
                client = %requester.source.address,
                operation = row.map(|row| tracing::field::debug(row.operation)),
                millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                "request slow: it took longer than slow-log allows"
            );
        }
    }

    /// The message with this head, once all of it is here; `None`: its client's share of memory is spent, and the request is
    /// answered.
    async fn receive(
        &mut self,
        head: FrameHead,
        row: Option<&PbCode>,
        requester: &Requester<'_>,
    ) -> Result<Option<Bytes>, PbEnd> {
        // Attack: a length that is only claimed must not hold the memory of others, so the first bytes come before the rest.
        // The bytes count twice or more: as read, and as decoded.
        let begun = head.length.min(BEGUN_BYTES);
        for (bytes, memory) in [(begun, 2 * begun as u64), (head.length, read_and_decoded(row, head.length))] {
            if requester.hold(memory).await.is_err() {
                self.skip(head).await?;
                overloaded().put(&mut self.output);
                return Ok(None);
            }
            self.read_until(LENGTH_BYTES + 1 + bytes).await?;
        }
        let message = head.take(&mut self.input).ok_or(PbEnd::Broken)?;
        if head.length > READ_BYTES {
            // The rest shares the memory of the message, and would keep all of it after the request.
            self.input = BytesMut::from(&self.input[..]);
        }
        Ok(Some(message))
    }

    /// Longest message of this row; `None` is no bound below that of a frame.
    fn length_max(&self, row: Option<&PbCode>) -> Option<u64> {
        let Some(row) = row else { return Some(UNKNOWN_BYTES_MAX as u64) };
        let value = if row.operation == PbOperation::Put { self.gateway.context().config.object_bytes_max } else { 0 };
        value.checked_add(row.bytes_max as u64)
    }

    /// Sends an answer, or leaves a short one in the output. A client whose share of memory is spent gets an error instead.
    async fn send(&mut self, reply: PbReply, requester: &Requester<'_>, answered_before: usize) -> Result<(), PbEnd> {
        let bytes = (self.output.len() - answered_before) as u64;
        let held = match &reply {
            PbReply::Done | PbReply::StartTls => bytes,
            PbReply::Pieces(pieces) => {
                bytes + pieces.iter().map(ReplyPiece::memory).sum::<u64>() + response_memory(None)
            }
            PbReply::Paged(_) => bytes + response_memory(None),
        };
        if requester.hold(held).await.is_err() {
            self.output.truncate(answered_before);
            overloaded().put(&mut self.output);
            return Ok(());
        }
        match reply {
            PbReply::Done => {}
            // Attack: requests after this one came in clear, and must not count as encrypted ones.
            PbReply::StartTls if !self.input.is_empty() => return Err(PbEnd::Broken),
            PbReply::StartTls => return Err(PbEnd::StartTls),
            PbReply::Pieces(pieces) => {
                for piece in pieces {
                    match piece {
                        ReplyPiece::Bytes(bytes) => self.output.extend_from_slice(&bytes),
                        ReplyPiece::Body(body) => self.send_body(body).await?,
                    }
                }
            }
            PbReply::Paged(mut paged) => loop {
                let page_begins = self.output.len();
                let page = match requester.hold(paged.memory() + response_memory(None)).await {
                    Ok(()) => self.next_page(&mut paged).await?,
                    Err(MemorySpent) => Err(overloaded()),
                };
                match page {
                    Ok(true) => self.flush().await?,
                    Ok(false) => break,
                    Err(fault) => {
                        self.output.truncate(page_begins);
                        fault.put(&mut self.output);
                        break;
                    }
                }
            },
        }
        if self.output.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Appends the next page of an answer. A job ends when its client closes the connection: it may run long before it sends.
    async fn next_page(&mut self, paged: &mut PagedReply) -> Result<Result<bool, PbFault>, PbEnd> {
        if !matches!(paged, PagedReply::Job(_)) {
            return Ok(paged.next(&mut self.output).await);
        }
        let Self { socket, input, output, .. } = self;
        // The step is never broken off by input: it could not begin again.
        let mut page = pin!(paged.next(output));
        loop {
            let has_room = input.len() < READ_BYTES;
            if has_room {
                input.reserve(READ_BYTES);
            }
            tokio::select! {
                biased;
                page = &mut page => return Ok(page),
                read = socket.read_buf(input), if has_room => if read? == 0 {
                    return Err(PbEnd::Idle);
                },
            }
        }
    }

    async fn send_body(&mut self, mut body: GetBody) -> Result<(), PbEnd> {
        self.flush().await?;
        let (length, mut offset) = (body.length(), 0);
        let mut min_rate = MinRate::begin();
        while offset < length {
            let piece = body.piece(offset, PIECE_BYTES_MAX).await;
            let piece = piece.map_err(io::Error::other).and_then(|piece| match piece.is_empty() {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(piece),
            });
            let piece = piece.map_err(|error| {
                drop(break_off("read of an object's body", error));
                PbEnd::Broken
            })?;
            offset += piece.len() as u64;
            write_all(&mut self.socket, &piece, &mut min_rate).await?;
        }
        Ok(())
    }

    /// Sends what waits.
    async fn flush(&mut self) -> Result<(), PbEnd> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = self.send_output().await;
        // Also after a failure: a part may have gone out, and must not go out again.
        self.output.clear();
        written
    }

    async fn send_output(&mut self) -> Result<(), PbEnd> {
        let sent = write_now(&mut self.socket, &self.output).await?;
        // Only a client that does not read fast enough needs a least rate, which looks at the clock.
        if sent == self.output.len() && flush_now(&mut self.socket).await? {
            return Ok(());
        }
        write_all(&mut self.socket, &self.output[sent..], &mut MinRate::begin()).await
    }

    /// Reads until `bytes` are in the input.
    async fn read_until(&mut self, bytes: usize) -> Result<(), PbEnd> {
        if self.input.len() < bytes {
            // The client may wait for these answers before it sends the rest.
            self.flush().await?;
        }
        let mut min_rate = MinRate::begin();
        while self.input.len() < bytes {
            // No more than has arrived already, so that a claimed length takes no memory.
            let missing = bytes - self.input.len();
            self.input.reserve(missing.min(self.input.len().max(READ_BYTES)));
            self.read(&mut min_rate).await?;
        }
        Ok(())
    }

    /// Sends what waits, then reads and drops a request that is not carried out.
    async fn skip(&mut self, head: FrameHead) -> Result<(), PbEnd> {
        self.flush().await?;
        let (mut left, mut min_rate) = (head.frame_bytes(), MinRate::begin());
        loop {
            let taken = left.min(self.input.len());
            self.input.advance(taken);
            left -= taken;
            if left == 0 {
                return Ok(());
            }
            self.input.reserve(READ_BYTES);
            self.read(&mut min_rate).await?;
        }
    }

    async fn read(&mut self, min_rate: &mut MinRate) -> Result<(), PbEnd> {
        let read = timeout_at(min_rate.deadline(), self.socket.read_buf(&mut self.input)).await;
        match read.map_err(|_| PbEnd::TooSlow)?? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => {
                min_rate.count(count as u64);
                Ok(())
            }
        }
    }
}

/// Returns when one wait for a request takes `timeout`, or half as long again at most; `waits` counts their begins. One timer
/// serves the whole connection.
async fn wait_for_silence(waits: &AtomicU64, timeout: Duration) {
    let mut ticks = interval(timeout.max(TICKS_PER_SILENCE * Duration::from_millis(1)) / TICKS_PER_SILENCE);
    // A late tick of a busy server must not shorten the time of its clients.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut quiet) = (0, 0);
    loop {
        ticks.tick().await;
        let now = waits.load(Ordering::Relaxed);
        // The first tick within a wait only begins the count.
        quiet = if now == before { quiet + 1 } else { 0 };
        if quiet >= TICKS_PER_SILENCE {
            return;
        }
        before = now;
    }
}

/// Bytes of memory that a message of this length takes: as read, and as decoded.
fn read_and_decoded(row: Option<&PbCode>, length: usize) -> u64 {
    length as u64 + row.map_or(length as u64, |row| row.decoded_bytes(length))
}

fn overloaded() -> PbFault {
    Error::Overloaded { retry_after: 1 }.into()
}

/// Writes as many bytes as the socket takes now, perhaps none.
async fn write_now(socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    let mut socket = Pin::new(socket);
    let write = poll_fn(|context| match socket.as_mut().poll_write(context, bytes) {
        Poll::Pending => Poll::Ready(Ok(0)),
        written => written,
    });
    write.await
}

/// Whether everything written has left the socket; an encrypted one may hold records back.
async fn flush_now(socket: &mut (impl AsyncWrite + Unpin)) -> io::Result<bool> {
    let mut socket = Pin::new(socket);
    poll_fn(|context| match socket.as_mut().poll_flush(context) {
        Poll::Pending => Poll::Ready(Ok(false)),
        Poll::Ready(flushed) => Poll::Ready(flushed.map(|()| true)),
    })
    .await
}

/// Writes all bytes, at the least rate of a transfer or faster, until they have left the socket.
async fn write_all(
    socket: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    min_rate: &mut MinRate,
) -> Result<(), PbEnd> {
    while !bytes.is_empty() {
        let written = timeout_at(min_rate.deadline(), socket.write(bytes)).await.map_err(|_| PbEnd::TooSlow)??;
        if written == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero).into());
        }
        bytes = &bytes[written..];
        min_rate.count(written as u64);
    }
    // An encrypted socket takes bytes into its records first: without this the last of them wait for the next answer.
    timeout_at(min_rate.deadline(), socket.flush()).await.map_err(|_| PbEnd::TooSlow)?.map_err(PbEnd::from)
}

#[cfg(test)]
mod tests;
