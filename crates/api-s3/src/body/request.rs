//! Request bodies: unchunked, hashed, counted, and checked against the announced length.
//!
//! No byte is read before it is requested. So a client that sent `Expect: 100-continue` waits for the checks of its
//! headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use hyper::header::HeaderMap;
use larder_core::body::{BodyError, ByteStream};
use larder_net::{IncomingError, RatedIncoming};
use larder_rows::limits::S3_DOCUMENT_BYTES_MAX;
use larder_s3;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::auth::chunked::ChunkedDecoder;
use crate::auth::{Payload, VerifiedSignature};
use crate::errors::{Code, S3Error};

/// Longest time to receive a document. Permissions are checked when the request begins and may change while it arrives.
pub(crate) const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(120);

/// Why a request body failed. The gateway sees only a broken stream; the handler takes the S3 error from here.
#[derive(Debug, Clone, Default)]
pub struct RequestBodyFailure(Arc<Mutex<Option<S3Error>>>);

impl RequestBodyFailure {
    /// The S3 error for a gateway error: the body's own failure if there is one.
    #[must_use]
    pub fn error_for(&self, error: larder_s3::Error) -> S3Error {
        self.take().unwrap_or_else(|| error.into())
    }

    /// The body's own failure, once.
    pub(crate) fn take(&self) -> Option<S3Error> {
        self.0.lock().take()
    }

    /// Keeps a failure and returns the error that the gateway sees.
    pub(crate) fn record(&self, error: S3Error) -> BodyError {
        let body_error = BodyError(error.message.clone().into_owned());
        // The first failure is kept: later ones follow from it.
        self.0.lock().get_or_insert(error);
        body_error
    }
}

/// The source of the raw bytes.
enum RequestBodySource {
    Wire(RatedIncoming),
    #[cfg(test)]
    Pieces(std::collections::VecDeque<Bytes>),
    #[cfg(test)]
    Never,
    /// Bytes that were received before.
    Received(Bytes),
    Nothing,
}

/// The body of a request.
pub struct RequestBody {
    source: RequestBodySource,
    /// Bytes received but not yet decoded.
    input: Bytes,
    decoder: Option<ChunkedDecoder>,
    digest: Option<PayloadDigest>,
    length: Option<u64>,
    count: Arc<AtomicU64>,
    failure: RequestBodyFailure,
    done: bool,
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestBody({} of {:?} bytes)", self.count(), self.length)
    }
}

impl RequestBody {
    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::from_source(RequestBodySource::Nothing, Some(0))
    }

    /// A body that was received and verified before.
    #[must_use]
    pub fn received(body: Bytes) -> Self {
        let length = body.len() as u64;
        Self::from_source(RequestBodySource::Received(body), Some(length))
    }

    /// The body of a request, framed and verified as its headers say.
    ///
    /// # Errors
    /// `MissingContentLength`: a chunked payload without its decoded length. `InvalidRequest`: signed chunks without a
    /// version 4 signature. `InvalidArgument`: an unknown payload type.
    pub fn new(
        body: RatedIncoming,
        headers: &HeaderMap,
        signature: Option<&VerifiedSignature>,
    ) -> Result<Self, S3Error> {
        let length = body.length();
        let mut this = Self::from_source(RequestBodySource::Wire(body), length);
        this.set_framing(Payload::from_headers(headers)?, headers, signature)?;
        Ok(this)
    }

    fn from_source(source: RequestBodySource, length: Option<u64>) -> Self {
        Self {
            source,
            input: Bytes::new(),
            decoder: None,
            digest: None,
            length,
            count: Arc::default(),
            failure: RequestBodyFailure::default(),
            done: false,
        }
    }

    fn set_framing(
        &mut self,
        payload: Payload,
        headers: &HeaderMap,
        signature: Option<&VerifiedSignature>,
    ) -> Result<(), S3Error> {
        match payload {
            Payload::Unsigned => {}
            Payload::Sha256(expected) => self.digest = Some(PayloadDigest::new(expected)),
            Payload::Chunked { signed, trailer } => {
                let signer = signature.and_then(|signature| signature.signer.clone());
                // Without a signing key the chunks cannot be verified, and must not pass as signed.
                if signed && signer.is_none() {
                    return Err(S3Error::invalid("Signed chunks need a signature of version 4."));
                }
                let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
                let length = text("x-amz-decoded-content-length").and_then(|length| length.trim().parse().ok());
                let length: u64 = length.ok_or(Code::MissingContentLength)?;
                let announced = text("x-amz-trailer").filter(|_| trailer);
                // The length of the decoded bytes: the framed length of the request is greater.
                self.length = Some(length);
                self.decoder = Some(ChunkedDecoder::new(length, signer.filter(|_| signed), announced));
            }
        }
        // A signed hash overrides the unsigned header.
        if let Some(expected) = signature.and_then(|signature| signature.body) {
            self.digest = Some(PayloadDigest::new(expected));
        }
        Ok(())
    }

    /// Announced length in bytes after decoding.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Bytes read so far, after decoding.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The counter behind [`count`](Self::count), readable while another task reads the body.
    pub(crate) fn byte_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    /// The body's failure, filled in when reading fails.
    #[must_use]
    pub fn failure(&self) -> RequestBodyFailure {
        self.failure.clone()
    }

    /// Reads the whole body as a document.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `RequestTimeout` for a slow body, and the errors of
    /// [`next_piece`](Self::next_piece).
    pub async fn document(self) -> Result<Bytes, S3Error> {
        let late = |_| Err(Code::RequestTimeout.into());
        tokio::time::timeout(DOCUMENT_TIME_MAX, self.collect(S3_DOCUMENT_BYTES_MAX)).await.unwrap_or_else(late)
    }

    /// Reads the whole body, at most `max` bytes. A body that arrives in one piece is not copied.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, and the errors of [`next_piece`](Self::next_piece).
    pub async fn collect(mut self, max: usize) -> Result<Bytes, S3Error> {
        let over = || S3Error::from(Code::MaxMessageLengthExceeded).with("MaxMessageLengthBytes", max.to_string());
        // Refused by the announced length, before a byte is read.
        if self.length.is_some_and(|length| length > max as u64) {
            return Err(over());
        }
        let Some(first) = self.next_piece().await? else { return Ok(Bytes::new()) };
        let mut all = BytesMut::new();
        let mut whole = first;
        while let Some(bytes) = self.next_piece().await? {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut whole));
            }
            // An unannounced length is known only as it arrives.
            if all.len() + bytes.len() > max {
                return Err(over());
            }
            all.extend_from_slice(&bytes);
        }
        let all = if all.is_empty() { whole } else { all.freeze() };
        if all.len() > max { Err(over()) } else { Ok(all) }
    }

    /// The next decoded bytes; `None` at the end, after length, framing, signatures and hash were verified.
    ///
    /// # Errors
    /// The S3 error of an invalid, incomplete or slow body.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, S3Error> {
        while !self.done {
            if let Some(bytes) = self.decode_input()? {
                return Ok(Some(bytes));
            }
            match self.receive().await? {
                Some(bytes) => self.input = bytes,
                None => {
                    self.done = true;
                    // `done` is already set: a body that fails here cannot be read again as if it were complete.
                    self.verify_end()?;
                }
            }
        }
        Ok(None)
    }

    /// Decodes bytes received so far.
    fn decode_input(&mut self) -> Result<Option<Bytes>, S3Error> {
        let bytes = match &mut self.decoder {
            Some(decoder) => decoder.next(&mut self.input)?,
            None => Some(std::mem::take(&mut self.input)).filter(|bytes| !bytes.is_empty()),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(digest) = &mut self.digest {
            digest.update(&bytes);
        }
        Ok(Some(bytes))
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, S3Error> {
        match &mut self.source {
            RequestBodySource::Nothing => Ok(None),
            RequestBodySource::Received(body) => Ok(Some(std::mem::take(body)).filter(|body| !body.is_empty())),
            #[cfg(test)]
            RequestBodySource::Pieces(pieces) => Ok(pieces.pop_front()),
            #[cfg(test)]
            RequestBodySource::Never => std::future::pending().await,
            RequestBodySource::Wire(body) => body.next().await.map_err(|error| match error {
                IncomingError::TooSlow => Code::RequestTimeout.into(),
                IncomingError::BrokenOff(error) => {
                    tracing::debug!(%error, "receiving a request body failed; answered IncompleteBody");
                    Code::IncompleteBody.into()
                }
            }),
        }
    }

    fn verify_end(&mut self) -> Result<(), S3Error> {
        if let Some(decoder) = &mut self.decoder {
            decoder.finish()?;
        }
        // Fewer bytes than announced: the connection ended early, and the object must not be stored.
        if self.length.is_some_and(|length| length != self.count()) {
            return Err(Code::IncompleteBody.into());
        }
        self.digest.take().map_or(Ok(()), PayloadDigest::verify)
    }
}

#[async_trait]
impl ByteStream for RequestBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let next = self.next_piece().await.transpose()?;
        Some(next.map_err(|error| {
            self.done = true;
            self.failure.record(error)
        }))
    }

    fn trailing(&mut self) -> Option<(String, Bytes)> {
        let trailers = self.decoder.as_ref()?.trailers();
        trailers.iter().find(|(name, _)| name.starts_with("x-amz-checksum-")).cloned()
    }
}

/// An incremental SHA-256 with its expected value.
#[derive(Debug)]
pub(super) struct PayloadDigest {
    expected: [u8; 32],
    hasher: Sha256,
}

impl PayloadDigest {
    pub(super) fn new(expected: [u8; 32]) -> Self {
        Self { expected, hasher: Sha256::new() }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Verifies the digest in constant time.
    pub(super) fn verify(self) -> Result<(), S3Error> {
        let computed = self.hasher.finalize();
        if computed.as_slice().ct_eq(&self.expected).into() {
            return Ok(());
        }
        Err(S3Error::from(Code::XAmzContentSHA256Mismatch)
            .with("ClientComputedContentSHA256", hex::encode(self.expected))
            .with("S3ComputedContentSHA256", hex::encode(computed)))
    }
}

#[cfg(test)]
mod tests;
