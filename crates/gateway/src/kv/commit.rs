//! The last steps of every write: one batch of the object with its views, within the limit on rows, and what becomes of
//! blobs afterwards.

use larder_model::causality::{Mode, Removed, Write};
use larder_model::content::BlobId;
use larder_model::rows::{Batch, Change, PartitionChanges};
use larder_store::{Level, Partition};

use super::put::Target;
use crate::blobs::lease::NamingLease;
use crate::config::DeleteMode;
use crate::metrics::Event;
use crate::{Error, Gateway, Result, Rule};

impl Gateway {
    /// Writes, and answers what was written. A key with too many rows is read once: tombstones that nobody named, and
    /// without `allow_mult` losers that nobody named, are removed with the write; siblings are not.
    ///
    /// # Errors
    /// [`Error::TooManySiblings`], and what the store answers.
    pub(super) async fn commit(
        &self,
        target: Target<'_>,
        partition: &Partition,
        mut write: Write,
        forget: Vec<Change>,
    ) -> Result<Write> {
        let full = match self.apply(target, partition, &write, forget.clone()).await {
            Err(full @ Error::TooManySiblings { .. }) => full,
            other => return other.map(|()| write),
        };
        let read = self.read_for_write(target.permit, target.asked);
        let seen = self.versions(target.address, target.permit, read).await?;
        // What came after the write was begun is not its to remove.
        let may_go = |gone: &Removed| (gone.flags.tombstone || write.mode == Mode::Newest) && gone.clock < write.clock;
        let is_new = |gone: &Removed| write.removed.iter().all(|known| known.name != gone.name);
        let more: Vec<_> =
            Removed::named_by(&seen.context).into_iter().filter(|gone| may_go(gone) && is_new(gone)).collect();
        if more.is_empty() {
            self.metrics.event(Event::SiblingsRefused);
            return Err(full);
        }
        write.remove_more(more, seen.context.covers);
        self.apply(target, partition, &write, forget).await.map(|()| write)
    }

    /// Applies a write with its views, then releases the blobs of the rows it removed.
    async fn apply(&self, target: Target<'_>, partition: &Partition, write: &Write, forget: Vec<Change>) -> Result<()> {
        let address = target.address;
        let counted = self.is_limited(write) && self.slots.wants_count(partition);
        let mut batch = Batch {
            partitions: vec![PartitionChanges {
                partition: partition.clone(),
                changes: write.object_changes(),
                rows_max: counted.then_some(self.config.siblings_max),
            }],
        };
        let mut in_view = self.entry_changes(address, write);
        in_view.extend(forget);
        batch.add(self.key_view(address), in_view);
        let listed = (!write.tombstone).then(|| self.known_buckets.change(&address.bucket)).flatten();
        let lists = listed.is_some();
        batch.add(
            Partition::buckets(&address.bucket.bucket_type, target.permit.props.copies),
            listed.into_iter().collect(),
        );
        let blobs: Vec<_> = write.removed.iter().filter_map(|gone| gone.blob(partition)).collect();
        let asked = if blobs.is_empty() { target.asked } else { target.asked.on_disk(self.config.durable) };
        let level = self.write_at(asked, batch).await?;
        self.clock.pass(write.clock);
        self.slots.settled(partition, write, counted);
        if lists {
            self.known_buckets.written(&address.bucket);
        }
        // Below a quorum others still read the rows that are gone: their blobs are left to the sweeper.
        if level >= Level::Quorum || !self.ports.store.limits().replicated {
            self.releases.replaced(blobs).await;
        }
        Ok(())
    }

    /// Whether the write adds a row that stays until somebody removes it.
    fn is_limited(&self, write: &Write) -> bool {
        let stays = !write.tombstone || self.config.delete_mode == DeleteMode::Keep;
        stays && write.mode != Mode::LastWriteWins && self.rule(Rule::LimitSiblings)
    }

    /// After a failed write: a blob that no row can name any more goes at once, so that a full disk has its room back. A row
    /// whose outcome is not known may still be written, so its blob is kept from the sweeper.
    pub(super) async fn give_up(&self, error: &Error, blob: Option<BlobId>, naming: NamingLease) {
        if error.is_outcome_unknown() {
            return drop(naming);
        }
        if let (Error::TooManySiblings { .. } | Error::Superseded | Error::DiskFull, Some(blob)) = (error, blob) {
            self.releases.discard(blob).await;
        }
        naming.end();
    }
}
