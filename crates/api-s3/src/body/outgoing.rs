//! Bodies of answers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use larder_gateway::objects::get::ObjectReader;
use larder_http_edge::{PIECE_BYTES_MAX, held_by_pieces};

use crate::tally::Tally;
use crate::xml::PROLOG;

/// How often a byte goes out while an answer is awaited whose status is told already.
const BEAT: Duration = Duration::from_secs(10);

/// The pieces of an answer.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The body of an answer.
pub struct Body {
    kind: Kind,
    tally: Option<Tally>,
}

enum Kind {
    Full(Bytes),
    Pieces { pieces: Pieces, left: Option<u64> },
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Full(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Pieces { left, .. } => write!(f, "Body(pieces of {left:?})"),
        }
    }
}

impl Body {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// All of it at once.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Self { kind: Kind::Full(bytes), tally: None }
    }

    /// A piece at a time; without a length it goes out chunked.
    #[must_use]
    pub fn pieces(pieces: Pieces, length: Option<u64>) -> Self {
        Self { kind: Kind::Pieces { pieces, left: length }, tally: None }
    }

    /// The bytes of an object: the `length` bytes that `reader` was opened for. Damage found on the way breaks the answer off:
    /// never wrong bytes.
    #[must_use]
    pub fn object(reader: ObjectReader, length: u64) -> Self {
        if length == 0 {
            return Self::empty();
        }
        let pieces = stream::unfold((reader, length), |(mut reader, left)| async move {
            if left == 0 {
                return None;
            }
            let max = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
            match reader.next(max).await {
                Ok(bytes) if bytes.is_empty() => Some((Err(io::ErrorKind::UnexpectedEof.into()), (reader, 0))),
                Ok(bytes) => {
                    let left = left.saturating_sub(bytes.len() as u64);
                    Some((Ok(bytes), (reader, left)))
                }
                Err(error) => {
                    tracing::error!(%error, "an object's body broke off while it was sent");
                    Some((Err(io::Error::other(error)), (reader, 0)))
                }
            }
        });
        Self::pieces(Box::pin(pieces), Some(length))
    }

    /// A document that takes its time: its first line goes out at once, then a space every ten seconds, then the rest. So the
    /// status is told before the outcome is known: only for what is expected to be slow.
    #[must_use]
    pub fn slow(document: impl Future<Output = Bytes> + Send + 'static) -> Self {
        let prolog = stream::iter([Ok(Bytes::from_static(PROLOG.as_bytes()))]);
        let rest = stream::unfold(Some(Box::pin(document)), |waiting| async move {
            let mut document = waiting?;
            match tokio::time::timeout(BEAT, document.as_mut()).await {
                Ok(bytes) => Some((Ok(without_prolog(bytes)), None)),
                Err(_) => Some((Ok(Bytes::from_static(b" ")), Some(document))),
            }
        });
        Self::pieces(Box::pin(futures_util::StreamExt::chain(prolog, rest)), None)
    }

    /// The bytes, when they are all here.
    #[must_use]
    pub fn into_full(self) -> Option<Bytes> {
        match self.kind {
            Kind::Full(bytes) => Some(bytes),
            Kind::Pieces { .. } => None,
        }
    }

    /// The same, its bytes counted.
    #[must_use]
    pub(crate) fn counted(mut self, tally: Tally) -> Self {
        self.tally = Some(tally);
        self
    }

    /// Bytes of memory that it holds while it is sent.
    #[must_use]
    pub(crate) fn memory(&self) -> u64 {
        match &self.kind {
            Kind::Full(bytes) => bytes.len() as u64,
            Kind::Pieces { left, .. } => held_by_pieces(*left),
        }
    }

    /// How many bytes it will have, when that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.kind {
            Kind::Full(bytes) => Some(bytes.len() as u64),
            Kind::Pieces { left, .. } => *left,
        }
    }
}

fn without_prolog(document: Bytes) -> Bytes {
    if document.starts_with(PROLOG.as_bytes()) { document.slice(PROLOG.len()..) } else { document }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = match &mut self.kind {
            Kind::Full(bytes) if bytes.is_empty() => None,
            Kind::Full(bytes) => Some(Ok(std::mem::take(bytes))),
            Kind::Pieces { pieces, left } => {
                let piece = std::task::ready!(pieces.as_mut().poll_next(cx));
                if let (Some(Ok(bytes)), Some(left)) = (&piece, left) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                piece
            }
        };
        let whole = self.length() == Some(0) || piece.is_none();
        if let Some(tally) = &mut self.tally {
            tally.sent += piece.as_ref().and_then(|piece| piece.as_ref().ok()).map_or(0, |bytes| bytes.len() as u64);
            tally.whole = whole;
        }
        Poll::Ready(piece.map(|one| one.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_slow_document_beats_until_it_is_there() {
        let document = async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            crate::xml::Xml::bare("R").finish()
        };
        let body = Body::slow(document);
        assert_eq!(body.length(), None);
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, format!("{PROLOG}  <R></R>"));
    }

    #[tokio::test]
    async fn a_body_knows_what_is_left_of_it() {
        let pieces = stream::iter([Ok(Bytes::from_static(b"ab")), Ok(Bytes::from_static(b"c"))]);
        let mut body = Body::pieces(Box::pin(pieces), Some(3));
        assert_eq!(body.size_hint().exact(), Some(3));
        let _ = body.frame().await;
        assert_eq!(body.length(), Some(1));
        assert_eq!(Body::full(Bytes::from_static(b"x")).into_full().unwrap(), "x");
    }
}
