//! What a key holds here, for a move that hands it back to its source: whether clients changed it, and its values.

use larder_core::body::GetBody;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::{KvBody, KvContent};
use larder_rows::{ActorId, MovedRow, Timestamp};
use larder_store::ConsistencyLevel;

use super::request_plan::{ReplicaPlan, RequestPlan};
use crate::import::{ImportedRows, ImportedValue, read_whole};
use crate::{Kv, Quorums};

/// A key of a move.
#[derive(Debug, Clone, Copy)]
pub struct HeldKey<'a> {
    /// The address.
    pub address: &'a Address,
    /// The actor of the move.
    pub actor: ActorId,
    /// The row of the moved key; `None`: no move brought it.
    pub before: Option<&'a MovedRow>,
}

/// What a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldState {
    /// Its newest write; zero for a key without rows. It grows with each change, until its last row is gone.
    pub latest: Timestamp,
    /// Whether it has a value.
    pub is_live: bool,
    /// Whether that is a data type.
    pub is_datatype: bool,
    /// Whether clients changed it since the last import.
    pub is_changed: bool,
}

impl Kv {
    /// Looks at what a key holds.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub async fn held_state(&self, key: HeldKey<'_>) -> Result<HeldState> {
        let (plan, replicas) = self.plan_held(key.address).await?;
        let seen = self.read_versions(key.address, &plan, replicas).await?;
        if seen.siblings.is_empty()
            && let Some(head) = Box::pin(self.datatype_head(key.address, &plan, replicas)).await?
        {
            let mut writers = head.clocks.keys();
            let is_changed = key.before.is_none() || writers.any(|actor| !actor.is_of_source());
            return Ok(HeldState { latest: head.latest(), is_live: true, is_datatype: true, is_changed });
        }
        let rows = ImportedRows::new(&seen, &plan, key);
        // A context carries no rows of `write_once`.
        let shown = seen.siblings.iter().map(|sibling| sibling.dot.clock).max().unwrap_or_default();
        Ok(HeldState {
            latest: seen.latest().max(shown),
            is_live: !seen.siblings.is_empty(),
            is_datatype: false,
            is_changed: rows.is_changed_here(key.before),
        })
    }

    /// Reads the values of a key whole, newest first, each with its bytes inline. The writers that a data type has from the source
    /// of its move have their names there.
    ///
    /// # Errors
    /// As [`Kv::get`]; [`Error::TooLarge`] for more than `bytes_max` bytes, and for a data type that is too large for Riak's form.
    pub async fn held_values(&self, address: &Address, bytes_max: u64) -> Result<Vec<ImportedValue>> {
        let (plan, replicas) = self.plan_held(address).await?;
        let object = self.fetch(address, &plan, replicas, true, None).await?;
        let (siblings, bodies) = match object.versions.siblings.is_empty() {
            false => (object.versions.siblings, object.bodies),
            true => match Box::pin(self.datatype_in_riaks_form(address, &plan, replicas)).await? {
                Some((sibling, body)) => (vec![sibling], vec![GetBody::Bytes(body)]),
                None => return Ok(Vec::new()),
            },
        };
        let bytes: u64 = bodies.iter().map(GetBody::length).sum();
        if bytes > bytes_max {
            return Err(Error::TooLarge { bytes, max: bytes_max });
        }
        let mut values = Vec::with_capacity(siblings.len());
        for (sibling, mut body) in siblings.into_iter().zip(bodies) {
            let (modified, vtag) = (sibling.modified(), sibling.vtag().to_string().into());
            let content = KvContent { body: KvBody::Inline(read_whole(&mut body).await?), ..sibling.content };
            values.push(ImportedValue { content, modified, vtag });
        }
        Ok(values)
    }

    async fn plan_held(&self, address: &Address) -> Result<(RequestPlan, ReplicaPlan)> {
        let plan = self.plan_request(&address.bucket, None).await?;
        let replicas = self.plan_read(&plan, &Quorums::default())?.never_below(ConsistencyLevel::Quorum);
        Ok((plan, replicas))
    }
}
