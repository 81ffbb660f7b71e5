//! The objects of a bucket in the order of their keys: code 40, a frame for each (Riak KV protocol buffers reference).
//!
//! ```text
//! RpbCSBucketResp   1 object: RpbIndexObject · 2 continuation · 3 done
//! RpbIndexObject    1 key · 2 object, as a get answers it
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_kv::rules::index::{IndexHit, IndexPosition, IndexQuery, IndexScope};
use larder_kv::views::IndexReader;
use larder_kv::{FetchedObject, Gateway, KvGet, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::limits::KEY_BYTES_MAX;
use prost::encoding::encoded_len_varint;

use super::content::{object_len, put_read_object};
use super::fault::PbFault;
use super::fields::type_name;
use super::frame::{put_head, put_message};
use super::messages::{RpbCSBucketEnd, RpbCSBucketReq};
use super::metadata::put_field;

const SCAN_RESP: u8 = 41;
const OBJECTS: u32 = 1;
const KEY: u32 = 1;
const OBJECT: u32 = 2;
/// Keys of a page.
const PAGE_KEYS: usize = 100;
/// Longest object of an answer: each is in memory as a whole.
const OBJECT_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A scan under way.
pub(super) struct PbBucketScan {
    gateway: Arc<Gateway>,
    request: RpbCSBucketReq,
    bucket: BucketAddress,
    reader: IndexReader,
    hits: VecDeque<IndexHit>,
    /// The next object, whose memory its client's share must bear before it is read.
    found: Option<(Bytes, FetchedObject)>,
    /// Objects that the client still wants; `None` is all.
    left: Option<u32>,
    continuation: Option<Bytes>,
    is_last_page: bool,
    ended: bool,
}

impl PbBucketScan {
    /// Code 40.
    ///
    /// # Errors
    /// The bucket or the continuation is invalid.
    pub(super) fn new(gateway: &Arc<Gateway>, request: RpbCSBucketReq) -> Result<Self, PbFault> {
        let bucket = BucketAddress::new(type_name(request.r#type.clone()), request.bucket.clone().unwrap_or_default())?;
        let from = request.start_key.clone().unwrap_or_default();
        // Without an end: no key is longer, and none is greater.
        let to = request.end_key.clone().unwrap_or_else(|| vec![u8::MAX; KEY_BYTES_MAX].into());
        let query = IndexQuery::new(bucket.clone(), IndexScope::Keys { from, to });
        let after = match request.continuation.as_ref().filter(|text| !text.is_empty()) {
            Some(text) => Some(IndexPosition::decode(text, &query).map_err(|error| PbFault::Text(error.to_string()))?),
            None => None,
        };
        let timeout = request.timeout.filter(|millis| *millis > 0).map(|millis| Duration::from_millis(millis.into()));
        let reader = gateway.kv.query_index(query, after, timeout);
        Ok(Self {
            gateway: Arc::clone(gateway),
            bucket,
            reader,
            hits: VecDeque::new(),
            found: None,
            left: request.max_results,
            continuation: None,
            is_last_page: request.max_results == Some(0),
            ended: false,
            request,
        })
    }

    /// Bytes of memory that it holds, besides a page.
    pub(super) fn memory(&self) -> u64 {
        self.reader.memory() + self.found.as_ref().map_or(0, |(_, object)| 2 * object_len(object))
    }

    /// One step: finds the next object, or appends the frame of the one found; `false` after the last frame.
    ///
    /// # Errors
    /// The gateway's; the error ends the answer.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        if self.ended {
            return Ok(false);
        }
        if let Some((key, object)) = self.found.take() {
            put_frame(output, &key, object).await.map_err(PbFault::from_bucket)?;
            return Ok(true);
        }
        match self.next_hit().await.map_err(PbFault::from_bucket)? {
            Some(hit) => self.find(hit).await?,
            None => {
                let end = RpbCSBucketEnd { continuation: self.continuation.take(), done: Some(true) };
                put_message(output, SCAN_RESP, &end);
                self.ended = true;
            }
        }
        Ok(true)
    }

    /// The next key of the range; `None` after the last one that is wanted.
    async fn next_hit(&mut self) -> Result<Option<IndexHit>, Error> {
        while self.left != Some(0) {
            if let Some(hit) = self.hits.pop_front() {
                if self.is_in_range(&hit.key) {
                    return Ok(Some(hit));
                }
            } else if self.is_last_page {
                return Ok(None);
            } else {
                // An engine in this process never waits: without this a scan would hold its thread to the end.
                tokio::task::yield_now().await;
                let page = self.reader.next(PAGE_KEYS).await?;
                self.hits.extend(page.hits);
                self.is_last_page = page.is_last;
            }
        }
        Ok(None)
    }

    fn is_in_range(&self, key: &Bytes) -> bool {
        let is_excluded = |end: &Option<Bytes>, included: bool| !included && end.as_ref() == Some(key);
        let RpbCSBucketReq { start_key, start_incl, end_key, end_incl, .. } = &self.request;
        !is_excluded(start_key, start_incl.unwrap_or(true)) && !is_excluded(end_key, end_incl.unwrap_or(false))
    }

    /// Reads the object of a key; one deleted in the meantime is none.
    async fn find(&mut self, hit: IndexHit) -> Result<(), PbFault> {
        let address = Address::new(self.bucket.clone(), hit.key.clone())?;
        let get = KvGet { address, quorums: Quorums::default(), bodies: true, timeout: None };
        let object = self.gateway.kv.get(get).await?;
        if object.versions.siblings.is_empty() {
            return Ok(());
        }
        let bytes = object_len(&object);
        if bytes > OBJECT_BYTES_MAX {
            return Err(Error::TooLarge { bytes, max: OBJECT_BYTES_MAX }.into());
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
            let last = (*left == 0).then(|| IndexPosition::from_hit(&hit).encode(self.reader.query()));
            self.continuation = last.map(Bytes::from);
        }
        self.found = Some((hit.key, object));
        Ok(())
    }
}

/// Appends the frame of an object; an error takes back what it has appended.
async fn put_frame(output: &mut BytesMut, key: &Bytes, object: FetchedObject) -> Result<(), Error> {
    let begun = output.len();
    let field = |length: u64| 1 + encoded_len_varint(length) as u64 + length;
    let object_bytes = object_len(&object);
    let entry = field(key.len() as u64) + field(object_bytes);
    put_head(output, SCAN_RESP, field(entry) as usize);
    put_field(output, OBJECTS, entry);
    put_field(output, KEY, key.len() as u64);
    output.extend_from_slice(key);
    put_field(output, OBJECT, object_bytes);
    let put = put_read_object(output, object).await;
    if put.is_err() {
        output.truncate(begun);
    }
    put
}
