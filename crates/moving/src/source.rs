//! A Riak cluster, or another Larder, as it is read.

use std::sync::Arc;

use bytes::Bytes;
use larder_rows::address::{Address, BucketAddress};
use parking_lot::Mutex;
use percent_encoding::percent_encode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::back_queue::BackQueue;
use crate::key_turns::KeyTurns;
use crate::pass_folds::PassFolds;
use crate::queue_source::SourceQueue;
use crate::rules::{ESCAPED, JsonDocuments, MovedProps, RiakAddress, SourceHeaders, SourceObject};
use crate::source_calls::{
    ANSWER_BYTES_MAX, HEAD_TIMEOUT, LISTING_TIMEOUT, PlannedCall, SourceCalls, SourceError, discard, first_line,
    next_piece, read_body, refusal_body, while_broken,
};
use crate::source_http::{SourceHttp, SourceRequest};

/// Most bytes of the body of an object, siblings together.
const BODY_BYTES_MAX: usize = 64 << 20;
/// What a Riak says of a key that it does not have.
const NOT_FOUND: &[u8] = b"not found";
/// Most bytes of bodies in memory at a time, in units.
const MEMORY_UNITS: u32 = (128 << 20) / MEMORY_UNIT as u32;
/// The unit of the memory of bodies.
const MEMORY_UNIT: usize = 16 << 10;

/// Data types that are decoded at a time, and the bytes of a body up to which one is not counted.
const DECODED_AT_ONCE: usize = 2;
const SMALL_DATATYPE_BYTES: u64 = 8 << 10;

/// A source.
pub(crate) struct Source {
    calls: SourceCalls,
    memory: Arc<Semaphore>,
    decoding: Semaphore,
    /// The turns of its keys.
    pub(crate) turns: KeyTurns,
    /// Its replication queue.
    pub(crate) queue: SourceQueue,
    /// The folds over its trees in this pass.
    pub(crate) folds: Mutex<PassFolds>,
    /// The queue of the way back.
    pub(crate) back: Arc<BackQueue>,
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

impl Source {
    pub(crate) fn new(
        http: Arc<dyn SourceHttp>,
        address: RiakAddress,
        queue: String,
        rate: u32,
        back: Arc<BackQueue>,
    ) -> Self {
        let memory = Arc::new(Semaphore::new(MEMORY_UNITS as usize));
        let decoding = Semaphore::new(DECODED_AT_ONCE);
        let queue = SourceQueue::new(queue, address.hosts.len());
        let calls = SourceCalls::new(http, address.is_secure, address.hosts, rate, first_line);
        Self { calls, memory, decoding, turns: KeyTurns::default(), queue, folds: Mutex::default(), back }
    }

    pub(crate) fn calls(&self) -> &SourceCalls {
        &self.calls
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.calls.requests()
    }

    /// Checks that every node answers, or at least one.
    ///
    /// # Errors
    /// The failure of one that does not.
    pub(crate) async fn ping(&self, every: bool) -> Result<(), SourceError> {
        let mut failure = None;
        for host in self.calls.hosts() {
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
        let mut answer = self.calls.send_to(host, PlannedCall { target: "/ping", ..GET }).await?;
        if answer.status != 200 {
            return Err(self.calls.refused(&mut answer).await);
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
        let mut answer = self.calls.send(PlannedCall { target: path, ..GET }).await?;
        match answer.status {
            200 => {}
            404 => return Ok(None),
            _ => return Err(self.calls.refused(&mut answer).await),
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
        let mut answer = self.calls.send(PlannedCall { target: path, time: LISTING_TIMEOUT, ..GET }).await?;
        if answer.status != 200 {
            return Err(self.calls.refused(&mut answer).await);
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
        let mut answer =
            self.calls.send(PlannedCall { method: SourceRequest::Head, target: &path, ..GET_OBJECT }).await?;
        match answer.status {
            200 | 300 => Ok(Some(answer.headers.clock()?)),
            404 => Ok(None),
            _ => Err(self.calls.refused(&mut answer).await),
        }
    }

    /// Reads a key with all its values. With `sure` a node that does not have it counts as none that answers.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn fetch(&self, address: &Address, sure: bool) -> Result<FetchedState, SourceError> {
        let sure = if sure { "&notfound_ok=false&basic_quorum=false" } else { "" };
        let path = format!("{}?r=quorum{sure}", key_path(address));
        while_broken(|| self.fetch_once(address, &path)).await
    }

    async fn fetch_once(&self, address: &Address, path: &str) -> Result<FetchedState, SourceError> {
        let mut answer = self.calls.send(PlannedCall { target: path, ..GET_OBJECT }).await?;
        match answer.status {
            200 | 300 => {
                let memory = self.reserve(&answer.headers).await?;
                let body = read_body(&mut answer, BODY_BYTES_MAX).await?;
                let state = SourceState::Found(SourceObject::from_answer(&answer.headers, body)?);
                Ok(FetchedState { state, _memory: Some(memory) })
            }
            404 => {
                let clock = answer.headers.clock()?;
                let body = refusal_body(&mut answer).await;
                let state = match clock.is_empty() {
                    true if body.trim_ascii() == NOT_FOUND => SourceState::Absent,
                    // A type that the node does not know, or a proxy in front of one that is away: the key may be there.
                    true => return Err(SourceError::Refused { status: answer.status, text: first_line(&body) }),
                    false => SourceState::Found(SourceObject { clock, values: Vec::new() }),
                };
                Ok(FetchedState { state, _memory: None })
            }
            _ => {
                tracing::debug!(address = %address.bucket, status = answer.status, "source refused a read");
                Err(self.calls.refused(&mut answer).await)
            }
        }
    }

    /// Waits until a data type with a body of so many bytes may be decoded: few bytes inflate to many parts. Small ones need not.
    pub(crate) async fn reserve_decoding(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        match bytes > SMALL_DATATYPE_BYTES {
            true => self.decoding.acquire().await.ok(),
            false => None,
        }
    }

    /// Reserves memory for a body before it is read. Without a length, that of the largest one.
    async fn reserve(&self, headers: &SourceHeaders) -> Result<OwnedSemaphorePermit, SourceError> {
        let length = headers.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let bytes = length.unwrap_or(BODY_BYTES_MAX);
        if bytes > BODY_BYTES_MAX {
            return Err(SourceError::TooLarge);
        }
        let units = u32::try_from(bytes / MEMORY_UNIT + 1).unwrap_or(MEMORY_UNITS).min(MEMORY_UNITS);
        Arc::clone(&self.memory).acquire_many_owned(units).await.map_err(|_| SourceError::TooLarge)
    }
}

/// A request for anything but an object.
pub(crate) const GET: PlannedCall<'static> = PlannedCall {
    method: SourceRequest::Get,
    target: "/",
    headers: &|_| vec![("accept", "*/*".to_owned())],
    time: HEAD_TIMEOUT,
    body: "",
};
/// A request for an object: all siblings at once; one value comes under its own media type.
const GET_OBJECT: PlannedCall<'static> =
    PlannedCall { headers: &|_| vec![("accept", "multipart/mixed, */*;q=0.9".to_owned())], ..GET };

fn quoted(name: &[u8]) -> String {
    percent_encode(name, ESCAPED).to_string()
}

fn bucket_path(bucket: &BucketAddress) -> String {
    format!("/types/{}/buckets/{}", quoted(&bucket.bucket_type), quoted(&bucket.bucket))
}

fn key_path(address: &Address) -> String {
    format!("{}/keys/{}", bucket_path(&address.bucket), quoted(&address.key))
}
