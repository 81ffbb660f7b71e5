//! Where the links of an object lead.

use bytes::Bytes;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_rows::content::Link;

use crate::Kv;

/// A bucket whose `linkfun` is not the standard one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the linkfun of bucket {} is not available: there is only riak_kv_wm_link_walker:mapreduce_linkfun",
    String::from_utf8_lossy(&.0)
)]
pub struct UnknownLinkFunction(pub Bytes);

impl Kv {
    /// Checks that the bucket's links are found by the standard function.
    ///
    /// # Errors
    /// [`UnknownLinkFunction`].
    pub fn check_link_function(&self, bucket: &BucketAddress) -> Result<(), UnknownLinkFunction> {
        let props = self.catalogue.current().effective(bucket);
        match props.is_none_or(|props| props.has_standard_linkfun) {
            true => Ok(()),
            false => Err(UnknownLinkFunction(bucket.bucket.clone())),
        }
    }
}

/// The address of a link's target; `None`: no object can have it.
pub fn link_target(link: &Link) -> Option<Address> {
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), link.bucket.clone()).ok()?;
    Address::new(bucket, link.key.clone()).ok()
}
