//! Requests to a source of any kind: with deadlines, a rate, tries at other nodes, and bounds on answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::body::ByteStream;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::rules::{ListingError, ValueError};
use crate::source_http::{CallHeaders, SourceAnswer, SourceCall, SourceHttp, SourceRequest};

/// Time until the head of an answer.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until the head of a listing: a source folds over all its keys for it.
pub(crate) const LISTING_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest pause within a body.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most bytes of an answer that is no object.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Pauses before further tries.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(8)];
/// Pauses before an answer that broke off is asked for again.
const BROKEN_PAUSES: [Duration; 2] = [RETRY_PAUSES[0], RETRY_PAUSES[1]];
/// How far a burst may be ahead of the rate.
const BURST: Duration = Duration::from_millis(50);
/// Most characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 200;
/// The status of what a source never does: another try would not help.
const NOT_IMPLEMENTED: u16 = 501;

/// Why the source was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceError {
    /// It does not answer, at none of its nodes, or not in time. It may later.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses the request.
    #[error("the source answers {status}: {text}")]
    Refused {
        /// The status.
        status: u16,
        /// The first line of the answer, or the code and the message in it.
        text: String,
    },
    /// The answer is no object.
    #[error("{0}")]
    Value(#[from] ValueError),
    /// The answer is no listing.
    #[error("{0}")]
    Listing(#[from] ListingError),
    /// The answer is no properties, or another document that it should be.
    #[error("{0}")]
    Props(&'static str),
    /// The object is too large.
    #[error("the object has more than 64 MiB")]
    TooLarge,
}

impl SourceError {
    /// Whether an S3 store says that there is no such bucket. A proxy in front of one that is away answers 404 without this code.
    pub(crate) fn is_absent_bucket(&self) -> bool {
        matches!(self, Self::Refused { status: 404, text } if text.starts_with("NoSuchBucket"))
    }
}

/// The requests to the nodes of one source.
pub(crate) struct SourceCalls {
    http: Arc<dyn SourceHttp>,
    /// `http` or `https`.
    scheme: &'static str,
    /// Each node as requests name it.
    hosts: Vec<String>,
    /// The node of the next request.
    turn: AtomicUsize,
    pace: RequestPace,
    requests: AtomicU64,
    /// What the body of a refusal says, on one line.
    refusal_text: fn(&[u8]) -> String,
}

/// A request to any node.
#[derive(Clone, Copy)]
pub(crate) struct PlannedCall<'a> {
    pub(crate) method: SourceRequest,
    /// Path and query.
    pub(crate) target: &'a str,
    /// Makes the headers for each try at a host: a signature has the time and the host.
    pub(crate) headers: &'a (dyn Fn(&str) -> CallHeaders + Send + Sync),
    /// Time until the head of the answer.
    pub(crate) time: Duration,
    /// The body of a question; else empty.
    pub(crate) body: &'a str,
}

impl SourceCalls {
    pub(crate) fn new(
        http: Arc<dyn SourceHttp>,
        is_secure: bool,
        hosts: Vec<String>,
        rate: u32,
        refusal_text: fn(&[u8]) -> String,
    ) -> Self {
        Self {
            http,
            scheme: if is_secure { "https" } else { "http" },
            hosts,
            turn: AtomicUsize::new(0),
            pace: RequestPace::new(rate),
            requests: AtomicU64::new(0),
            refusal_text,
        }
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sends a request to the next node, and to others when it does not answer or is overloaded.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`] after the last try.
    pub(crate) async fn send(&self, call: PlannedCall<'_>) -> Result<SourceAnswer, SourceError> {
        let mut failure = SourceError::Unreachable("the source has no host".to_owned());
        for pause in std::iter::once(None).chain(RETRY_PAUSES.map(Some)) {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            let Some(host) = self.next_host() else { break };
            match self.send_to(host, call).await {
                Ok(mut answer) if is_overloaded(answer.status) => {
                    failure = SourceError::Unreachable(format!("{host}: {}", self.refused(&mut answer).await));
                }
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a request to the next node, once.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`].
    pub(crate) async fn send_once(&self, call: PlannedCall<'_>) -> Result<SourceAnswer, SourceError> {
        let Some(host) = self.next_host() else {
            return Err(SourceError::Unreachable("the source has no host".to_owned()));
        };
        self.send_to(host, call).await
    }

    fn next_host(&self) -> Option<&str> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.hosts.len().max(1);
        self.hosts.get(turn).map(String::as_str)
    }

    /// Sends a request to one node, once.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`].
    pub(crate) async fn send_to(&self, host: &str, call: PlannedCall<'_>) -> Result<SourceAnswer, SourceError> {
        let PlannedCall { method, target, headers, time, body } = call;
        self.pace.wait().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (url, headers) = (format!("{}://{host}{target}", self.scheme), headers(host));
        match timeout(time, self.http.send(SourceCall { method, url: &url, headers: &headers, body })).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(SourceError::Unreachable(format!("{host}: {error}"))),
            Err(_) => Err(SourceError::Unreachable(format!("{host}: no answer within {} s", time.as_secs()))),
        }
    }

    /// The refusal that an answer is.
    pub(crate) async fn refused(&self, answer: &mut SourceAnswer) -> SourceError {
        let body = refusal_body(answer).await;
        SourceError::Refused { status: answer.status, text: (self.refusal_text)(&body) }
    }
}

/// Whether another node, or the same one later, may answer.
fn is_overloaded(status: u16) -> bool {
    status == 429 || status >= 500 && status != NOT_IMPLEMENTED
}

/// Asks again for an answer that breaks off: the node may have stopped.
///
/// # Errors
/// That of the last try, or one that another try would not mend.
pub(crate) async fn while_broken<T, F>(once: impl Fn() -> F) -> Result<T, SourceError>
where
    F: Future<Output = Result<T, SourceError>>,
{
    for pause in BROKEN_PAUSES {
        match once().await {
            Err(SourceError::Unreachable(_) | SourceError::Value(ValueError::Truncated)) => sleep(pause).await,
            other => return other,
        }
    }
    once().await
}

/// The next piece of an answer; `None` at its end.
///
/// # Errors
/// [`SourceError::Unreachable`]: it broke off, or paused for too long.
pub(crate) async fn next_piece(body: &mut dyn ByteStream) -> Result<Option<Bytes>, SourceError> {
    match timeout(BODY_PAUSE_MAX, body.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(piece))) => Ok(Some(piece)),
        Ok(Some(Err(error))) => Err(SourceError::Unreachable(format!("the answer broke off: {error}"))),
        Err(_) => Err(SourceError::Unreachable("the answer stopped for a minute".to_owned())),
    }
}

/// The body of an answer.
///
/// # Errors
/// [`SourceError::TooLarge`] for more than `max` bytes, announced or sent; those of [`next_piece`].
pub(crate) async fn read_body(answer: &mut SourceAnswer, max: usize) -> Result<Bytes, SourceError> {
    // Bound: what is refused in the end is not read before.
    if answer.headers.length().is_some_and(|length| length > max as u64) {
        return Err(SourceError::TooLarge);
    }
    let mut body = BytesMut::new();
    while let Some(piece) = next_piece(answer.body.as_mut()).await? {
        if body.len() + piece.len() > max {
            return Err(SourceError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// The body of an answer that refuses, as far as it comes in time.
pub(crate) async fn refusal_body(answer: &mut SourceAnswer) -> Bytes {
    let body = timeout(HEAD_TIMEOUT, read_body(answer, ANSWER_BYTES_MAX)).await;
    body.unwrap_or_else(|_| Ok(Bytes::new())).unwrap_or_default()
}

/// Reads the rest of a short answer, so that its connection can be used again.
pub(crate) async fn discard(answer: &mut SourceAnswer) {
    drop(refusal_body(answer).await);
}

/// The first line of a text, as far as it can be shown.
pub(crate) fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|char| !char.is_control()).take(REFUSAL_CHARS_MAX).collect()
}

/// Spaces requests by a rate.
struct RequestPace {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl RequestPace {
    fn new(rate: u32) -> Self {
        Self { interval: Duration::from_secs(1) / rate.max(1), next: Mutex::new(None) }
    }

    async fn wait(&self) {
        let at = {
            let mut next = self.next.lock();
            let earliest = Instant::now().checked_sub(BURST).unwrap_or_else(Instant::now);
            let at = next.map_or(earliest, |next| next.max(earliest));
            *next = Some(at + self.interval);
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use larder_core::body::BodyError;

    use super::*;
    use crate::rules::SourceHeaders;

    struct EndlessBody(usize);

    #[async_trait::async_trait]
    impl ByteStream for EndlessBody {
        async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
            self.0 += 1;
            assert!(self.0 <= 3, "a refused body is read on");
            Some(Ok(Bytes::from_static(&[0; 8])))
        }
    }

    #[tokio::test]
    async fn an_answer_that_announced_too_much_was_once_read_up_to_the_bound() {
        for (announced, reads) in [(Some("1073741824"), 3), (Some("16"), 0), (None, 0)] {
            let mut headers = SourceHeaders::default();
            if let Some(length) = announced {
                headers.add(b"Content-Length", length.as_bytes());
            }
            let mut answer = SourceAnswer { status: 200, headers, body: Box::new(EndlessBody(reads)) };
            assert!(matches!(read_body(&mut answer, 16).await, Err(SourceError::TooLarge)), "{announced:?}");
        }
    }
}
