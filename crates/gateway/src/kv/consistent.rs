//! Objects of `consistent` types: one row, the head of a guarded partition. Its stamp is the context, and only a writer
//! that has the current one replaces it.

use bytes::Bytes;
use larder_model::address::Address;
use larder_model::causality::{ANY_SLOT, Clock, Mode, Slot, Versions, Write};
use larder_model::content::{BlobId, Content};
use larder_model::rows::{Batch, Change, ObjectRow, Row, view_row_name};
use larder_store::{Kind, Level, Partition, ReadQuery, Swap};

use super::body::{Destination, Received};
use super::delete::nothing_to_delete;
use super::permit::{Asked, Permit};
use super::{DeleteObject, Deleted, PutObject, Stored};
use crate::blobs::lease::NamingLease;
use crate::{Error, Gateway, Result, Rule};

/// How long a deleted head stays, in microseconds: its stamp orders the writes that follow.
pub(super) const DELETED_HEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

impl Gateway {
    pub(super) async fn put_consistent(&self, request: PutObject, permit: Permit, asked: Asked) -> Result<Stored> {
        let PutObject { address, context, content, upload, return_body, .. } = request;
        let address = &address;
        let asked = strict(asked).on_disk(self.config.durable);
        let seen = self.versions(address, &permit, asked).await?;
        let conditions = self.conditions(request.conditions, request.if_not_modified.as_ref(), address)?;
        self.check(&conditions, &seen)?;
        let expected = self.expected(address, context.as_ref(), &seen)?;
        let partition = Partition::object(address, true, permit.props.copies);
        let slot = Slot { actor: self.actor, birth: self.issue().await? };
        let to = Destination { partition: &partition, slot, clock: slot.birth };
        let Received { body, lease } = self.receive(upload, to).await?;
        let (blob, asked) = (body.blob(), asked.renewed(permit.timeout));
        let content = Content { body, ..content };
        let naming = NamingLease::new(lease);
        if let Err(error) = self.replace(address, &partition, expected, content, asked).await {
            self.give_up(&error, blob, naming).await;
            return Err(error);
        }
        naming.end();
        self.releases.replaced(blobs_of(&seen)).await;
        let found = match return_body {
            true => Some(self.find(address, &permit, asked, true).await?),
            false => None,
        };
        Ok(Stored { found })
    }

    /// Makes `content` the value, if the head still has the stamp `expected`.
    async fn replace(
        &self,
        address: &Address,
        partition: &Partition,
        expected: Option<Clock>,
        content: Content,
        asked: Asked,
    ) -> Result<()> {
        self.refuse_marked(content.body.blob(), &asked.options).await?;
        let clock = self.next_stamp(expected).await?;
        let row = ObjectRow { tombstone: false, replaced: 0, covers: Vec::new(), content };
        let write = Write::put(Mode::LastWriteWins, ANY_SLOT, clock, &row, Vec::new());
        // The listing entry goes first: listings of consistent types look at the head, so one too many is never shown.
        self.list(address, &write, asked).await?;
        self.swap(partition, expected, &write, asked).await
    }

    pub(super) async fn delete_consistent(
        &self,
        request: DeleteObject,
        permit: Permit,
        asked: Asked,
    ) -> Result<Deleted> {
        let address = &request.address;
        let asked = strict(asked).on_disk(self.config.durable);
        let seen = self.versions(address, &permit, asked).await?;
        self.check(&request.conditions, &seen)?;
        if let Some(nothing) = nothing_to_delete(&request, &seen) {
            return Ok(nothing);
        }
        let expected = match &request.context {
            Some(_) => self.expected(address, request.context.as_ref(), &seen)?,
            None => head_stamp(&seen),
        };
        let partition = Partition::object(address, true, permit.props.copies);
        let clock = self.next_stamp(expected).await?;
        let expiry = Some(self.now() + DELETED_HEAD_MICROS);
        let write = Write::delete(Mode::LastWriteWins, ANY_SLOT, clock, expiry, Vec::new(), Vec::new());
        self.swap(&partition, expected, &write, asked).await?;
        let gone = Change::Remove { name: view_row_name(&address.key, &ANY_SLOT.row_name()), stamp: clock };
        self.ports.store.apply(Batch::of(self.key_view(address), vec![gone]), &asked.options).await?;
        self.releases.replaced(blobs_of(&seen)).await;
        Ok(Deleted::Done)
    }

    /// The stamp the head must have: the context's; without one the key must not live.
    fn expected(&self, address: &Address, context: Option<&Bytes>, seen: &Versions) -> Result<Option<Clock>> {
        let stamp = match context {
            Some(bytes) => Some(self.open_context(bytes, address)?.latest()).filter(|&stamp| stamp != 0),
            None if seen.siblings.is_empty() => head_stamp(seen),
            None => return Err(Error::Superseded),
        };
        if stamp == head_stamp(seen) { Ok(stamp) } else { Err(Error::Superseded) }
    }

    async fn next_stamp(&self, expected: Option<Clock>) -> Result<Clock> {
        self.clock.pass(expected.map_or(0, |stamp| stamp + 1));
        self.issue().await
    }

    async fn swap(&self, partition: &Partition, expected: Option<Clock>, write: &Write, asked: Asked) -> Result<()> {
        let Some(head) = write.row.clone() else { return Ok(()) };
        let writer = self.line_up(partition, asked.options.deadline).await?;
        let expected = match self.rule(Rule::RefuseConflicts) {
            // A look is cheaper than a compare-and-set that others before this one have made fail.
            true if writer.waited && self.head_of(partition, asked).await? != expected => {
                return Err(Error::Superseded);
            }
            true => expected,
            // Check, then write: whatever came in between is written over.
            false => self.head_of(partition, asked).await?,
        };
        let swap = self.ports.store.apply_if(partition, expected, head.into(), Vec::new(), &asked.options).await;
        match swap {
            Ok(Swap::Applied) => Ok(()),
            Ok(Swap::Conflict(_)) => Err(Error::Superseded),
            Err(error) if error.kind == Kind::TimedOut => self.decide(partition, write, asked).await,
            Err(error) => Err(asked.refuse(error)),
        }
    }

    /// The stamp of the head that is there now.
    async fn head_of(&self, partition: &Partition, asked: Asked) -> Result<Option<Clock>> {
        Ok(self.read_rows(partition, &asked.options).await?.first().map(|row| row.stamp))
    }

    /// After a lost answer the head itself says whether this write is in it. Readers see it before it is on disk, and what it
    /// replaced goes once it is answered.
    async fn decide(&self, partition: &Partition, write: &Write, asked: Asked) -> Result<()> {
        let page = self.ports.store.read(partition, &ReadQuery::all(1), &asked.options).await?;
        let is_ours = |row: &Row| row.stamp == write.clock && Some(row) == write.row.as_ref();
        if !page.rows.first().is_some_and(is_ours) {
            return Err(Error::TimedOut);
        }
        self.on_disk().await.map_err(|_| Error::TimedOut)
    }

    async fn list(&self, address: &Address, write: &Write, asked: Asked) -> Result<()> {
        let mut batch = Batch::of(self.key_view(address), write.key_view_changes(&address.key));
        let listed = self.known_buckets.change(&address.bucket);
        batch.add(
            Partition::buckets(&address.bucket.bucket_type, self.copies(&address.bucket)),
            listed.into_iter().collect(),
        );
        self.ports.store.apply(batch, &asked.options).await.map_err(|error| asked.refuse(error))?;
        self.known_buckets.written(&address.bucket);
        Ok(())
    }
}

/// The blobs of what was seen.
fn blobs_of(seen: &Versions) -> Vec<BlobId> {
    seen.siblings.iter().filter_map(|sibling| sibling.content.body.blob()).collect()
}

/// Guarded tables never go below a quorum.
fn strict(asked: Asked) -> Asked {
    asked.never_below(Level::Quorum).firm()
}

fn head_stamp(seen: &Versions) -> Option<Clock> {
    Some(seen.latest()).filter(|&stamp| stamp != 0)
}
