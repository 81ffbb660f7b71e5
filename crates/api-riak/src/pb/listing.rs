//! Listings of keys and buckets: frames of names, one page after the other, and a last frame that says so.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_kv::Gateway;
use larder_rows::address::BucketAddress;
use prost::Message as _;

use super::fault::PbFault;
use super::fields::{timeout, type_name};
use super::frame::{put_head, put_message};
use super::messages::{RpbListBucketsReq, RpbListKeysReq, RpbListResp};
use crate::listing::{Lister, ListingTarget};

const BUCKETS_RESP: u8 = 16;
const KEYS_RESP: u8 = 18;
/// Longest message that lists all buckets in one frame.
const WHOLE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A listing under way.
pub(super) struct PbListing {
    lister: Lister,
    code: u8,
    /// The message so far, of a listing that goes out in one frame.
    whole: Option<BytesMut>,
    after: Option<Bytes>,
    ended: bool,
}

impl PbListing {
    /// Code 15: in one frame, or streamed.
    ///
    /// # Errors
    /// The timeout has passed already.
    pub(super) fn from_buckets(gateway: &Arc<Gateway>, request: RpbListBucketsReq) -> Result<Self, PbFault> {
        let target = ListingTarget::Buckets(type_name(request.r#type));
        let lister = Lister::new(gateway, target, timeout(request.timeout)?);
        let whole = (request.stream != Some(true)).then(BytesMut::new);
        Ok(Self { lister, code: BUCKETS_RESP, whole, after: None, ended: false })
    }

    /// Code 17: always streamed.
    ///
    /// # Errors
    /// The bucket has no name, or the timeout has passed already.
    pub(super) fn from_keys(gateway: &Arc<Gateway>, request: RpbListKeysReq) -> Result<Self, PbFault> {
        let bucket = BucketAddress::new(type_name(request.r#type), request.bucket.unwrap_or_default())?;
        let lister = Lister::new(gateway, ListingTarget::Keys(bucket), timeout(request.timeout)?);
        Ok(Self { lister, code: KEYS_RESP, whole: None, after: None, ended: false })
    }

    /// Bytes of memory that the listing holds, besides a page.
    pub(super) fn memory(&self) -> u64 {
        self.whole.as_ref().map_or(0, |whole| 2 * whole.len() as u64)
    }

    /// Appends the next page; `false` after the last frame.
    ///
    /// # Errors
    /// The gateway's; the error ends the listing.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        if self.ended {
            return Ok(false);
        }
        let page = self.lister.page(self.after.take()).await.map_err(PbFault::from_bucket)?;
        self.ended = page.next.is_none();
        self.after = page.next;
        match &mut self.whole {
            Some(whole) => {
                // Encoded at once: a list of short names takes many times the memory of its message.
                let page = RpbListResp { names: page.names, done: None };
                if whole.len() + page.encoded_len() > WHOLE_BYTES_MAX {
                    return Err(PbFault::Text("Too many buckets for one answer: stream them".into()));
                }
                whole.extend_from_slice(&page.encode_to_vec());
                if self.ended {
                    put_head(output, self.code, whole.len());
                    output.unsplit(std::mem::take(whole));
                }
            }
            None => {
                if !page.names.is_empty() {
                    put_message(output, self.code, &RpbListResp { names: page.names, done: None });
                }
                if self.ended {
                    put_message(output, self.code, &RpbListResp { names: Vec::new(), done: Some(true) });
                }
            }
        }
        Ok(true)
    }
}
