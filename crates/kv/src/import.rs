//! Imports: the values of a key as another store has them, written beside those of clients.
//!
//! ```text
//! rows of key k       (actor of the move, 100)@100  tea     imported: a newer state of the source replaces it
//!                     (5, 120)@120                  milk    a client wrote it here: no import removes it
//! ```
//! The rows of an import have the actor of the move, so each import names exactly the rows of the ones before it, and what a
//! client wrote stays: as a sibling, or alone where a bucket shows one value. Their clock is the time of the value at its source:
//! a client's write here is newer than any import that it races with, whichever commits first. Rows without slots
//! (`last_write_wins`, `write_once`) are known by their stamp, which the row of the moved key has.
//!
//! The row of the moved key is in the batch of its value: no crash leaves one without the other.

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::{KvBody, KvContent};
use larder_rows::keyspace::moved_shard;
use larder_rows::{ActorId, Batch, Change, MovedRow, MovedState, PartitionChanges, Row, Timestamp, hash};
use larder_store::{ConsistencyLevel, Partition};

use super::request_plan::{ReplicaPlan, RequestPlan};
use crate::commit::WriteTarget;
use crate::held_state::HeldKey;
use crate::put::{ArrivingValue, KvBlobPlacement};
use crate::rules::causality::{ConflictPolicy, KeyVersions, Slot, SupersededRow};
use crate::rules::import_result::{ImportComparison, ImportOutcome};
use crate::slots::CausalBasis;
use crate::{Kv, Quorums};

/// How far the clock of an import may be behind on replicas, in microseconds: the rows of an older one could be taken for
/// leftovers before all of them have arrived.
const REPLICATED_AGE_MAX: u64 = 12 * 3600 * 1_000_000;

/// A value at the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedValue {
    /// The value, with its bytes inline.
    pub content: KvContent,
    /// Its last modification.
    pub modified: Timestamp,
    /// Its entity tag there.
    pub vtag: Bytes,
}

/// The state of a key at the source of a move.
#[derive(Debug, Clone)]
pub struct KvImport {
    /// The address.
    pub address: Address,
    /// Its values, in the order of their tags; none for a deleted key.
    pub values: Vec<ImportedValue>,
    /// Whether values imported before are gone at the source; false: these are beside them.
    pub replaces: bool,
    /// The actor of the move.
    pub actor: ActorId,
    /// The clock of the source.
    pub clock: Bytes,
    /// The row of the moved key, as it is now.
    pub before: Option<MovedRow>,
}

/// The row of a moved key that a write adds to its batch.
#[derive(Clone, Copy)]
pub(super) struct MovedKeyWrite<'a> {
    import: &'a KvImport,
    /// The stamp of the row of the moved key.
    stamp: Timestamp,
    written: usize,
    state: MovedState,
}

/// The rows of a key that imports wrote, and whether there are others.
pub(super) struct ImportedRows {
    /// Those of values and of tombstones.
    all: Vec<SupersededRow>,
    /// Whether clients have rows, tombstones among them.
    has_others: bool,
}

impl Kv {
    /// Writes the state of a key at the source. An import that fails may be given again.
    ///
    /// # Errors
    /// As [`Kv::put`]; [`Error::DatatypePut`] in a bucket of data types, [`Error::Internal`] in a `consistent` one.
    pub async fn import(&self, import: &KvImport) -> Result<ImportOutcome> {
        let _admitted = self.context.admit()?;
        let plan = self.plan_request(&import.address.bucket, None).await?;
        self.check_writable(&plan)?;
        let import = &import.shown_by(plan.policy);
        if plan.props.consistent {
            return Err(Error::Internal("an import writes no consistent types".into()));
        }
        let replicas = self.plan_write(&plan, &Quorums::default())?.never_below(ConsistencyLevel::Quorum);
        // Race: before the read, so that a client's write that the read misses is newer than the import [invariant 170].
        let now = self.issuer.issue().await?;
        let seen = self.imported_versions(&import.address, &plan, replicas).await?;
        let rows = ImportedRows::new(&seen, &plan, import.key());
        if plan.policy != ConflictPolicy::Siblings && rows.is_changed_here(import.before.as_ref()) {
            self.write_moved_row(import, now, MovedState::Kept).await?;
            return Ok(ImportOutcome::Kept);
        }
        match import.values.is_empty() {
            true => self.import_deletion(import, &plan, replicas, rows, now).await,
            false => self.import_values(import, &plan, replicas, rows, now).await,
        }
    }

    /// Compares a key with its state at the source.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub async fn compare_import(&self, import: &KvImport) -> Result<ImportComparison> {
        let plan = self.plan_request(&import.address.bucket, None).await?;
        let replicas = self.plan_read(&plan, &Quorums::default())?.never_below(ConsistencyLevel::Quorum);
        let object = self.fetch(&import.address, &plan, replicas, true, None).await?;
        let rows = ImportedRows::new(&object.versions, &plan, import.key());
        let mut here = Vec::new();
        for (sibling, mut body) in object.versions.siblings.into_iter().zip(object.bodies) {
            here.push(KvContent { body: KvBody::Inline(read_whole(&mut body).await?), ..sibling.content });
        }
        if is_same(here, &import.values, plan.policy) {
            return Ok(ImportComparison::Equal);
        }
        let changed = rows.has_others || rows.is_changed_here(import.before.as_ref());
        Ok(if changed { ImportComparison::ChangedHere } else { ImportComparison::Differs })
    }

    async fn imported_versions(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<KeyVersions> {
        self.read_versions(address, plan, self.plan_read_for_write(plan, replicas)).await
    }

    /// Deletes the imported values of a key. The clock is just above theirs: a client's write that came since stays.
    async fn import_deletion(
        &self,
        import: &KvImport,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        rows: ImportedRows,
        now: Timestamp,
    ) -> Result<ImportOutcome> {
        let values: Vec<_> = rows.all.into_iter().filter(|row| !row.flags.tombstone).collect();
        let Some(latest) = values.iter().map(|row| row.clock).max().filter(|_| import.replaces) else {
            self.write_moved_row(import, now, MovedState::Deleted).await?;
            return Ok(ImportOutcome::Deleted);
        };
        let moved = MovedKeyWrite { import, stamp: now, written: 0, state: MovedState::Deleted };
        let target = import_target(import, plan, replicas, moved);
        let basis = CausalBasis { superseded: values, ..CausalBasis::default() };
        let clock = latest + 1;
        let slot = Slot { actor: import.actor, birth: clock };
        self.commit_tombstone(target, basis, None, slot, clock).await?;
        Ok(ImportOutcome::Deleted)
    }

    /// Writes the values one after the other, the first one in place of those imported before. The row of the moved key counts
    /// them, so an import that broke off goes on behind the last one: its first ones may have been replaced by clients since.
    async fn import_values(
        &self,
        import: &KvImport,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
        rows: ImportedRows,
        now: Timestamp,
    ) -> Result<ImportOutcome> {
        let written = import.written_before();
        let mut replaced = rows.all;
        for (at, value) in import.values.iter().enumerate().skip(written) {
            let is_first = at == 0 && import.replaces;
            let superseded = if is_first { std::mem::take(&mut replaced) } else { Vec::new() };
            let stamp = if at > written { self.issuer.issue().await? } else { now };
            let moved = MovedKeyWrite { import, stamp, written: at + 1, state: MovedState::Here };
            let target = import_target(import, plan, replicas, moved);
            self.import_value(target, import, value, superseded, stamp).await?;
        }
        if written >= import.values.len() {
            self.write_moved_row(import, now, MovedState::Here).await?;
        }
        Ok(ImportOutcome::Imported)
    }

    async fn import_value(
        &self,
        target: WriteTarget<'_>,
        import: &KvImport,
        value: &ImportedValue,
        superseded: Vec<SupersededRow>,
        now: Timestamp,
    ) -> Result<()> {
        let (address, plan) = (target.address, target.plan);
        let partition = Partition::object(address, false, plan.props.copies);
        let KvBody::Inline(body) = value.content.body.clone() else {
            return Err(Error::Internal("an import has its bytes in memory".into()));
        };
        self.check_length(body.len() as u64)?;
        let content = KvContent { body: KvBody::default(), ..value.content.clone() };
        super::put::check_content(&content, &address.key)?;
        if plan.policy == ConflictPolicy::WriteOnce && !superseded.is_empty() {
            return self.replace_write_once(target, import, value, superseded, now).await;
        }
        let limits = self.context.ports.store.limits();
        let basis = CausalBasis { superseded, ..CausalBasis::default() };
        if body.len() > limits.inline_max {
            // A sweeper counts the age of a blob from its clock, so that is the time of its arrival here.
            let slot = Slot { actor: import.actor, birth: now };
            let to = KvBlobPlacement { partition: &partition, slot, clock: now };
            let value = ArrivingValue { content, upload: PutBody::Bytes(body) };
            return Box::pin(self.receive_and_commit(target, to, basis, None, value)).await.map(drop);
        }
        let oldest = if limits.replicated { now.saturating_sub(REPLICATED_AGE_MAX) } else { Timestamp::ZERO };
        let clock = value.clock().min(now).max(oldest);
        let own = Slot { actor: import.actor, birth: clock }.row_name();
        let others = basis.superseded.iter().filter(|row| row.name != own);
        let above = others.map(|row| row.clock + 1).max().unwrap_or_default();
        // A removal of the same name and stamp would hide a value that is back. Siblings that are back have a row each.
        let deleted = import.before.as_ref().filter(|row| row.state == MovedState::Deleted);
        let number = target.moved.map_or(1, |moved| moved.written as u64);
        let clock = clock.max(above).max(deleted.map(|row| row.stamp + number).unwrap_or_default());
        let slot = Slot { actor: import.actor, birth: clock };
        let content = KvContent { body: KvBody::Inline(body), ..content };
        let write = self.build_write(plan.policy, slot, clock, basis, content);
        self.commit_guarded(target, &partition, write, Vec::new(), None).await.map(drop)
    }

    /// Replaces an imported value of a `write_once` key, whose rows no put removes: a tombstone does, and the put follows.
    async fn replace_write_once(
        &self,
        target: WriteTarget<'_>,
        import: &KvImport,
        value: &ImportedValue,
        superseded: Vec<SupersededRow>,
        now: Timestamp,
    ) -> Result<()> {
        let clock = superseded.iter().map(|row| row.clock + 1).max().unwrap_or_default();
        let basis = CausalBasis { superseded, ..CausalBasis::default() };
        let slot = Slot { actor: import.actor, birth: clock };
        self.commit_tombstone(WriteTarget { moved: None, ..target }, basis, None, slot, clock).await?;
        let newer = ImportedValue { modified: value.modified.max(clock + 1), ..value.clone() };
        Box::pin(self.import_value(target, import, &newer, Vec::new(), now)).await
    }

    /// Writes the row of a moved key without a change of the key.
    async fn write_moved_row(&self, import: &KvImport, stamp: Timestamp, state: MovedState) -> Result<()> {
        let written = if state == MovedState::Here { import.values.len() } else { 0 };
        let changes = MovedKeyWrite { import, stamp, written, state }.changes(import.stamp_before());
        self.context.apply_at_quorum(Batch { partitions: vec![changes] }).await
    }
}

impl KvImport {
    /// The same, with the newest value alone where a bucket shows one.
    fn shown_by(&self, policy: ConflictPolicy) -> Self {
        let mut shown = self.clone();
        if policy != ConflictPolicy::Siblings
            && let Some(newest) = self.values.iter().max_by_key(|value| value.clock())
        {
            shown.values = vec![newest.clone()];
        }
        shown
    }

    /// The values of this very state that an earlier import wrote before it broke off.
    fn written_before(&self) -> usize {
        let same = self.before.as_ref().filter(|before| !before.complete && before.clock == self.clock);
        same.map_or(0, |before| before.written as usize)
    }

    fn key(&self) -> HeldKey<'_> {
        HeldKey { address: &self.address, actor: self.actor, before: self.before.as_ref() }
    }

    fn stamp_before(&self) -> Timestamp {
        self.before.as_ref().map(|before| before.stamp).unwrap_or_default()
    }
}

impl ImportedValue {
    /// The clock of its row: the time of its source, which often knows the second alone, with microseconds by its tag, so that
    /// siblings of one second differ, and each has the same clock again when it is imported once more.
    fn clock(&self) -> Timestamp {
        let micros = hash::id64(&[&self.vtag]) % 1_000_000;
        match self.modified.0 % 1_000_000 {
            0 => self.modified.saturating_add(micros),
            _ => self.modified,
        }
    }
}

impl ImportedRows {
    pub(super) fn new(seen: &KeyVersions, plan: &RequestPlan, key: HeldKey<'_>) -> Self {
        let stamp = key.before.map(|before| before.stamp).unwrap_or_default();
        let is_imported = |row: &SupersededRow| match plan.policy.has_slots() {
            true => Slot::from_row_name(&row.name).is_ok_and(|slot| slot.actor == key.actor),
            false => row.clock == stamp,
        };
        let (all, others): (Vec<_>, Vec<_>) = SupersededRow::from_versions(seen).into_iter().partition(is_imported);
        Self { all, has_others: !others.is_empty() }
    }

    /// Whether a client changed the key since the last import: it has rows there, or the imported ones are gone.
    pub(super) fn is_changed_here(&self, before: Option<&MovedRow>) -> bool {
        let was_here = before.is_some_and(|row| row.state == MovedState::Here && row.written > 0);
        let was_kept = before.is_some_and(|row| row.state == MovedState::Kept);
        self.has_others || was_kept || was_here && self.all.iter().all(|row| row.flags.tombstone)
    }
}

impl MovedKeyWrite<'_> {
    /// The change of the row of the moved key, in the batch of a row with this clock.
    pub(super) fn changes(&self, clock: Timestamp) -> PartitionChanges {
        let KvImport { address, values, clock: source, .. } = self.import;
        let row = MovedRow {
            state: self.state,
            concurrent: !self.import.replaces,
            complete: self.state != MovedState::Here || self.written >= values.len(),
            written: u32::try_from(self.written).unwrap_or(u32::MAX),
            stamp: clock,
            clock: source.clone(),
        };
        let row = Row { name: address.key.clone(), value: row.encode(), stamp: self.stamp, expires: None };
        let partition = Partition::moved(&address.bucket, moved_shard(&address.key));
        PartitionChanges::new(partition, vec![Change::Put(row)])
    }
}

fn import_target<'a>(
    import: &'a KvImport,
    plan: &'a RequestPlan,
    replicas: ReplicaPlan,
    moved: MovedKeyWrite<'a>,
) -> WriteTarget<'a> {
    WriteTarget { address: &import.address, plan, replicas, notices: None, moved: Some(moved) }
}

pub(super) async fn read_whole(body: &mut larder_core::body::GetBody) -> Result<Bytes> {
    let mut whole = bytes::BytesMut::new();
    let length = body.length();
    while (whole.len() as u64) < length {
        let piece = body.piece(whole.len() as u64, 1 << 20).await?;
        if piece.is_empty() {
            return Err(Error::Damaged("a value's bytes are missing".into()));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Whether the key shows the values of the source, in any order. A bucket that shows one value shows one of them.
fn is_same(here: Vec<KvContent>, there: &[ImportedValue], policy: ConflictPolicy) -> bool {
    if policy != ConflictPolicy::Siblings {
        return match here.first() {
            Some(here) => there.iter().any(|value| is_same_content(&value.content, here)),
            None => there.is_empty(),
        };
    }
    let mut rest = here;
    let found = there.iter().all(|value| {
        let at = rest.iter().position(|content| is_same_content(content, &value.content));
        at.map(|at| rest.swap_remove(at)).is_some()
    });
    found && rest.is_empty()
}

/// Whether both are equal, whatever the order of their metadata.
fn is_same_content(a: &KvContent, b: &KvContent) -> bool {
    let sorted = |content: &KvContent| {
        let mut content = content.clone();
        content.meta.sort_unstable();
        content.links.sort_unstable();
        content.terms.sort_unstable();
        content
    };
    sorted(a).is_same_as(&sorted(b))
}
