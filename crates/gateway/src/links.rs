//! Link walking: from an object along its links, one step after the other.
//!
//! ```text
//! start ──links that step 1 takes──▶ objects ──step 2──▶ objects …
//!                                     kept?               kept?
//! ```
//! A step reads the objects without their values. A link to an object that does not exist leads nowhere.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use larder_model::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_model::causality::KeyVersions;
use larder_model::content::Link;
use larder_model::limits::LINK_WALK_BYTES_MAX;
use larder_model::links::LinkStep;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::kv::{Kv, KvGet, Quorums};

/// Objects that a walk reads at a time.
const READS_AT_ONCE: usize = 16;
/// Bytes that an address takes besides its names.
const ADDRESS_BYTES: usize = 128;

/// The objects that the kept steps of a walk reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWalk {
    /// For each kept step its objects, in the order of bucket and key.
    pub kept: Vec<Vec<Address>>,
}

/// A walk that was not finished.
#[derive(Debug, thiserror::Error)]
pub enum LinkWalkError {
    /// An object could not be read, or the walk took too long.
    #[error("{0}")]
    Gateway(#[from] Error),
    /// The first object does not exist.
    #[error("not found")]
    NoStart,
    /// The bucket names a function for its links that is not the standard one.
    #[error("{0}")]
    Function(#[from] UnknownLinkFunction),
    /// The steps reach too many objects.
    #[error("the link walk reaches more objects than {LINK_WALK_BYTES_MAX} bytes of addresses")]
    TooMany,
}

/// A bucket whose `linkfun` is not the standard one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the linkfun of bucket {} is not available: there is only riak_kv_wm_link_walker:mapreduce_linkfun",
    String::from_utf8_lossy(&.0)
)]
pub struct UnknownLinkFunction(pub Bytes);

impl Kv {
    /// Walks from `start` along `steps`.
    ///
    /// # Errors
    /// [`LinkWalkError`].
    pub async fn walk_links(
        &self,
        start: &Address,
        steps: &[LinkStep],
        timeout: Option<Duration>,
    ) -> Result<LinkWalk, LinkWalkError> {
        let deadline = Instant::now() + timeout.unwrap_or(self.core.config.timeout);
        let walk = timeout_at(deadline, self.walk_within(start, steps, deadline)).await;
        walk.unwrap_or(Err(Error::TimedOut.into()))
    }

    async fn walk_within(
        &self,
        start: &Address,
        steps: &[LinkStep],
        deadline: Instant,
    ) -> Result<LinkWalk, LinkWalkError> {
        let found = self.read_linked(start.clone(), deadline).await?;
        let Some(mut level) = found.map(|found| vec![found]) else { return Err(LinkWalkError::NoStart) };
        let (mut kept, mut bytes) = (Vec::new(), 0);
        for step in steps {
            let targets = self.targets_of(&level, step)?;
            level = self.read_level(targets, deadline).await?;
            if step.keep {
                let addresses: Vec<_> = level.iter().map(|(address, _)| address.clone()).collect();
                bytes += addresses.iter().map(address_bytes).sum::<usize>();
                check_bytes(bytes)?;
                kept.push(addresses);
            }
        }
        Ok(LinkWalk { kept })
    }

    /// The addresses that the links of these objects lead to, each once.
    fn targets_of(
        &self,
        level: &[(Address, KeyVersions)],
        step: &LinkStep,
    ) -> Result<BTreeSet<Address>, LinkWalkError> {
        let (mut targets, mut bytes) = (BTreeSet::new(), 0);
        for (address, versions) in level {
            self.check_link_function(&address.bucket)?;
            for link in step.filter.links_of(&versions.siblings) {
                let Some(target) = target_of(link) else { continue };
                let length = address_bytes(&target);
                if targets.insert(target) {
                    bytes += length;
                    check_bytes(bytes)?;
                }
            }
        }
        Ok(targets)
    }

    /// Checks that the bucket's links are found by the standard function.
    ///
    /// # Errors
    /// [`UnknownLinkFunction`].
    pub(crate) fn check_link_function(&self, bucket: &BucketAddress) -> Result<(), UnknownLinkFunction> {
        let props = self.catalogue.current().effective(bucket);
        match props.is_none_or(|props| props.has_standard_linkfun) {
            true => Ok(()),
            false => Err(UnknownLinkFunction(bucket.bucket.clone())),
        }
    }

    /// The objects at these addresses, without those that do not exist.
    async fn read_level(
        &self,
        targets: BTreeSet<Address>,
        deadline: Instant,
    ) -> Result<Vec<(Address, KeyVersions)>, Error> {
        let reads: Vec<_> = targets.into_iter().map(|target| self.read_linked(target, deadline).boxed()).collect();
        let found = stream::iter(reads).buffered(READS_AT_ONCE);
        found.try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
    }

    async fn read_linked(&self, address: Address, deadline: Instant) -> Result<Option<(Address, KeyVersions)>, Error> {
        let timeout = Some(deadline.saturating_duration_since(Instant::now()));
        let quorums = Quorums::default();
        let mut versions =
            self.get(KvGet { address: address.clone(), quorums, bodies: false, timeout }).await?.versions;
        // The walk needs the links alone, and holds all objects of a step.
        versions.siblings.iter_mut().for_each(|one| one.content = links_alone(std::mem::take(&mut one.content)));
        Ok((!versions.siblings.is_empty()).then_some((address, versions)))
    }
}

fn links_alone(content: larder_model::content::KvContent) -> larder_model::content::KvContent {
    larder_model::content::KvContent { links: content.links, ..Default::default() }
}

/// The address of a link's target; `None`: no object can have it.
pub(crate) fn target_of(link: &Link) -> Option<Address> {
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), link.bucket.clone()).ok()?;
    Address::new(bucket, link.key.clone()).ok()
}

fn address_bytes(address: &Address) -> usize {
    ADDRESS_BYTES + address.bucket.bucket.len() + address.key.len()
}

fn check_bytes(bytes: usize) -> Result<(), LinkWalkError> {
    if bytes > LINK_WALK_BYTES_MAX { Err(LinkWalkError::TooMany) } else { Ok(()) }
}
