//! A replica of one key: rows with the rules of the engines, and beside them a model that knows every update by a tag.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeContext, DatatypeEditor, DatatypeHead, DatatypePath, DatatypeRowName, DatatypeUpdate,
    DatatypeValue, EditorTerms, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldName, FieldValue, MapEdits, SetEdit,
    ValueBuilder, ValueDecoder,
};
use larder_rows::{ActorId, Change, Row, Timestamp};

/// One effect of an update, with its own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EffectTag {
    path: Vec<(Bytes, EmbeddedType)>,
    effect: Effect,
    clock: u64,
    actor: u64,
    number: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Present,
    Element(Bytes),
    Increment(i64),
    Assigned(Bytes),
    Enabled,
}

/// The knowledge of a model: every tag, and those that a client that saw them removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct TagModel {
    added: BTreeSet<EffectTag>,
    removed: BTreeSet<EffectTag>,
}

impl TagModel {
    fn has_all_of(&self, other: &Self) -> bool {
        other.added.is_subset(&self.added) && other.removed.is_subset(&self.removed)
    }
}

/// The changes of one update, for rows and model.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaMessage {
    changes: Vec<Change>,
    model: TagModel,
}

/// The state that a client saw.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    context: DatatypeContext,
    model: TagModel,
}

#[derive(Debug, Clone)]
pub(crate) struct Replica {
    actor: u64,
    clock: u64,
    rows: BTreeMap<Bytes, (Timestamp, Option<Bytes>)>,
    model: TagModel,
}

impl Replica {
    pub(crate) fn new(actor: u64, clock: u64) -> Self {
        Self { actor, clock, rows: BTreeMap::new(), model: TagModel::default() }
    }

    fn live(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().filter_map(|(name, (stamp, value))| {
            let value = value.clone()?;
            Some(Row { name: name.clone(), value, stamp: *stamp, expires: None })
        })
    }

    fn head(&self) -> DatatypeHead {
        let mut head = DatatypeHead::default();
        self.live().filter(|row| row.name < DatatypeRowName::DATA).for_each(|row| head.add(&row).unwrap());
        head
    }

    /// The rows that decide: those of two replicas with the same messages are equal.
    pub(crate) fn rows(&self) -> &BTreeMap<Bytes, (Timestamp, Option<Bytes>)> {
        &self.rows
    }

    pub(crate) fn read(&self, datatype: Datatype) -> (DatatypeValue, Seen) {
        let mut decoder = ValueDecoder::new(datatype, self.head());
        let mut pieces = Vec::new();
        for row in self.live().filter(|row| row.name >= DatatypeRowName::DATA) {
            decoder.add(row, &mut pieces).unwrap();
        }
        decoder.finish(&mut pieces);
        let mut builder = ValueBuilder::new(datatype, usize::MAX);
        pieces.into_iter().for_each(|piece| builder.add(piece).unwrap());
        (builder.finish(), Seen { context: decoder.context().clone(), model: self.model.clone() })
    }

    /// The value as the model has it.
    pub(crate) fn expected(&self, datatype: Datatype) -> DatatypeValue {
        let live: Vec<&EffectTag> = self.model.added.difference(&self.model.removed).collect();
        match (datatype, value_at(&live, &[], EmbeddedType::Map)) {
            (Datatype::Set, _) => match value_at(&live, &[], EmbeddedType::Set) {
                EmbeddedValue::Set(elements) => DatatypeValue::Set(elements),
                _ => unreachable!(),
            },
            (Datatype::Counter, _) => match value_at(&live, &[], EmbeddedType::Counter) {
                EmbeddedValue::Counter(total) => DatatypeValue::Counter(total),
                _ => unreachable!(),
            },
            (_, EmbeddedValue::Map(fields)) => DatatypeValue::Map(fields),
            _ => unreachable!(),
        }
    }

    /// Updates through this replica; `large` treats every removed part as too large for single removals.
    pub(crate) fn update(
        &mut self,
        update: Option<&DatatypeUpdate>,
        seen: Option<&Seen>,
        large: bool,
    ) -> Option<ReplicaMessage> {
        // A gateway reads at a quorum, so it finds whatever the client saw.
        if seen.is_some_and(|seen| !self.model.has_all_of(&seen.model)) {
            return None;
        }
        let newest = self.rows.values().map(|(stamp, _)| stamp.0).max().unwrap_or(0);
        self.clock = self.clock.max(newest) + 1;
        let terms = EditorTerms {
            actor: ActorId(self.actor),
            clock: Timestamp(self.clock),
            confirmed: None,
            precision: 14,
            forget: Timestamp::MAX,
        };
        let data = self.live().filter(|row| row.name >= DatatypeRowName::DATA);
        let mut oversized = Vec::new();
        if large {
            let root = DatatypePath::root();
            oversized.push(root.clone());
            for name in super::NAMES {
                let fields = EmbeddedType::ALL.map(|embedded| FieldName::new(name, embedded));
                oversized.extend(fields.iter().map(|field| root.child(field)));
            }
        }
        let mut editor = DatatypeEditor::new(terms, self.head(), data, oversized);
        let mut model = TagModel::default();
        let shown = self.model.added.difference(&self.model.removed);
        let removable: BTreeSet<EffectTag> =
            shown.filter(|tag| seen.is_none_or(|seen| seen.model.added.contains(tag))).cloned().collect();
        match update {
            Some(update) => {
                let mut tags = Tagger {
                    model: &mut model,
                    known: &self.model,
                    removable,
                    sees_itself: seen.is_none(),
                    clock: self.clock,
                    actor: self.actor,
                };
                tags.update(update);
                editor.update(update, seen.map(|seen| &seen.context), None).ok()?;
            }
            None => {
                model.removed = removable;
                editor.delete(seen.map(|seen| &seen.context)).unwrap();
            }
        }
        let message = ReplicaMessage { changes: editor.finish(), model };
        self.receive(&message);
        Some(message)
    }

    pub(crate) fn receive(&mut self, message: &ReplicaMessage) {
        for change in &message.changes {
            let (name, stamp, value) = match change {
                Change::Put(row) => (&row.name, row.stamp, Some(row.value.clone())),
                Change::Remove { name, stamp } => (name, *stamp, None),
                Change::Clear { .. } => panic!("no data type clears its partition"),
            };
            // The newer stamp wins, and a removal wins a tie.
            let rank = |stamp, value: &Option<Bytes>| (stamp, value.is_none(), value.clone());
            let entry = self.rows.entry(name.clone()).or_insert((stamp, value.clone()));
            if rank(stamp, &value) > rank(entry.0, &entry.1) {
                *entry = (stamp, value);
            }
        }
        self.model.added.extend(message.model.added.iter().cloned());
        self.model.removed.extend(message.model.removed.iter().cloned());
    }
}

/// Applies an update to a model.
struct Tagger<'a> {
    model: &'a mut TagModel,
    known: &'a TagModel,
    removable: BTreeSet<EffectTag>,
    /// Whether the update has no context, and so removes also what it added before.
    sees_itself: bool,
    clock: u64,
    actor: u64,
}

impl Tagger<'_> {
    fn update(&mut self, update: &DatatypeUpdate) {
        match update {
            DatatypeUpdate::Counter(by) => self.add(&[], Effect::Increment(*by)),
            DatatypeUpdate::Set(edits) => self.set(&[], edits),
            DatatypeUpdate::Map(edits) => self.map(&[], edits),
            DatatypeUpdate::Gset(_) | DatatypeUpdate::Hll(_) => panic!("not in these schedules"),
        }
    }

    fn map(&mut self, path: &[(Bytes, EmbeddedType)], edits: &MapEdits) {
        for field in &edits.removes {
            let below = [path, &[(field.name.clone(), field.embedded)]].concat();
            self.remove(|tag| tag.path.starts_with(&below));
        }
        for edit in &edits.updates {
            let below = [path, &[(edit.name.clone(), edit.update.embedded())]].concat();
            self.add(&below, Effect::Present);
            match &edit.update {
                EmbeddedUpdate::Counter(by) => self.add(&below, Effect::Increment(*by)),
                EmbeddedUpdate::Set(edits) => self.set(&below, edits),
                EmbeddedUpdate::Register(value) => {
                    let assigned = |tag: &EffectTag| tag.path == below && matches!(tag.effect, Effect::Assigned(_));
                    // An assignment replaces what its gateway sees, whatever the client saw.
                    let known = self.known.added.difference(&self.known.removed).chain(&self.model.added);
                    let known: Vec<_> = known.filter(|tag| assigned(tag)).cloned().collect();
                    self.model.removed.extend(known);
                    self.add(&below, Effect::Assigned(value.clone()));
                }
                EmbeddedUpdate::Flag(true) => self.add(&below, Effect::Enabled),
                EmbeddedUpdate::Flag(false) => self.remove(|tag| tag.path == below && tag.effect == Effect::Enabled),
                EmbeddedUpdate::Map(edits) => self.map(&below, edits),
            }
        }
    }

    fn set(&mut self, path: &[(Bytes, EmbeddedType)], edits: &[SetEdit]) {
        for edit in edits {
            match edit {
                SetEdit::Add(element) => self.add(path, Effect::Element(element.clone())),
                SetEdit::Remove(element) => {
                    self.remove(|tag| tag.path == path && tag.effect == Effect::Element(element.clone()));
                }
            }
        }
    }

    fn add(&mut self, path: &[(Bytes, EmbeddedType)], effect: Effect) {
        let number = self.model.added.len();
        self.model.added.insert(EffectTag {
            path: path.to_vec(),
            effect,
            clock: self.clock,
            actor: self.actor,
            number,
        });
    }

    fn remove(&mut self, is_removed: impl Fn(&EffectTag) -> bool) {
        let own: Vec<_> = self.model.added.iter().filter(|_| self.sees_itself).cloned().collect();
        self.model.removed.extend(self.removable.iter().cloned().chain(own).filter(is_removed));
    }
}

fn value_at(live: &[&EffectTag], path: &[(Bytes, EmbeddedType)], embedded: EmbeddedType) -> EmbeddedValue {
    let here = || live.iter().filter(|tag| tag.path == path);
    match embedded {
        EmbeddedType::Counter => EmbeddedValue::Counter(
            here().map(|tag| if let Effect::Increment(by) = tag.effect { i128::from(by) } else { 0 }).sum(),
        ),
        EmbeddedType::Set => {
            let elements: BTreeSet<_> = here()
                .filter_map(|tag| if let Effect::Element(element) = &tag.effect { Some(element.clone()) } else { None })
                .collect();
            EmbeddedValue::Set(elements.into_iter().collect())
        }
        EmbeddedType::Register => {
            let assigned = here().filter_map(|tag| match &tag.effect {
                Effect::Assigned(value) => Some((tag.clock, value.clone())),
                _ => None,
            });
            EmbeddedValue::Register(assigned.max().map(|(_, value)| value))
        }
        EmbeddedType::Flag => EmbeddedValue::Flag(here().any(|tag| tag.effect == Effect::Enabled)),
        EmbeddedType::Map => {
            let below = |tag: &&EffectTag| tag.path.starts_with(path) && tag.path.len() > path.len();
            let names: BTreeSet<_> =
                live.iter().copied().filter(below).map(|tag| tag.path[path.len()].clone()).collect();
            let field = |(name, embedded): (Bytes, EmbeddedType)| {
                let child = [path, &[(name.clone(), embedded)]].concat();
                FieldValue { field: FieldName::new(name, embedded), value: value_at(live, &child, embedded) }
            };
            EmbeddedValue::Map(names.into_iter().map(field).collect())
        }
    }
}
