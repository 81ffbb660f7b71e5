//! Writing an object. Read [`Gateway::put`] as the list of its steps.

use bytes::Bytes;
use larder_model::address::Address;
use larder_model::causality::{
    Clock, Conditions, Context, ContextError, Cover, Current, Failed, Known, Mode, Removed, Slot, Versions, Write,
};
use larder_model::content::Content;
use larder_model::limits::{CONTEXT_AHEAD_MICROS_MAX, METADATA_BYTES_MAX};
use larder_model::rows::{ObjectRow, Row, Stamp};
use larder_store::{Level, Partition};

use super::body::{Destination, Received};
use super::permit::{Asked, Permit};
use super::{PutObject, Quorums, Stored};
use crate::blobs::lease::NamingLease;
use crate::body::Upload;
use crate::metrics::{Event, Op};
use crate::{Error, Gateway, Result, Rule};

/// Where a write goes, as its first steps decided.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) address: &'a Address,
    pub(super) permit: &'a Permit,
    pub(super) asked: Asked,
}

/// What a write knows of the key, and replaces.
#[derive(Default)]
pub(super) struct Basis {
    /// The rows it replaces.
    pub(super) removed: Vec<Removed>,
    /// Slots that were dead before.
    pub(super) covers: Vec<Cover>,
    /// Hash of the context it was made with, 0 for none.
    pub(super) replaced: u64,
}

impl Basis {
    /// All that a context names.
    pub(super) fn of(context: Context) -> Self {
        let (removed, replaced) = (Removed::named_by(&context), context.dots_hash());
        Self { removed, covers: context.covers, replaced }
    }
}

impl Gateway {
    /// Writes an object.
    ///
    /// # Errors
    /// [`Error`]; of a refused put nothing remains, a timed-out one may or may not have happened.
    pub async fn put(&self, request: PutObject) -> Result<Stored> {
        self.measured(Op::Put, async {
            let permit = self.permit(&request.address.bucket, request.timeout).await?;
            self.permit_write(&permit)?;
            let asked = self.ask_write(&permit, &request.quorums)?;
            check_metadata(&request.content)?;
            if permit.props.consistent {
                return self.put_consistent(request, permit, asked).await;
            }
            let PutObject { address, context, content, upload, return_body, .. } = request;
            let conditions = self.conditions(request.conditions, request.if_not_modified.as_ref(), &address)?;
            let target = Target { address: &address, permit: &permit, asked };
            let (basis, seen) = self.basis(target, context.as_ref(), &conditions).await?;
            let guard = seen.map(|seen| ConditionGuard { conditions, seen });
            let (written, length) = self.write(target, (basis, guard), content, upload).await?;
            self.metrics.object_written(length, written.removed.len(), self.monotonic());
            let found = match return_body && permit.mode != Mode::WriteOnce {
                true => Some(self.read_back(target, &written).await?),
                false => None,
            };
            Ok(Stored { found })
        })
        .await
    }

    /// Decides what the write replaces: what its context names; without one, nothing, or what a read shows now. Answers also
    /// the rows that its conditions were held against, if it has any.
    async fn basis(
        &self,
        target: Target<'_>,
        context: Option<&Bytes>,
        conditions: &Conditions,
    ) -> Result<(Basis, Option<RowStamps>)> {
        let Target { address, permit, asked } = target;
        let context = context.map(|bytes| self.open_context(bytes, address)).transpose()?;
        let reads = permit.mode == Mode::Newest && context.is_none() && self.rule(Rule::ReadFirst);
        let mut seen = None;
        let versions = match reads || conditions.needs_read() {
            true => {
                let rows = self.rows_of(address, permit, self.read_for_write(permit, asked)).await?.rows;
                seen = conditions.needs_read().then(|| stamps_of(&rows));
                Some(self.shown(permit, rows)?)
            }
            false => None,
        };
        if let Some(versions) = &versions {
            self.check(conditions, versions)?;
        }
        let basis = match (context, versions) {
            (Some(context), _) => Basis::of(context),
            (None, Some(versions)) if reads => Basis::of(versions.context),
            _ => Basis::default(),
        };
        Ok((basis, seen))
    }

    /// Holds the conditions of a write against what is there now: its rows were changed since it was begun.
    ///
    /// # Errors
    /// [`Error::Condition`], and what the store answers.
    pub(super) async fn check_again(&self, target: Target<'_>, guard: &mut ConditionGuard) -> Result<()> {
        let Target { address, permit, asked } = target;
        let rows = self.rows_of(address, permit, self.read_for_write(permit, asked)).await?.rows;
        guard.seen = stamps_of(&rows);
        self.check(&guard.conditions, &self.shown(permit, rows)?)
    }

    /// Receives the body, then writes the row, what it removes, and the views, in one batch.
    async fn write(
        &self,
        target: Target<'_>,
        (basis, guard): (Basis, Option<ConditionGuard>),
        content: Content,
        upload: Upload,
    ) -> Result<(Write, u64)> {
        let Target { address, permit, asked } = target;
        let partition = Partition::object(address, false, permit.props.copies);
        let named = self.rule(Rule::NameByContent) || permit.mode != Mode::WriteOnce;
        let mode = if named { permit.mode } else { Mode::Siblings };
        let clock = self.issue().await?;
        let slot = self.slot(mode, clock, &partition, &basis);
        let to = Destination { partition: &partition, slot, clock };
        let Received { body, lease } = self.receive(upload, to).await?;
        let (length, blob) = (body.length(), body.blob());
        // Where the greatest clock stays, a body long under way must not lose to what came meanwhile.
        let clock = match mode.names_slots() {
            true => clock,
            false => match self.issue().await {
                Ok(clock) => clock,
                Err(error) => {
                    self.give_up(&error, blob, NamingLease::new(lease)).await;
                    return Err(error);
                }
            },
        };
        let content = Content { body, ..content };
        let mut known = self.known(mode, slot, &basis);
        let covers = std::mem::take(&mut known.carried);
        let row = ObjectRow { tombstone: false, replaced: basis.replaced, covers, content };
        let mut write = Write::put(mode, slot, clock, &row, basis.removed);
        write.unlisted = self.slots.unlisted_by_put(known);
        let asked = if blob.is_some() { asked.never_below(Level::Quorum) } else { asked };
        let target = Target { asked: asked.renewed(permit.timeout), ..target };
        self.refuse_old(blob).await?;
        // From here on the store may carry the write out, whatever becomes of this future.
        let naming = NamingLease::new(lease);
        match self.commit_guarded(target, &partition, write, (Vec::new(), guard)).await {
            Ok(write) => {
                let kept = self.keep_blob(target, &partition, &write, blob).await;
                naming.end();
                kept.map(|()| (write, length))
            }
            Err(error) => {
                self.give_up(&error, blob, naming).await;
                Err(error)
            }
        }
    }

    /// The slot of a write, in use from now on.
    pub(super) fn slot(&self, mode: Mode, clock: Clock, partition: &Partition, basis: &Basis) -> Slot {
        match mode.names_slots() {
            true => self.slots.take(self.actor, clock, partition, basis),
            false => Slot { actor: self.actor, birth: clock },
        }
    }

    /// The dead slots that a write knows of.
    pub(super) fn known(&self, mode: Mode, slot: Slot, basis: &Basis) -> Known {
        if mode.names_slots() { self.slots.known(slot, basis) } else { Known::default() }
    }

    /// What a read shows after the write, at no less than the write's own level.
    async fn read_back(&self, target: Target<'_>, written: &Write) -> Result<super::Found> {
        let Target { address, permit, asked } = target;
        if self.rule(Rule::ReadBack) {
            let read = self.read_for_write(permit, asked);
            return self.find_with(address, permit, read, true, Some(written)).await;
        }
        let rows = written.row.clone().into_iter().collect();
        let reading = larder_model::causality::Reading::of(permit.mode);
        let versions = Versions::of(rows, reading).map_err(|error| Error::Damaged(error.to_string()))?;
        let context = Some(versions.context.encode(address));
        Ok(super::Found { versions, bodies: Vec::new(), context, stepped_down: false })
    }

    /// A read on behalf of a write: at the write's level and the bucket's own r, whichever is more. It steps down as the write
    /// does: a context names only what was seen, and what was not survives.
    pub(super) fn read_for_write(&self, permit: &Permit, asked: Asked) -> Asked {
        let own = self.ask_read(permit, &Quorums::default()).map_or(Level::Quorum, |own| own.options.level);
        asked.at(own.max(asked.options.level))
    }

    /// Reads a client's context and moves the clock past it.
    pub(super) fn open_context(&self, bytes: &Bytes, address: &Address) -> Result<Context> {
        let now = if self.rule(Rule::RefuseAhead) { self.context_clock() } else { u64::MAX };
        let context = Context::decode(bytes, address, now).inspect_err(|_: &ContextError| {
            self.metrics.event(Event::ContextRefused);
        })?;
        if self.rule(Rule::PassWhatIsSeen) {
            self.clock.pass(context.latest());
        }
        Ok(context)
    }

    /// The clock that contexts may not be far ahead of. Contexts move the own clock, so they are not measured by that alone:
    /// a client could push it a second further with every request.
    fn context_clock(&self) -> u64 {
        let now = self.now();
        now.max(self.clock.reading(now).saturating_sub(CONTEXT_AHEAD_MICROS_MAX))
    }

    /// The conditions of a write, with the context of `if_not_modified` read.
    pub(super) fn conditions(
        &self,
        conditions: Conditions,
        if_not_modified: Option<&Bytes>,
        address: &Address,
    ) -> Result<Conditions> {
        let if_not_modified = if_not_modified.map(|bytes| self.open_context(bytes, address)).transpose()?;
        Ok(Conditions { if_not_modified, ..conditions })
    }

    /// Holds the conditions of a write against what a read shows.
    pub(super) fn check(&self, conditions: &Conditions, seen: &Versions) -> Result<()> {
        let etag = seen.etag();
        let modified = seen.modified().unwrap_or(0) / 1_000_000;
        let current = Current { etag: etag.as_deref(), modified, context: &seen.context };
        conditions.check(current, false, self.now() / 1_000_000).map_err(|failed: Failed| Error::Condition(failed))
    }
}

/// Rows by name and stamp.
pub(super) type RowStamps = Vec<(Bytes, Stamp)>;

/// The conditions of a write, and the rows that they were held against.
pub(super) struct ConditionGuard {
    pub(super) conditions: Conditions,
    pub(super) seen: RowStamps,
}

pub(super) fn stamps_of(rows: &[Row]) -> RowStamps {
    rows.iter().map(|row| (row.name.clone(), row.stamp)).collect()
}

fn check_metadata(content: &Content) -> Result<()> {
    let bytes = content.metadata_bytes();
    if bytes > METADATA_BYTES_MAX { Err(Error::MetadataTooLarge { bytes, max: METADATA_BYTES_MAX }) } else { Ok(()) }
}
