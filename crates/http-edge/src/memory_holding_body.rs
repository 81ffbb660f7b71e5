//! The body of a response, with the memory it holds until it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use larder_admission::HeldMemory;

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
