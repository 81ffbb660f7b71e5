//! A Riak cluster, or another Larder, as it is read: with deadlines, a rate, tries at other nodes, and bounds on answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::body::ByteStream;
use larder_rows::address::{Address, BucketAddress};
use parking_lot::Mutex;
use percent_encoding::percent_encode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::rules::{
    ESCAPED, JsonDocuments, ListingError, MovedProps, SourceAddress, SourceHeaders, SourceObject, ValueError,
};
use crate::source_http::{SourceAnswer, SourceHttp, SourceRequest};

/// Time until the head of an answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until the head of a listing: a source folds over all its keys for it.
const LISTING_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest pause within a body.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most bytes of the body of an object, siblings together.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Most bytes of an answer that is no object.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most bytes of bodies in memory at a time, in units.
const MEMORY_UNITS: u32 = (128 << 20) / MEMORY_UNIT as u32;
/// The unit of the memory of bodies.
const MEMORY_UNIT: usize = 16 << 10;
/// Pauses before further tries.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(8)];
/// How far a burst may be ahead of the rate.
const BURST: Duration = Duration::from_millis(50);

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
        /// The first line of the answer.
        text: String,
    },
    /// The answer is no object.
    #[error("{0}")]
    Value(#[from] ValueError),
    /// The answer is no listing.
    #[error("{0}")]
    Listing(#[from] ListingError),
    /// The answer is no properties.
    #[error("{0}")]
    Props(&'static str),
    /// The object is too large.
    #[error("the object has more than 64 MiB")]
    TooLarge,
}

/// A source.
pub(crate) struct Source {
    http: Arc<dyn SourceHttp>,
    address: SourceAddress,
    /// The node of the next request.
    turn: AtomicUsize,
    pace: RequestPace,
    memory: Arc<Semaphore>,
    requests: AtomicU64,
}

/// What a read of a key found, with the memory that it takes.
pub(crate) struct FetchedState {
    pub(crate) state: SourceState,
    /// Reserved until the state is written; a task that holds some asks for no more.
    _memory: Option<OwnedSemaphorePermit>,
}

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceState {
    /// Nothing, and no clock.
    Absent,
    /// An object, or a tombstone, which has no values.
    Found(SourceObject),
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

impl Source {
    pub(crate) fn new(http: Arc<dyn SourceHttp>, address: SourceAddress, rate: u32) -> Self {
        let memory = Arc::new(Semaphore::new(MEMORY_UNITS as usize));
        Self {
            http,
            address,
            turn: AtomicUsize::new(0),
            pace: RequestPace::new(rate),
            memory,
            requests: AtomicU64::new(0),
        }
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Checks that every node answers, or at least one.
    ///
    /// # Errors
    /// The failure of one that does not.
    pub(crate) async fn ping(&self, every: bool) -> Result<(), SourceError> {
        let mut failure = None;
        for host in &self.address.hosts {
            match self.ping_node(host).await {
                Ok(()) if !every => return Ok(()),
                Ok(()) => {}
                Err(error) if every => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn ping_node(&self, host: &str) -> Result<(), SourceError> {
        let mut answer = self.send_to(host, SourceRequest::Get, "/ping", "*/*", HEAD_TIMEOUT).await?;
        if answer.status != 200 {
            return Err(refused(&mut answer).await);
        }
        discard(&mut answer).await;
        Ok(())
    }

    /// The properties of a type; `None`: there is no such type.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn type_props(&self, bucket_type: &[u8]) -> Result<Option<MovedProps>, SourceError> {
        self.props(&format!("/types/{}/props", quoted(bucket_type))).await
    }

    /// The properties of a bucket.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn bucket_props(&self, bucket: &BucketAddress) -> Result<Option<MovedProps>, SourceError> {
        self.props(&format!("{}/props", bucket_path(bucket))).await
    }

    async fn props(&self, path: &str) -> Result<Option<MovedProps>, SourceError> {
        let mut answer = self.send(SourceRequest::Get, path, "*/*", HEAD_TIMEOUT).await?;
        match answer.status {
            200 => {}
            404 => return Ok(None),
            _ => return Err(refused(&mut answer).await),
        }
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        MovedProps::from_answer(&body).map(Some).map_err(SourceError::Props)
    }

    /// Lists the buckets of a type.
    ///
    /// # Errors
    /// [`SourceError`]: also when the listing breaks off.
    pub(crate) async fn list_buckets(
        &self,
        bucket_type: &[u8],
        each: &mut (dyn FnMut(Bytes) -> bool + Send),
    ) -> Result<bool, SourceError> {
        let path = format!("/types/{}/buckets?buckets=stream", quoted(bucket_type));
        self.list(&path, "buckets", each).await
    }

    /// Lists the keys of a bucket, until `each` answers false; returns whether it came to the end.
    ///
    /// # Errors
    /// [`SourceError`]: also when the listing breaks off.
    pub(crate) async fn list_keys(
        &self,
        bucket: &BucketAddress,
        each: &mut (dyn FnMut(Bytes) -> bool + Send),
    ) -> Result<bool, SourceError> {
        self.list(&format!("{}/keys?keys=stream", bucket_path(bucket)), "keys", each).await
    }

    async fn list(
        &self,
        path: &str,
        member: &str,
        each: &mut (dyn FnMut(Bytes) -> bool + Send),
    ) -> Result<bool, SourceError> {
        let mut answer = self.send(SourceRequest::Get, path, "*/*", LISTING_TIMEOUT).await?;
        if answer.status != 200 {
            return Err(refused(&mut answer).await);
        }
        let mut documents = JsonDocuments::default();
        while let Some(piece) = next_piece(answer.body.as_mut()).await? {
            for document in documents.push(&piece)? {
                for name in JsonDocuments::names(&document, member)? {
                    if !each(name) {
                        return Ok(false);
                    }
                }
            }
        }
        documents.finish()?;
        Ok(true)
    }

    /// The clock of a key without its values; `None`: it has no live value.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn head(&self, address: &Address) -> Result<Option<Bytes>, SourceError> {
        let path = format!("{}?r=quorum", key_path(address));
        let mut answer = self.send(SourceRequest::Head, &path, ACCEPT, HEAD_TIMEOUT).await?;
        match answer.status {
            200 | 300 => Ok(Some(answer.headers.clock()?)),
            404 => Ok(None),
            _ => Err(refused(&mut answer).await),
        }
    }

    /// Reads a key with all its values. With `sure` a node that does not have it counts as none that answers.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn fetch(&self, address: &Address, sure: bool) -> Result<FetchedState, SourceError> {
        let sure = if sure { "&notfound_ok=false&basic_quorum=false" } else { "" };
        let path = format!("{}?r=quorum{sure}", key_path(address));
        let mut failure = None;
        // A body that breaks off is asked for again: the node may have stopped.
        for pause in [None, Some(RETRY_PAUSES[0]), Some(RETRY_PAUSES[1])] {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            match self.fetch_once(address, &path).await {
                Err(error @ (SourceError::Unreachable(_) | SourceError::Value(ValueError::Truncated))) => {
                    failure = Some(error);
                }
                other => return other,
            }
        }
        Err(failure.unwrap_or(SourceError::TooLarge))
    }

    async fn fetch_once(&self, address: &Address, path: &str) -> Result<FetchedState, SourceError> {
        let mut answer = self.send(SourceRequest::Get, path, ACCEPT, HEAD_TIMEOUT).await?;
        match answer.status {
            200 | 300 => {
                let memory = self.reserve(&answer.headers).await?;
                let body = read_body(&mut answer, BODY_BYTES_MAX).await?;
                let state = SourceState::Found(SourceObject::from_answer(&answer.headers, body)?);
                Ok(FetchedState { state, _memory: Some(memory) })
            }
            404 => {
                let clock = answer.headers.clock()?;
                discard(&mut answer).await;
                let state = match clock.is_empty() {
                    true => SourceState::Absent,
                    false => SourceState::Found(SourceObject { clock, values: Vec::new() }),
                };
                Ok(FetchedState { state, _memory: None })
            }
            _ => {
                tracing::debug!(address = %address.bucket, status = answer.status, "source refused a read");
                Err(refused(&mut answer).await)
            }
        }
    }

    /// Reserves memory for a body before it is read. Without a length, that of the largest one.
    async fn reserve(&self, headers: &SourceHeaders) -> Result<OwnedSemaphorePermit, SourceError> {
        let length = headers.get("content-length").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let bytes: usize = length.unwrap_or(BODY_BYTES_MAX);
        if bytes > BODY_BYTES_MAX {
            return Err(SourceError::TooLarge);
        }
        let units = u32::try_from(bytes / MEMORY_UNIT + 1).unwrap_or(MEMORY_UNITS).min(MEMORY_UNITS);
        Arc::clone(&self.memory).acquire_many_owned(units).await.map_err(|_| SourceError::TooLarge)
    }

    /// Sends a request to the next node, and to others when it does not answer or is overloaded.
    async fn send(
        &self,
        method: SourceRequest,
        path: &str,
        accept: &str,
        time: Duration,
    ) -> Result<SourceAnswer, SourceError> {
        let mut failure = SourceError::Unreachable("the source has no host".to_owned());
        for pause in std::iter::once(None).chain(RETRY_PAUSES.map(Some)) {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.address.hosts.len().max(1);
            let Some(host) = self.address.hosts.get(turn) else { break };
            match self.send_to(host, method, path, accept, time).await {
                Ok(mut answer) if answer.status == 429 || answer.status >= 500 => {
                    failure = SourceError::Unreachable(format!("{host}: {}", refused(&mut answer).await));
                }
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn send_to(
        &self,
        host: &str,
        method: SourceRequest,
        path: &str,
        accept: &str,
        time: Duration,
    ) -> Result<SourceAnswer, SourceError> {
        self.pace.wait().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let url = format!("http://{host}{path}");
        match timeout(time, self.http.send(method, &url, accept)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(SourceError::Unreachable(format!("{host}: {error}"))),
            Err(_) => Err(SourceError::Unreachable(format!("{host}: no answer within {} s", time.as_secs()))),
        }
    }
}

/// All siblings at once; one value comes under its own media type.
const ACCEPT: &str = "multipart/mixed, */*;q=0.9";

fn quoted(name: &[u8]) -> String {
    percent_encode(name, ESCAPED).to_string()
}

fn bucket_path(bucket: &BucketAddress) -> String {
    format!("/types/{}/buckets/{}", quoted(&bucket.bucket_type), quoted(&bucket.bucket))
}

fn key_path(address: &Address) -> String {
    format!("{}/keys/{}", bucket_path(&address.bucket), quoted(&address.key))
}

async fn next_piece(body: &mut dyn ByteStream) -> Result<Option<Bytes>, SourceError> {
    match timeout(BODY_PAUSE_MAX, body.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(piece))) => Ok(Some(piece)),
        Ok(Some(Err(error))) => Err(SourceError::Unreachable(format!("the answer broke off: {error}"))),
        Err(_) => Err(SourceError::Unreachable("the answer stopped for a minute".to_owned())),
    }
}

async fn read_body(answer: &mut SourceAnswer, max: usize) -> Result<Bytes, SourceError> {
    let mut body = BytesMut::new();
    while let Some(piece) = next_piece(answer.body.as_mut()).await? {
        if body.len() + piece.len() > max {
            return Err(SourceError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Reads the rest of a short answer, so that its connection can be used again.
async fn discard(answer: &mut SourceAnswer) {
    let _ = read_body(answer, ANSWER_BYTES_MAX).await;
}

async fn refused(answer: &mut SourceAnswer) -> SourceError {
    let body = read_body(answer, ANSWER_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let text = text.lines().next().unwrap_or_default().chars().filter(|char| !char.is_control()).take(200).collect();
    SourceError::Refused { status: answer.status, text }
}
