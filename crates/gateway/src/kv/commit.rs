//! The last steps of every write: one batch of the object with its views, within the limit on rows, and what becomes of
//! blobs afterwards.

use larder_model::causality::{Mode, Removed, Write};
use larder_model::content::BlobId;
use larder_model::rows::{Batch, Change, PartitionChanges};
use larder_store::{Level, Partition};

use super::put::{ConditionGuard, RowStamps, Target};
use crate::blobs::lease::NamingLease;
use crate::config::DeleteMode;
use crate::metrics::Event;
use crate::{Error, Gateway, Result, Rule};

/// How often a write with conditions is tried on a key that others change: each time they are held against it again.
const GUARDED_TRIES_MAX: usize = 16;

impl Gateway {
    /// Writes, and answers what was written. A key with too many rows is read once: tombstones that nobody named, and
    /// without `allow_mult` losers that nobody named, are removed with the write; siblings are not.
    ///
    /// # Errors
    /// [`Error::TooManySiblings`], and what the store answers.
    async fn commit(
        &self,
        target: Target<'_>,
        partition: &Partition,
        mut write: Write,
        (forget, seen): (Vec<Change>, Option<&RowStamps>),
    ) -> Result<Write> {
        let full = match self.apply(target, partition, &write, (forget.clone(), seen)).await {
            Err(full @ Error::TooManySiblings { .. }) => full,
            other => return other.map(|()| write),
        };
        let read = self.read_for_write(target.permit, target.asked);
        let shown = self.versions(target.address, target.permit, read).await?;
        // What came after the write was begun is not its to remove.
        let may_go = |gone: &Removed| (gone.flags.tombstone || write.mode == Mode::Newest) && gone.clock < write.clock;
        let is_new = |gone: &Removed| write.removed.iter().all(|known| known.name != gone.name);
        let more: Vec<_> =
            Removed::named_by(&shown.context).into_iter().filter(|gone| may_go(gone) && is_new(gone)).collect();
        if more.is_empty() {
            self.metrics.event(Event::SiblingsRefused);
            return Err(full);
        }
        write.remove_more(more, shown.context.covers);
        self.apply(target, partition, &write, (forget, seen)).await.map(|()| write)
    }

    /// The same for a write with conditions: it happens only while the rows are there that they were held against. Where
    /// the rows were changed, the conditions are held against them again. A replicated engine writes whatever is there.
    ///
    /// # Errors
    /// [`Error::Condition`], [`Error::Overloaded`] when the key never rests, and what [`Self::commit`] answers.
    pub(super) async fn commit_guarded(
        &self,
        target: Target<'_>,
        partition: &Partition,
        write: Write,
        (forget, guard): (Vec<Change>, Option<ConditionGuard>),
    ) -> Result<Write> {
        let Some(mut guard) = guard else { return self.commit(target, partition, write, (forget, None)).await };
        for _ in 0..GUARDED_TRIES_MAX {
            match self.commit(target, partition, write.clone(), (forget.clone(), Some(&guard.seen))).await {
                Err(Error::Changed) => self.check_again(target, &mut guard).await?,
                other => return other,
            }
        }
        Err(Error::Overloaded { retry_after: 1 })
    }

    /// Applies a write with its views, then releases the blobs of the rows it removed.
    async fn apply(
        &self,
        target: Target<'_>,
        partition: &Partition,
        write: &Write,
        (forget, seen): (Vec<Change>, Option<&RowStamps>),
    ) -> Result<()> {
        let address = target.address;
        let counted = self.is_limited(write) && self.slots.wants_count(partition);
        let mut batch = Batch {
            partitions: vec![PartitionChanges {
                partition: partition.clone(),
                changes: write.object_changes(),
                rows_max: counted.then_some(self.config.siblings_max),
                seen: seen.cloned(),
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
        let is_refused = matches!(
            error,
            Error::TooManySiblings { .. }
                | Error::Superseded
                | Error::DiskFull
                | Error::Condition(_)
                | Error::Overloaded { .. }
        );
        if let (true, Some(blob)) = (is_refused, blob) {
            self.releases.discard(blob).await;
        }
        naming.end();
    }
}
