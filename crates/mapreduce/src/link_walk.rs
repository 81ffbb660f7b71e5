//! Link walking: from an object along its links, one step after the other.
//!
//! ```text
//! start ──links that step 1 takes──▶ objects ──step 2──▶ objects …
//!                                     kept?               kept?
//! ```
//! A step reads the objects without their values. A link to an object that does not exist leads nowhere.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use larder_core::Error;
use larder_kv::links::{UnknownLinkFunction, link_target};
use larder_kv::rules::causality::KeyVersions;
use larder_kv::rules::links::LinkStep;
use larder_kv::{Kv, KvGet, Quorums};
use larder_rows::address::Address;
use larder_rows::limits::LINK_WALK_BYTES_MAX;
use tokio::time::{Instant, timeout_at};

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

/// A walk through the objects of a gateway.
pub struct LinkWalker<'a> {
    /// The objects.
    pub kv: &'a Kv,
    /// The time that the walk may take.
    pub timeout: Duration,
}

impl LinkWalker<'_> {
    /// Walks from `start` along `steps`.
    ///
    /// # Errors
    /// [`LinkWalkError`].
    pub async fn walk(&self, start: &Address, steps: &[LinkStep]) -> Result<LinkWalk, LinkWalkError> {
        let deadline = Instant::now() + self.timeout;
        let walk = timeout_at(deadline, self.walk_within(start, steps, deadline)).await;
        walk.unwrap_or(Err(Error::TimedOut.into()))
    }

    async fn walk_within(
        &self,
        start: &Address,
        steps: &[LinkStep],
        deadline: Instant,
    ) -> Result<LinkWalk, LinkWalkError> {
        let Some((_, start_versions)) = self.read_linked(start.clone(), deadline).await? else {
            return Err(LinkWalkError::NoStart);
        };
        let (mut kept, mut kept_addresses, mut targets) = (Vec::new(), AddressBytes(0), LinkTargets::default());
        if let Some(first) = steps.first() {
            self.add_targets(&mut targets, start, &start_versions, first)?;
        }
        drop(start_versions);
        for (at, step) in steps.iter().enumerate() {
            let (mut level, mut next) = (Vec::new(), LinkTargets::default());
            let reads = targets.addresses.into_iter().map(|target| self.read_linked(target, deadline).boxed());
            let mut objects = stream::iter(reads).buffered(READS_AT_ONCE);
            while let Some(object) = objects.try_next().await? {
                let Some((address, versions)) = object else { continue };
                if step.keep {
                    kept_addresses.add(&address)?;
                    level.push(address.clone());
                }
                // Bound: an object goes as soon as its links are found. A step may reach thousands, each with many links.
                if let Some(step) = steps.get(at + 1) {
                    self.add_targets(&mut next, &address, &versions, step)?;
                }
            }
            if step.keep {
                kept.push(level);
            }
            targets = next;
        }
        Ok(LinkWalk { kept })
    }

    /// Adds the addresses that the links of an object lead to.
    fn add_targets(
        &self,
        targets: &mut LinkTargets,
        address: &Address,
        versions: &KeyVersions,
        step: &LinkStep,
    ) -> Result<(), LinkWalkError> {
        self.kv.check_link_function(&address.bucket)?;
        step.filter
            .matching_links(&versions.siblings)
            .into_iter()
            .filter_map(link_target)
            .try_for_each(|target| targets.add(target))
    }

    /// The object at an address; `None`: it does not exist.
    async fn read_linked(&self, address: Address, deadline: Instant) -> Result<Option<(Address, KeyVersions)>, Error> {
        let timeout = Some(deadline.saturating_duration_since(Instant::now()));
        let quorums = Quorums::default();
        let versions = self.kv.get(KvGet { address: address.clone(), quorums, bodies: false, timeout }).await?.versions;
        Ok((!versions.siblings.is_empty()).then_some((address, versions)))
    }
}

/// The addresses that a step of a walk reaches, each once.
#[derive(Default)]
struct LinkTargets {
    addresses: BTreeSet<Address>,
    bytes: AddressBytes,
}

impl LinkTargets {
    fn add(&mut self, target: Address) -> Result<(), LinkWalkError> {
        if !self.addresses.contains(&target) {
            self.bytes.add(&target)?;
            self.addresses.insert(target);
        }
        Ok(())
    }
}

/// Bytes of addresses, within the bound of a walk.
#[derive(Default)]
struct AddressBytes(usize);

impl AddressBytes {
    fn add(&mut self, address: &Address) -> Result<(), LinkWalkError> {
        self.0 += ADDRESS_BYTES + address.bucket.bucket.len() + address.key.len();
        if self.0 > LINK_WALK_BYTES_MAX { Err(LinkWalkError::TooMany) } else { Ok(()) }
    }
}
