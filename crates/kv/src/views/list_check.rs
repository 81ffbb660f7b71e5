//! The entries of lists of keys against the objects, in both directions: a part of the check of all indexes.
//!
//! A node that dies while it writes a batch may leave an object that no list shows: the put has no answer, and nothing finishes the batch.
//! Without a batch log a gateway that dies leaves the entry of an object that is gone.

use bytes::Bytes;
use larder_core::Result;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::codec::take_ordered;
use larder_rows::{Batch, Change, Row};
use larder_store::Partition;

use super::index_check::{CheckRun, damaged, quorum, removal};
use super::keys::DATATYPE_ENTRY_BYTES;
use crate::known_buckets::key_view_changes;
use crate::rules::object_row::{ObjectRow, view_row_name};

impl<P: FnMut(&super::IndexCheck, f64) -> bool + Send> CheckRun<'_, P> {
    /// Looks up the entry of a row of an object; a tombstone has none.
    pub(super) async fn check_entry(&mut self, address: &Address, partition: &Partition, row: &Row) -> Result<()> {
        let name = view_row_name(&address.key, &row.name);
        self.kv.catalogue.await_fresh().await?;
        // The oldest first: an entry that is written again meanwhile is in a newer one.
        for shard in self.kv.key_view_shards(address) {
            if self.kv.row_named(&shard, &name, &quorum()).await?.is_some() {
                return Ok(());
            }
        }
        // Race: a delete in between removed both. One that comes after this look removes an entry that is not yet there; the
        // way back over the lists, which follows, finds it.
        if !self.stands(partition, row).await? {
            return Ok(());
        }
        self.counts.unlisted += 1;
        // Crash: the coordinator of the batch died before it sent the entry [invariant 160].
        // The entry has the stamp of its row: an older delete does not remove it [invariant 29].
        let entry = Row { name, value: Bytes::new(), stamp: row.stamp, expires: row.expires };
        let added = key_view_changes(&self.kv.catalogue, address, vec![Change::Put(entry)], false);
        self.repair(Batch { partitions: added }).await
    }

    /// Looks up the object of an entry.
    pub(super) async fn check_listed(&mut self, shard: &Partition, entry: &Row, bucket: &BucketAddress) -> Result<()> {
        self.counts.entries += 1;
        let (key, object_row) = take_ordered(&entry.name).map_err(damaged)?;
        // Entries of data types end in an actor alone, and are checked against nothing.
        if object_row.len() == DATATYPE_ENTRY_BYTES {
            return Ok(());
        }
        let (address, object_row) =
            (Address { bucket: bucket.clone(), key: key.into() }, Bytes::copy_from_slice(object_row));
        for consistent in [false, true] {
            let object = Partition::object(&address, consistent, shard.copies);
            let Some(row) = self.kv.row_named(&object, &object_row, &quorum()).await? else { continue };
            let is_tombstone = ObjectRow::decode(row.value).map_err(damaged)?.tombstone;
            if !is_tombstone || row.stamp < entry.stamp {
                return Ok(());
            }
        }
        // Race: a put wrote the slot again.
        if !self.may_precede_object(&address, entry) && self.stands(shard, entry).await? {
            self.counts.listed_only += 1;
            // Race: the gateway that removed its object did not know of this epoch [invariant 161].
            // Race: at its own stamp, so a put that writes the entry anew in this moment keeps it [invariant 29].
            self.repair(removal(shard, entry)).await?;
        }
        Ok(())
    }
}
