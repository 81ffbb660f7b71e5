//! Bodies of requests: taken out of their chunks, summed, counted, and never longer or shorter than announced.
//!
//! Nothing is read before it is asked for: that is what makes the client of `Expect: 100-continue` wait for the checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use hyper::header::HeaderMap;
use larder_http_edge::{IncomingError, PacedIncoming};
use parking_lot::Mutex;

use larder_gateway::body::{BodyError, ByteStream};
use larder_gateway::objects;
use larder_model::limits::S3_DOCUMENT_BYTES_MAX;

use crate::auth::chunked::Decoder;
use crate::auth::{Checked, Payload};
use crate::errors::{Code, Fault};

use super::sum::Sum;

/// How long a document may take to come: who asked may not be who may ask any more when it comes at last.
pub(crate) const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(120);

/// Why a body broke off, kept for who answers: the gateway knows only that it did.
#[derive(Debug, Clone, Default)]
pub struct Verdict(Arc<Mutex<Option<Fault>>>);

impl Verdict {
    /// The answer to an error of the gateway that read the body: what was wrong with the body, if that was it.
    #[must_use]
    pub fn of(&self, error: objects::Error) -> Fault {
        self.0.lock().take().unwrap_or_else(|| error.into())
    }

    fn keep(&self, fault: Fault) -> BodyError {
        let error = BodyError(fault.message.clone().into_owned());
        self.0.lock().get_or_insert(fault);
        error
    }
}

/// Where the bytes come from.
enum Source {
    Wire(PacedIncoming),
    #[cfg(test)]
    Pieces(std::collections::VecDeque<Bytes>),
    #[cfg(test)]
    Never,
    Nothing,
}

/// The body of a request.
pub struct RequestBody {
    source: Source,
    /// What was received and not yet decoded.
    input: Bytes,
    decoder: Option<Decoder>,
    sum: Option<Sum>,
    length: Option<u64>,
    count: Arc<AtomicU64>,
    verdict: Verdict,
    done: bool,
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestBody({} of {:?} bytes)", self.count(), self.length)
    }
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::over(Source::Nothing, Some(0))
    }

    /// The body of a request whose headers say how it is to be read.
    ///
    /// # Errors
    /// `MissingContentLength`: chunks without the length of what is in them; `InvalidRequest`: signed chunks of a request whose
    /// signature cannot sign them; `InvalidArgument`: a payload there is none of.
    pub fn of(body: PacedIncoming, headers: &HeaderMap, checked: Option<&Checked>) -> Result<Self, Fault> {
        let length = body.length();
        let mut this = Self::over(Source::Wire(body), length);
        this.read_as(Payload::of(headers)?, headers, checked)?;
        Ok(this)
    }

    fn over(source: Source, length: Option<u64>) -> Self {
        Self {
            source,
            input: Bytes::new(),
            decoder: None,
            sum: None,
            length,
            count: Arc::default(),
            verdict: Verdict::default(),
            done: false,
        }
    }

    fn read_as(&mut self, payload: Payload, headers: &HeaderMap, checked: Option<&Checked>) -> Result<(), Fault> {
        match payload {
            Payload::Unsigned => {}
            Payload::Sha256(expected) => self.sum = Some(Sum::new(expected)),
            Payload::Chunked { signed, trailer } => {
                let signer = checked.and_then(|checked| checked.signer.clone());
                if signed && signer.is_none() {
                    return Err(Fault::invalid("Signed chunks need a signature of version 4."));
                }
                let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
                let length = text("x-amz-decoded-content-length").and_then(|length| length.trim().parse().ok());
                let length: u64 = length.ok_or(Code::MissingContentLength)?;
                let announced = text("x-amz-trailer").filter(|_| trailer);
                self.length = Some(length);
                self.decoder = Some(Decoder::new(length, signer.filter(|_| signed), announced));
            }
        }
        // What was signed counts, whatever an unsigned header says.
        if let Some(expected) = checked.and_then(|checked| checked.body) {
            self.sum = Some(Sum::new(expected));
        }
        Ok(())
    }

    /// How many bytes it has once decoded, if that was announced.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// How many bytes of it were read, once decoded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The same, to look at while somebody else reads the body.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    /// Why it broke off, once it did.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// All of it, a document of the client's.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `RequestTimeout` when it dribbles, and whatever breaks it off.
    pub async fn document(self) -> Result<Bytes, Fault> {
        let late = |_| Err(Code::RequestTimeout.into());
        tokio::time::timeout(DOCUMENT_TIME_MAX, self.collect(S3_DOCUMENT_BYTES_MAX)).await.unwrap_or_else(late)
    }

    /// All of it, at most `max` bytes. One piece, which is what a short body comes in, is not copied.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, and whatever breaks it off.
    pub async fn collect(mut self, max: usize) -> Result<Bytes, Fault> {
        let over = || Fault::from(Code::MaxMessageLengthExceeded).with("MaxMessageLengthBytes", max.to_string());
        if self.length.is_some_and(|length| length > max as u64) {
            return Err(over());
        }
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        let mut all = BytesMut::new();
        let mut whole = first;
        while let Some(bytes) = self.piece().await? {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut whole));
            }
            if all.len() + bytes.len() > max {
                return Err(over());
            }
            all.extend_from_slice(&bytes);
        }
        let all = if all.is_empty() { whole } else { all.freeze() };
        if all.len() > max { Err(over()) } else { Ok(all) }
    }

    /// The next bytes, decoded; `None` at the end, when everything about the body was found to hold.
    ///
    /// # Errors
    /// Everything that can be wrong with a body, as the protocol names it.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Fault> {
        while !self.done {
            if let Some(bytes) = self.decoded()? {
                return Ok(Some(bytes));
            }
            match self.receive().await? {
                Some(bytes) => self.input = bytes,
                None => {
                    self.done = true;
                    self.holds()?;
                }
            }
        }
        Ok(None)
    }

    /// What can be taken out of the bytes received.
    fn decoded(&mut self) -> Result<Option<Bytes>, Fault> {
        let bytes = match &mut self.decoder {
            Some(decoder) => decoder.next(&mut self.input)?,
            None => Some(std::mem::take(&mut self.input)).filter(|bytes| !bytes.is_empty()),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(sum) = &mut self.sum {
            sum.add(&bytes);
        }
        Ok(Some(bytes))
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, Fault> {
        match &mut self.source {
            Source::Nothing => Ok(None),
            #[cfg(test)]
            Source::Pieces(pieces) => Ok(pieces.pop_front()),
            #[cfg(test)]
            Source::Never => std::future::pending().await,
            Source::Wire(body) => body.next().await.map_err(|error| match error {
                IncomingError::TooSlow => Code::RequestTimeout.into(),
                IncomingError::BrokenOff(error) => {
                    tracing::debug!(%error, "a body broke off");
                    Code::IncompleteBody.into()
                }
            }),
        }
    }

    fn holds(&mut self) -> Result<(), Fault> {
        if let Some(decoder) = &mut self.decoder {
            decoder.finish()?;
        }
        if self.length.is_some_and(|length| length != self.count()) {
            return Err(Code::IncompleteBody.into());
        }
        self.sum.take().map_or(Ok(()), Sum::check)
    }
}

#[async_trait]
impl ByteStream for RequestBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let next = self.piece().await.transpose()?;
        Some(next.map_err(|fault| {
            self.done = true;
            self.verdict.keep(fault)
        }))
    }

    fn trailing(&mut self) -> Option<(String, Bytes)> {
        let trailers = self.decoder.as_ref()?.trailers();
        trailers.iter().find(|(name, _)| name.starts_with("x-amz-checksum-")).cloned()
    }
}

#[cfg(test)]
mod tests;
