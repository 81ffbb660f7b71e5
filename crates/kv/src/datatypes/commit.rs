//! Commits one batch of a key: the rows that its changes need, one clock, one `apply`, and an answer for each.

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_rows::codec::prefix_successor;
use larder_rows::limits::REQUEST_ID_MICROS;
use larder_rows::{ActorId, Batch, Change, Row, Timestamp};
use larder_store::{CallOptions, Purpose, Range};

use super::batch_rows::{BatchNeeds, BatchRows};
use super::delete::check_conditions;
use super::progress::{KeyProgress, SentBatch};
use super::writers::{DatatypeKey, DatatypeOutcome, DatatypeWork, DatatypeWriters, JoinedUpdate, WaitingUpdate};
use crate::known_buckets::key_view_changes;
use crate::rules::datatypes::{
    DatatypeEditor, DatatypeError, DatatypeHead, DatatypePath, DatatypeRowName, EditorTerms, FieldName, NeededRows,
};
use crate::rules::object_row::view_row_name;

/// Bytes of a batch that are left for clock, entry and listing.
const REST_BYTES: usize = 64 * 1024;

/// The actors of a key whose head was not read.
const ACTORS_UNREAD: usize = 4;

/// A batch before its edits.
struct BegunBatch {
    rows: BatchRows,
    clock: Timestamp,
    /// On replicas: the last clock of this gateway that a quorum has.
    confirmed: Option<Timestamp>,
    /// The actors that have rows in the key, as far as is known.
    actors: usize,
}

impl DatatypeWriters {
    /// Commits changes that share a batch. Returns those that found no room, and whether the key has markers.
    pub(super) async fn commit_group(
        &self,
        key: &DatatypeKey,
        group: Vec<WaitingUpdate>,
        progress: &mut KeyProgress,
    ) -> (Vec<WaitingUpdate>, bool) {
        let options = joint_options(&group);
        if let [WaitingUpdate { joined: JoinedUpdate { work: DatatypeWork::Import(import), listing, .. }, .. }] =
            &group[..]
        {
            let imported = self.commit_import(key, import, listing.clone(), progress, options).await;
            answer_all(group, &imported);
            return (Vec::new(), false);
        }
        let BegunBatch { rows, clock, confirmed, actors } = match self.begin(key, &group, progress, &options).await {
            Ok(begun) => begun,
            Err(error) => {
                answer_all(group, &Err(error));
                return (Vec::new(), false);
            }
        };
        let head = rows.head.clone();
        let forget = self.context.now().max(clock).saturating_add(REQUEST_ID_MICROS);
        let terms = EditorTerms { actor: self.actor(), clock, confirmed, precision: key.precision, forget };
        let mut editor = DatatypeEditor::new(terms, rows.head, rows.rows, rows.oversized);
        let room = self.context.ports.store.limits().batch_max.saturating_sub(REST_BYTES + progress.unanswered_bytes());
        let (applied, deferred) = edit_all(&mut editor, &head, group, room);
        let has_markers = editor.has_markers();
        let batch = self.key_batch(key, &head, editor, &applied, clock);
        let written = match applied.is_empty() {
            true => Ok(()),
            false => {
                let sent = SentBatch { clock, confirmed: confirmed.unwrap_or_default(), actors };
                self.write(key, batch, sent, progress, options).await
            }
        };
        for (waiting, outcome) in applied {
            waiting.answer(written.clone().map(|()| outcome));
        }
        (deferred, has_markers)
    }

    /// Reads what the changes need, and issues the clock of their batch.
    async fn begin(
        &self,
        key: &DatatypeKey,
        group: &[WaitingUpdate],
        progress: &mut KeyProgress,
        options: &CallOptions,
    ) -> Result<BegunBatch> {
        if progress.unanswered_bytes() > self.context.ports.store.limits().batch_max / 2 {
            // Bound: there must be room for the changes of both.
            self.settle(key, progress).await?;
        }
        let needs = self.batch_needs(key, group);
        let known = self.is_replicated().then(|| self.confirmed.known(&key.partition));
        // Additions are decided on nothing. A removal reads what it takes, and stamps of other gateways are in other rows.
        let (rows, actors) = match known.flatten() {
            Some(_) if needs.rows.is_empty() => (BatchRows::default(), ACTORS_UNREAD),
            _ => {
                let rows = self.read_rows_for_batch(key, needs, progress.unanswered.as_ref(), options).await?;
                let actors = rows.head.clocks.len();
                (rows, actors)
            }
        };
        // Race: an entry that the batch removes may be in an epoch that opened before these reads [invariant 135].
        self.catalogue.await_fresh().await?;
        // Race: after the reads, so that the batch is newer than every row that it was decided on [invariant 5].
        let clock = self.issuer.issue().await?;
        let mut begun = BegunBatch { rows, clock, confirmed: None, actors };
        if let Some(known) = known {
            begun.confirmed = Some(self.last_confirmed(known, progress, &mut begun.rows.head));
        }
        Ok(begun)
    }

    /// The last clock of this gateway that a quorum has. The head says so, too, if no batch is without an answer.
    fn last_confirmed(&self, known: Option<Timestamp>, progress: &KeyProgress, head: &mut DatatypeHead) -> Timestamp {
        if let Some(unanswered) = &progress.unanswered {
            return unanswered.confirmed;
        }
        let own = head.clocks.get(&self.actor()).copied();
        if let Some(clock) = own {
            head.confirmed.insert(self.actor(), clock);
        }
        own.max(known).unwrap_or_default()
    }

    fn batch_needs<'a>(&self, key: &DatatypeKey, group: &'a [WaitingUpdate]) -> BatchNeeds<'a> {
        let of_one = |waiting: &WaitingUpdate| match &waiting.joined.work {
            DatatypeWork::Update { update, request_id, .. } => {
                update.needs(self.actor(), key.precision, request_id.as_ref(), self.is_replicated())
            }
            DatatypeWork::Delete { .. } => vec![NeededRows::to_remove(DatatypePath::root())],
            DatatypeWork::Import(_) => Vec::new(),
        };
        let context = |waiting: &'a WaitingUpdate| match &waiting.joined.work {
            DatatypeWork::Update { context, .. } | DatatypeWork::Delete { context, .. } => context.as_ref(),
            DatatypeWork::Import(_) => None,
        };
        BatchNeeds {
            rows: group.iter().flat_map(of_one).collect(),
            contexts: group.iter().filter_map(context).collect(),
        }
    }

    /// The batch of the edits, with the entries of listings.
    fn key_batch(
        &self,
        key: &DatatypeKey,
        head: &DatatypeHead,
        editor: DatatypeEditor,
        applied: &[(WaitingUpdate, DatatypeOutcome)],
        clock: Timestamp,
    ) -> Batch {
        let changes = editor.finish();
        if changes.is_empty() {
            return Batch::default();
        }
        let entry = |actor: larder_rows::ActorId| view_row_name(&key.address.key, &actor.0.to_be_bytes());
        let is_delete = applied.iter().any(|(waiting, _)| waiting.is_delete());
        let entries: Vec<Change> = if is_delete {
            // Race: at the clocks that were read, so that a concurrent update keeps its entry [invariant 113].
            let gone = changes.iter().filter_map(removed_clock);
            gone.map(|(actor, stamp)| Change::Remove { name: entry(actor), stamp }).collect()
        } else {
            // Race: with every batch, or an update after another gateway's delete would not be listed [invariant 113].
            let value = Bytes::from_static(&[1]);
            vec![Change::Put(Row { name: entry(self.actor()), value, stamp: clock, expires: None })]
        };
        let mut batch = Batch::single(key.partition.clone(), changes);
        if !is_delete && !head.exists() {
            self.index_growth.note_rows(&key.address.bucket, None, 1);
        }
        batch.partitions.extend(key_view_changes(&self.catalogue, &key.address, entries, false));
        let listing = applied.iter().find_map(|(waiting, _)| waiting.joined.listing.clone());
        batch.add(key.bucket_view.clone(), listing.into_iter().collect());
        batch
    }
}

/// The clock row that a change removes.
fn removed_clock(change: &Change) -> Option<(ActorId, Timestamp)> {
    let Change::Remove { name, stamp } = change else { return None };
    match DatatypeRowName::decode(name) {
        Ok(DatatypeRowName::Clock(actor)) => Some((actor, *stamp)),
        _ => None,
    }
}

/// Applies as many changes as have room. Returns those made, and those for the next batch; others are answered.
fn edit_all(
    editor: &mut DatatypeEditor,
    head: &DatatypeHead,
    group: Vec<WaitingUpdate>,
    room: usize,
) -> (Vec<(WaitingUpdate, DatatypeOutcome)>, Vec<WaitingUpdate>) {
    let (mut applied, mut deferred) = (Vec::new(), Vec::new());
    let mut group = group.into_iter();
    for waiting in group.by_ref() {
        let mark = editor.mark();
        let result = edit(editor, head, &waiting).inspect_err(|_| editor.roll_back(mark));
        if result.is_ok() && editor.bytes() > room {
            editor.roll_back(mark);
            if applied.is_empty() {
                waiting.answer(Err(DatatypeError::UpdateTooLarge { part: "the update", max: room }.into()));
                continue;
            }
            // It goes first in the next batch.
            deferred.push(waiting);
            break;
        }
        match result {
            Ok(outcome) => applied.push((waiting, outcome)),
            Err(error) => waiting.answer(Err(error)),
        }
    }
    deferred.extend(group);
    (applied, deferred)
}

/// Applies one change in the editor.
fn edit(editor: &mut DatatypeEditor, head: &DatatypeHead, waiting: &WaitingUpdate) -> Result<DatatypeOutcome> {
    match &waiting.joined.work {
        DatatypeWork::Update { update, context, request_id } => {
            editor.update(update, context.as_ref(), request_id.as_ref())?;
            Ok(DatatypeOutcome::Done)
        }
        DatatypeWork::Delete { context, conditions } => {
            // Race: here, where no other batch of the key comes between the check and the removal [invariant 15].
            check_conditions(conditions, head)?;
            if !head.exists() {
                return Ok(DatatypeOutcome::NotFound);
            }
            editor.delete(context.as_ref())?;
            Ok(DatatypeOutcome::Done)
        }
        // Each has a group of its own.
        DatatypeWork::Import(_) => Err(Error::Internal("an import among updates".into())),
    }
}

/// Options for all: the strictest level and durability, and the last deadline.
fn joint_options(group: &[WaitingUpdate]) -> CallOptions {
    let mut joint = group[0].joined.options;
    for options in group.iter().map(|waiting| waiting.joined.options) {
        joint.level = joint.level.max(options.level);
        joint.durability = joint.durability.max(options.durability);
        joint.deadline = joint.deadline.max(options.deadline);
        // A full disk takes a batch that only frees space.
        if options.purpose == Purpose::Data {
            joint.purpose = Purpose::Data;
        }
    }
    joint
}

fn answer_all(group: Vec<WaitingUpdate>, result: &Result<DatatypeOutcome>) {
    group.into_iter().for_each(|waiting| waiting.answer(result.clone()));
}

/// The begin of a read of a data type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DatatypeBegin {
    /// The first row of the value.
    #[default]
    First,
    /// This element of a set, or the next one.
    AtElement(Bytes),
    /// The element after this one, whether the set has it or not.
    AfterElement(Bytes),
    /// This field of a map, or the next one.
    AtField(FieldName),
    /// The field after this one, whether the map has it or not.
    AfterField(FieldName),
}

impl DatatypeBegin {
    /// The rows from there on. A field's rows lie together, so a read that begins between two fields misses no part of one.
    pub(super) fn range(&self) -> Range {
        let root = DatatypePath::root();
        let (prefix, after) = match self {
            Self::First => (DatatypeRowName::DATA, false),
            Self::AtElement(element) => (root.element_prefix(element), false),
            Self::AfterElement(element) => (root.element_prefix(element), true),
            Self::AtField(field) => (root.child(field).prefix(), false),
            Self::AfterField(field) => (root.child(field).prefix(), true),
        };
        let from = if after { prefix_successor(&prefix) } else { Some(prefix) };
        Range { from: Some(from.unwrap_or(DatatypeRowName::DATA)), to: None }
    }
}
