//! The body of an object of the source, as it comes.

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};

use crate::source_calls::next_piece;

/// The body of an object, compared with the length that was announced.
pub(super) struct FetchedBody {
    /// `None` after its end, or a failure.
    body: Option<Box<dyn ByteStream>>,
    /// Bytes that are to come.
    left: Option<u64>,
}

#[async_trait]
impl ByteStream for FetchedBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let piece = self.checked_piece().await.transpose();
        if !matches!(piece, Some(Ok(_))) {
            self.body = None;
        }
        piece
    }
}

impl FetchedBody {
    /// A body that was announced with this length.
    pub(super) fn new(body: Box<dyn ByteStream>, length: Option<u64>) -> Self {
        Self { body: Some(body), left: length }
    }

    async fn checked_piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        let piece = next_piece(body.as_mut()).await.map_err(|error| BodyError(error.to_string()))?;
        let Some(left) = &mut self.left else { return Ok(piece) };
        let length = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        *left = left.checked_sub(length).ok_or_else(|| BodyError("the body is longer than announced".to_owned()))?;
        if piece.is_none() && *left > 0 {
            return Err(BodyError("the answer broke off".to_owned()));
        }
        Ok(piece)
    }
}
