//! The `$key` view: one entry per key and slot, written and removed with the object's rows. A listing merges its shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::metrics::KvOp;
use larder_core::node_context::internal_options;
use larder_core::rules::props::EffectiveProps;
use larder_core::{Error, Result};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::limits::{LISTING_PAGE_ROWS, shard_page_rows};
use larder_rows::{Change, Row, Timestamp};
use larder_store::{CallOptions, ConsistencyLevel, Partition, ReadQuery};
use tokio::time::Instant;

use super::Listing;
use super::shard_merge::ShardMerge;
use crate::Kv;
use crate::rules::causality::{ConflictPolicy, KeyVersions, KeyWrite, SHARED_SLOT};
use crate::rules::index::{IndexPosition, IndexQuery, IndexScope};
use crate::rules::object_row::{view_row_name, view_row_prefix};

/// Most entries of one key that a delete removes: one per slot, and siblings bound the slots.
const ROWS_OF_KEY_MAX: usize = 1000;

/// Bytes behind the key in the name of an entry of a data type.
pub(super) const DATATYPE_ENTRY_BYTES: usize = 8;

/// Marks a bucket whose entries may outlive or precede their objects, so that a listing checks each object. Writes there name
/// no slots (`last_write_wins`, `write_once`) or cannot share a batch with their entry (`consistent`).
#[derive(Debug, Clone, Copy)]
pub(super) struct ExistenceCheck {
    consistent: bool,
}

impl ExistenceCheck {
    /// Whether and how listings of a bucket check its objects.
    pub(super) fn for_props(props: &EffectiveProps) -> Option<Self> {
        let checked = props.consistent || props.last_write_wins || props.write_once;
        checked.then_some(Self { consistent: props.consistent })
    }
}

impl Kv {
    /// A page of the keys of a bucket, in order: each key once, deleted keys not at all.
    ///
    /// # Errors
    /// [`Error::UnknownType`], and the store's.
    pub async fn list_keys(
        &self,
        bucket: &BucketAddress,
        after: Option<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<Listing> {
        let work = async {
            let catalogue = self.catalogue.for_type(&bucket.bucket_type).await?;
            let options = self.listing_options(timeout);
            let mut listing = self.merge_shards(bucket, after.clone(), &options).await?;
            // Race: an entry of such a bucket may outlive its object, and would list a deleted key [invariant 30].
            if let Some(checked) = catalogue.effective(bucket).and_then(|props| ExistenceCheck::for_props(&props)) {
                listing.names = self.filter_existing(bucket, listing.names, checked, &options).await?;
            }
            Ok(listing)
        };
        self.context.admit_and_measure(super::listing_op(KvOp::ListKeys, after.as_ref()), work).await
    }

    pub(super) async fn merge_shards(
        &self,
        bucket: &BucketAddress,
        after: Option<Bytes>,
        options: &CallOptions,
    ) -> Result<Listing> {
        // An engine in this process never waits: without this a listing would hold its thread to the end.
        tokio::task::yield_now().await;
        let mut merge = self.merge_keys(bucket, after);
        let mut names: Vec<Bytes> = Vec::with_capacity(LISTING_PAGE_ROWS);
        while names.len() < LISTING_PAGE_ROWS {
            let Some(hit) = merge.next(shard_page_rows(LISTING_PAGE_ROWS), options).await? else {
                return Ok(Listing { names, next: None });
            };
            names.push(hit.key);
        }
        let next = names.last().cloned();
        Ok(Listing { names, next })
    }

    /// The keys of a bucket from the shards of its `$key` view.
    pub(super) fn merge_keys(&self, bucket: &BucketAddress, after: Option<Bytes>) -> ShardMerge {
        let after = after.map(|key| IndexPosition { key, ..IndexPosition::default() });
        let query = IndexQuery::new(bucket.clone(), IndexScope::AllKeys);
        ShardMerge::new(Arc::clone(&self.context), Arc::clone(&self.catalogue), Arc::new(query), after.as_ref())
    }

    /// Filters `names` for keys with a live value.
    pub(super) async fn filter_existing(
        &self,
        bucket: &BucketAddress,
        names: Vec<Bytes>,
        checked: ExistenceCheck,
        options: &CallOptions,
    ) -> Result<Vec<Bytes>> {
        let mut existing = Vec::with_capacity(names.len());
        for key in names {
            let address = Address { bucket: bucket.clone(), key };
            let partition = Partition::object(&address, checked.consistent, self.catalogue.copies(bucket));
            let rows = self.context.read_rows(&partition, options).await?;
            let versions = KeyVersions::from_rows(rows, ConflictPolicy::Newest).map_err(|error| damaged(&error))?;
            if !versions.siblings.is_empty() {
                existing.push(address.key);
            }
        }
        Ok(existing)
    }

    /// Removals of all entries of a key up to `stamp`, for deletes that name no slots.
    pub(crate) async fn removals_of_all_entries(
        &self,
        address: &Address,
        stamp: Timestamp,
        options: &CallOptions,
    ) -> Result<Vec<Change>> {
        let entries = self.entries(address, options).await?;
        Ok(entries.into_iter().map(|row| Change::Remove { name: row.name, stamp }).collect())
    }

    /// Removals of stale entries of a key: their row is gone, and the delete `write` does not name it. A blind
    /// `last_write_wins` put leaves such entries, and so do slots dropped from a full version vector. On a failed read they
    /// stay until the next delete; nothing depends on their removal.
    pub(crate) async fn removals_of_stale_entries(
        &self,
        address: &Address,
        write: &KeyWrite,
        options: &CallOptions,
    ) -> Vec<Change> {
        // Bound: a dead replica must not delay the delete for entries that the next delete can remove.
        let removals = self.find_stale_entries(address, write, &self.context.impatient_options(options)).await;
        removals
            .inspect_err(|error| tracing::debug!(%error, "read of stale listing entries failed: they stay"))
            .unwrap_or_default()
    }

    async fn find_stale_entries(
        &self,
        address: &Address,
        write: &KeyWrite,
        options: &CallOptions,
    ) -> Result<Vec<Change>> {
        let named: Vec<_> = write.key_view_changes(&address.key).into_iter().filter_map(removed_name).collect();
        let cleared =
            write.superseded.iter().filter(|gone| gone.name == SHARED_SLOT.row_name()).map(|gone| gone.clock).max();
        let now = self.context.now();
        // Race: an entry may precede its row, until a write clears all older rows or a day has passed [invariant 87].
        let is_settled = |entry: &Row| {
            let cleared = cleared.is_some_and(|clock| entry.stamp < clock);
            cleared || self.slots.is_orphan(entry.stamp, now)
        };
        // Overwrites leave entries; those that this delete does not name by itself are found here [invariant 28].
        let mut entries = self.entries(address, options).await?;
        entries.retain(|entry| !named.contains(&entry.name) && is_settled(entry));
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        // Race: entries are read before rows, so a row that arrives in between is found and keeps its entry.
        let options = CallOptions { level: options.level.max(ConsistencyLevel::Quorum), ..*options };
        let rows = self
            .context
            .read_rows(&Partition::object(address, false, self.catalogue.copies(&address.bucket)), &options)
            .await?;
        let stands = |entry: &Row| rows.iter().any(|row| view_row_name(&address.key, &row.name) == entry.name);
        let stale = entries.into_iter().filter(|entry| !stands(entry));
        // Race: at its own stamp, so a put that writes the entry anew in this moment keeps it [invariant 29].
        Ok(stale.map(|entry| Change::Remove { name: entry.name, stamp: entry.stamp }).collect())
    }

    async fn entries(&self, address: &Address, options: &CallOptions) -> Result<Vec<Row>> {
        let query = ReadQuery::prefix(view_row_prefix(&address.key), ROWS_OF_KEY_MAX);
        let mut entries = BTreeMap::<Bytes, Row>::new();
        self.catalogue.await_fresh().await?;
        for shard in self.key_view_shards(address) {
            for row in self.context.ports.store.read(&shard, &query, options).await?.rows {
                // An entry that was written again may be in two epochs: a removal at its last stamp takes both.
                let is_newer = entries.get(&row.name).is_none_or(|known| known.stamp < row.stamp);
                // An entry of a legacy counter ends in an actor alone: it goes with the counter.
                if is_newer && row.name.len() != view_row_prefix(&address.key).len() + DATATYPE_ENTRY_BYTES {
                    entries.insert(row.name.clone(), row);
                }
            }
        }
        Ok(entries.into_values().collect())
    }

    /// Options of a listing's reads.
    pub(crate) fn listing_options(&self, timeout: Option<Duration>) -> CallOptions {
        let deadline = Instant::now() + timeout.unwrap_or(self.context.config.timeout);
        CallOptions { deadline, ..internal_options(ConsistencyLevel::Quorum) }
    }
}

fn removed_name(change: Change) -> Option<Bytes> {
    match change {
        Change::Remove { name, .. } => Some(name),
        _ => None,
    }
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(error.to_string())
}
