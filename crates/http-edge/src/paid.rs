//! The body of an answer, with the memory that is held until it was sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use larder_admission::HeldMemory;

/// A body that gives memory back when it was sent or broke off.
#[derive(Debug)]
pub(crate) struct PaidBody<B> {
    body: B,
    #[expect(dead_code, reason = "held, not read")]
    held: Vec<HeldMemory>,
}

impl<B> PaidBody<B> {
    pub(crate) fn new(body: B, held: Vec<HeldMemory>) -> Self {
        Self { body, held }
    }
}

impl<B: Body + Unpin> Body for PaidBody<B> {
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
