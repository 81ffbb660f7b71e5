//! The pieces of a form with a file, as its parser may have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

/// Feeds a parser of `multipart/form-data`, which buffers all input it can get, one piece at a time: so it buffers only bytes
/// that are not yet asked for. More than `preamble_max` bytes before `file_begun` is set end the form with `too_long`.
pub fn form_pieces<E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    preamble_max: usize,
    file_begun: Arc<AtomicBool>,
    too_long: impl Fn() -> E,
) -> impl Stream<Item = Result<Bytes, E>> {
    let mut received = 0_usize;
    let mut pieces = Box::pin(pieces.map(move |piece| {
        let piece = piece?;
        received = received.saturating_add(piece.len());
        // Bound: a part before the file could otherwise be as long as the file.
        let is_preamble = !file_begun.load(Ordering::Relaxed);
        if received > preamble_max && is_preamble { Err(too_long()) } else { Ok(piece) }
    }));
    let mut pauses = false;
    stream::poll_fn(move |cx| {
        // The parser polls until the input is pending; the pause after each piece ends that loop.
        if std::mem::take(&mut pauses) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = pieces.as_mut().poll_next(cx);
        pauses = matches!(&next, Poll::Ready(Some(Ok(_))));
        next
    })
}
