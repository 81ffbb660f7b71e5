//! Listings of keys and buckets: frames of names, one page after the other, and a last frame that says so.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_gateway::Gateway;
use larder_model::address::BucketAddress;

use super::fault::PbFault;
use super::fields::{timeout, type_of};
use super::frame::put_message;
use super::messages::{RpbListBucketsReq, RpbListKeysReq, RpbListResp};
use crate::listing::{Lister, ListingTarget};

const BUCKETS_RESP: u8 = 16;
const KEYS_RESP: u8 = 18;
/// Most bytes of names in the answer that lists all buckets in one frame.
const WHOLE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A listing under way.
pub(super) struct PbListing {
    lister: Lister,
    code: u8,
    /// The names so far, of a listing that goes out in one frame.
    whole: Option<RpbListResp>,
    after: Option<Bytes>,
    ended: bool,
}

impl PbListing {
    /// Code 15: in one frame, or streamed.
    ///
    /// # Errors
    /// The timeout has passed already.
    pub(super) fn of_buckets(gateway: &Arc<Gateway>, request: RpbListBucketsReq) -> Result<Self, PbFault> {
        let target = ListingTarget::Buckets(type_of(request.r#type));
        let lister = Lister::new(gateway, target, timeout(request.timeout)?);
        let whole = (request.stream != Some(true)).then(RpbListResp::default);
        Ok(Self { lister, code: BUCKETS_RESP, whole, after: None, ended: false })
    }

    /// Code 17: always streamed.
    ///
    /// # Errors
    /// The bucket has no name, or the timeout has passed already.
    pub(super) fn of_keys(gateway: &Arc<Gateway>, request: RpbListKeysReq) -> Result<Self, PbFault> {
        let bucket = BucketAddress::new(type_of(request.r#type), request.bucket.unwrap_or_default())?;
        let lister = Lister::new(gateway, ListingTarget::Keys(bucket), timeout(request.timeout)?);
        Ok(Self { lister, code: KEYS_RESP, whole: None, after: None, ended: false })
    }

    /// Appends the next page; `false` after the last frame.
    ///
    /// # Errors
    /// The gateway's; the error ends the listing.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        if self.ended {
            return Ok(false);
        }
        let page = self.lister.page(self.after.take()).await.map_err(PbFault::of_bucket)?;
        self.ended = page.next.is_none();
        self.after = page.next;
        match &mut self.whole {
            Some(whole) => {
                whole.names.extend(page.names);
                if whole.names.iter().map(Bytes::len).sum::<usize>() > WHOLE_BYTES_MAX {
                    return Err(PbFault::Text("Too many buckets for one answer: stream them".into()));
                }
                if self.ended {
                    put_message(output, self.code, whole);
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
