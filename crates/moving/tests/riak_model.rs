//! A model of Riak's data types on several replicas: states with clocks and dots, updated by one replica and merged by others.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_moving::rules::{
    RiakClock, RiakDatatype, RiakField, RiakFieldKind, RiakFlag, RiakMap, RiakMapCounter, RiakPnCounter, RiakRegister,
    RiakSet,
};

pub(crate) type ModelClock = BTreeMap<u64, u64>;
pub(crate) type ModelDot = (u64, u64);
/// A field by its name and kind.
pub(crate) type ModelFieldName = (&'static str, ModelKind);

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ModelKind {
    Counter,
    Flag,
    Map,
    Register,
    Set,
}

/// A counter of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelCounter(pub(crate) BTreeMap<u64, (u64, u64)>);

/// A set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelSet {
    pub(crate) clock: ModelClock,
    pub(crate) members: BTreeMap<&'static str, ModelClock>,
}

/// A map.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelMap {
    pub(crate) clock: ModelClock,
    fields: BTreeMap<ModelFieldName, (BTreeMap<ModelDot, ModelValue>, ModelValue)>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelValue {
    Counter(ModelClock, BTreeMap<u64, (u64, u64, u64)>),
    Flag(ModelClock, ModelClock),
    Map(ModelMap),
    Register(u64, String),
    Set(ModelSet),
}

/// An edit of a map.
#[derive(Debug, Clone)]
pub(crate) enum ModelEdit {
    Increment(&'static str, i64),
    Enable(&'static str),
    Disable(&'static str),
    Assign(&'static str, u64, String),
    Add(&'static str, &'static str),
    Remove(&'static str, &'static str),
    Within(&'static str, Box<ModelEdit>),
    /// Removes a field: what was seen of it up to a clock.
    Drop(ModelFieldName, ModelClock),
}

/// What a write left somewhere: the place, and the write.
pub(crate) type ModelLeaf = (String, ModelDot);

fn has_seen(clock: &ModelClock, dot: ModelDot) -> bool {
    clock.get(&dot.0).is_some_and(|last| dot.1 <= *last)
}

pub(crate) fn join(clock: &mut ModelClock, other: &ModelClock) {
    for (actor, count) in other {
        let known = clock.entry(*actor).or_default();
        *known = (*count).max(*known);
    }
}

/// The dots that stay of two sides: those of both, and of each what the other has not seen.
fn surviving(left: (&ModelClock, &ModelClock), right: (&ModelClock, &ModelClock)) -> ModelClock {
    let ((left_clock, left), (right_clock, right)) = (left, right);
    let mut kept = ModelClock::new();
    for (dots, others, clock) in [(left, right, right_clock), (right, left, left_clock)] {
        for (actor, count) in dots {
            if others.get(actor) == Some(count) || !has_seen(clock, (*actor, *count)) {
                let known = kept.entry(*actor).or_default();
                *known = (*count).max(*known);
            }
        }
    }
    kept
}

impl ModelCounter {
    pub(crate) fn add(&mut self, actor: u64, by: i64) {
        let totals = self.0.entry(actor).or_default();
        let size = by.unsigned_abs();
        *totals = if by > 0 { (totals.0 + size, totals.1) } else { (totals.0, totals.1 + size) };
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (actor, (up, down)) in &other.0 {
            let known = self.0.entry(*actor).or_default();
            *known = (known.0.max(*up), known.1.max(*down));
        }
    }

    pub(crate) fn value(&self) -> i128 {
        self.0.values().map(|(up, down)| i128::from(*up) - i128::from(*down)).sum()
    }

    pub(crate) fn to_riak(&self) -> RiakDatatype {
        let actors = self.0.iter().map(|(actor, (up, down))| (name(*actor), *up, *down)).collect();
        RiakDatatype::Counter(RiakPnCounter { actors })
    }
}

impl ModelSet {
    pub(crate) fn add(&mut self, member: &'static str, dot: ModelDot) {
        join(&mut self.clock, &[dot].into());
        self.members.insert(member, [dot].into());
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let names: BTreeSet<_> = self.members.keys().chain(other.members.keys()).copied().collect();
        let none = ModelClock::new();
        let dots = |set: &Self, member: &str| set.members.get(member).unwrap_or(&none).clone();
        let kept = names.into_iter().map(|member| {
            let (left, right) = (dots(self, member), dots(other, member));
            (member, surviving((&self.clock, &left), (&other.clock, &right)))
        });
        self.members = kept.filter(|(_, dots)| !dots.is_empty()).collect();
        join(&mut self.clock, &other.clock);
    }

    pub(crate) fn leaves(&self, place: &str) -> BTreeSet<ModelLeaf> {
        let leaf = |(member, dots): (&&str, &ModelClock)| {
            let place = format!("{place}={member}");
            dots.iter().map(|(actor, count)| (place.clone(), (*actor, *count))).collect::<Vec<_>>()
        };
        self.members.iter().flat_map(leaf).collect()
    }

    fn to_set(&self) -> RiakSet {
        let members = self.members.iter().map(|(member, dots)| (Bytes::from(*member), clock(dots))).collect();
        RiakSet { clock: clock(&self.clock), members }
    }

    pub(crate) fn to_riak(&self) -> RiakDatatype {
        RiakDatatype::Set(self.to_set())
    }
}

impl ModelValue {
    fn new(kind: ModelKind) -> Self {
        match kind {
            ModelKind::Counter => Self::Counter(ModelClock::new(), BTreeMap::new()),
            ModelKind::Flag => Self::Flag(ModelClock::new(), ModelClock::new()),
            ModelKind::Map => Self::Map(ModelMap::default()),
            ModelKind::Register => Self::Register(0, String::new()),
            ModelKind::Set => Self::Set(ModelSet::default()),
        }
    }

    fn with_clock(mut self, parent: &ModelClock) -> Self {
        match &mut self {
            Self::Counter(clock, _) | Self::Flag(clock, _) => clock.clone_from(parent),
            Self::Map(ModelMap { clock, .. }) | Self::Set(ModelSet { clock, .. }) => clock.clone_from(parent),
            Self::Register(..) => {}
        }
        self
    }

    fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Set(set), Self::Set(other)) => set.merge(other),
            (Self::Map(map), Self::Map(other)) => map.merge(other),
            (Self::Register(time, text), Self::Register(other_time, other)) => {
                if (*other_time, other) > (*time, text) {
                    (*time, *text) = (*other_time, other.clone());
                }
            }
            (Self::Flag(clock, dots), Self::Flag(other_clock, other)) => {
                *dots = surviving((clock, dots), (other_clock, other));
                join(clock, other_clock);
            }
            (Self::Counter(clock, actors), Self::Counter(other_clock, other)) => {
                actors
                    .retain(|actor, (last, _, _)| other.contains_key(actor) || !has_seen(other_clock, (*actor, *last)));
                for (actor, counts) in other {
                    match actors.get_mut(actor) {
                        Some(known) => *known = (*known).max(*counts),
                        None if has_seen(clock, (*actor, counts.0)) => {}
                        None => drop(actors.insert(*actor, *counts)),
                    }
                }
                join(clock, other_clock);
            }
            _ => panic!("one kind"),
        }
    }

    fn update(&mut self, edit: &ModelEdit, dot: ModelDot) {
        match (self, edit) {
            (Self::Counter(clock, actors), ModelEdit::Increment(_, by)) => {
                join(clock, &[dot].into());
                let (_, up, down) = actors.get(&dot.0).copied().unwrap_or_default();
                let size = by.unsigned_abs();
                let counts = if *by > 0 { (dot.1, up + size, down) } else { (dot.1, up, down + size) };
                actors.insert(dot.0, counts);
            }
            (Self::Flag(clock, dots), ModelEdit::Enable(_)) => {
                join(clock, &[dot].into());
                join(dots, &[dot].into());
            }
            (Self::Flag(_, dots), ModelEdit::Disable(_)) => dots.clear(),
            (Self::Register(time, text), ModelEdit::Assign(_, at, new)) => {
                if at > time {
                    (*time, *text) = (*at, new.clone());
                }
            }
            (Self::Set(set), ModelEdit::Add(_, member)) => set.add(member, dot),
            (Self::Set(set), ModelEdit::Remove(_, member)) => drop(set.members.remove(member)),
            (Self::Map(map), ModelEdit::Within(_, edit)) => map.apply(edit, dot),
            _ => panic!("one kind"),
        }
    }

    fn to_riak(&self) -> RiakDatatype {
        match self {
            Self::Counter(seen, actors) => {
                let actors = actors.iter().map(|(actor, (last, up, down))| (name(*actor), *last, *up, *down));
                RiakDatatype::MapCounter(RiakMapCounter { clock: clock(seen), actors: actors.collect() })
            }
            Self::Flag(seen, dots) => RiakDatatype::Flag(RiakFlag { clock: clock(seen), dots: clock(dots) }),
            Self::Map(map) => map.to_riak(),
            Self::Register(time, text) => {
                RiakDatatype::Register(RiakRegister { value: text.clone().into(), time: *time })
            }
            Self::Set(set) => set.to_riak(),
        }
    }

    fn seen(&self) -> RiakClock {
        match self {
            Self::Counter(seen, _) | Self::Flag(seen, _) => clock(seen),
            Self::Map(ModelMap { clock: seen, .. }) | Self::Set(ModelSet { clock: seen, .. }) => clock(seen),
            Self::Register(..) => RiakClock::new(),
        }
    }
}

impl ModelEdit {
    fn field(&self) -> ModelFieldName {
        match self {
            Self::Increment(name, _) => (name, ModelKind::Counter),
            Self::Enable(name) | Self::Disable(name) => (name, ModelKind::Flag),
            Self::Assign(name, ..) => (name, ModelKind::Register),
            Self::Add(name, _) | Self::Remove(name, _) => (name, ModelKind::Set),
            Self::Within(name, _) => (name, ModelKind::Map),
            Self::Drop(field, _) => *field,
        }
    }
}

impl ModelMap {
    /// An update by this actor: one write for all.
    pub(crate) fn update(&mut self, actor: u64, edit: &ModelEdit) {
        let count = self.clock.entry(actor).or_default();
        *count += 1;
        let dot = (actor, *count);
        self.apply(edit, dot);
    }

    fn apply(&mut self, edit: &ModelEdit, dot: ModelDot) {
        join(&mut self.clock, &[dot].into());
        let field = edit.field();
        if let ModelEdit::Drop(_, context) = edit {
            return self.remove(field, context);
        }
        let mut value = self.merged(field).with_clock(&self.clock);
        value.update(edit, dot);
        self.fields.insert(field, ([(dot, value)].into(), ModelValue::new(field.1)));
    }

    fn remove(&mut self, field: ModelFieldName, context: &ModelClock) {
        let Some((mut values, removed)) = self.fields.remove(&field) else { return };
        values.retain(|dot, _| !has_seen(context, *dot));
        if !values.is_empty() {
            let mut seen = ModelValue::new(field.1).with_clock(context);
            seen.merge(&removed);
            self.fields.insert(field, (values, seen));
        }
    }

    /// The value of a field, of the writes that no other replaced.
    fn merged(&self, field: ModelFieldName) -> ModelValue {
        let mut merged = ModelValue::new(field.1);
        if let Some((values, removed)) = self.fields.get(&field) {
            values.values().for_each(|value| merged.merge(value));
            merged.merge(removed);
        }
        merged
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let names: BTreeSet<_> = self.fields.keys().chain(other.fields.keys()).copied().collect();
        let mut fields = BTreeMap::new();
        for field in names {
            let empty = ModelValue::new(field.1);
            let (left, right) = (self.fields.get(&field), other.fields.get(&field));
            let dots = |side: Option<&(BTreeMap<ModelDot, ModelValue>, ModelValue)>| {
                side.map(|(dots, _)| dots.clone()).unwrap_or_default()
            };
            let (left_dots, right_dots) = (dots(left), dots(right));
            let mut kept = BTreeMap::new();
            for (dots, others, clock) in
                [(&left_dots, &right_dots, &other.clock), (&right_dots, &left_dots, &self.clock)]
            {
                let survives = |dot: &ModelDot| others.contains_key(dot) || !has_seen(clock, *dot);
                kept.extend(dots.iter().filter(|(dot, _)| survives(dot)).map(|(dot, value)| (*dot, value.clone())));
            }
            if kept.is_empty() {
                continue;
            }
            let seen = |side: Option<&(BTreeMap<ModelDot, ModelValue>, ModelValue)>, clock: &ModelClock| match side {
                Some((_, removed)) => removed.clone(),
                // The other side never had the field, or removed it.
                None => empty.clone().with_clock(clock),
            };
            let mut removed = seen(left, &self.clock);
            removed.merge(&seen(right, &other.clock));
            fields.insert(field, (kept, removed));
        }
        self.fields = fields;
        join(&mut self.clock, &other.clock);
    }

    /// The value of the counter, if it is there.
    pub(crate) fn counter(&self, name: &'static str) -> i128 {
        match self.merged((name, ModelKind::Counter)) {
            ModelValue::Counter(_, actors) => {
                actors.values().map(|(_, up, down)| i128::from(*up) - i128::from(*down)).sum()
            }
            _ => panic!("it is a counter"),
        }
    }

    /// What writes left in it, with the text and the time of registers.
    pub(crate) fn leaves(&self, place: &str) -> BTreeMap<ModelLeaf, (u64, String)> {
        let mut leaves = BTreeMap::new();
        for (field, (values, _)) in &self.fields {
            let place = format!("{place}/{}", field.0);
            for (dot, value) in values {
                leaves.insert((place.clone(), *dot), Default::default());
                if let ModelValue::Register(time, text) = value {
                    leaves.insert((format!("{place}="), *dot), (*time, text.clone()));
                }
            }
            match self.merged(*field) {
                ModelValue::Set(set) => {
                    leaves.extend(set.leaves(&place).into_iter().map(|leaf| (leaf, Default::default())))
                }
                ModelValue::Map(map) => leaves.extend(map.leaves(&place)),
                ModelValue::Flag(_, dots) => {
                    leaves.extend(dots.into_iter().map(|dot| ((format!("{place}="), dot), Default::default())));
                }
                ModelValue::Counter(..) | ModelValue::Register(..) => {}
            }
        }
        leaves
    }

    pub(crate) fn to_riak(&self) -> RiakDatatype {
        let field =
            |((text, kind), (values, removed)): (&ModelFieldName, &(BTreeMap<ModelDot, ModelValue>, ModelValue))| {
                let values = values.iter().map(|((actor, count), value)| ((name(*actor), *count), value.to_riak()));
                let kind = match kind {
                    ModelKind::Counter => RiakFieldKind::Counter,
                    ModelKind::Flag => RiakFieldKind::Flag,
                    ModelKind::Map => RiakFieldKind::Map,
                    ModelKind::Register => RiakFieldKind::Register,
                    ModelKind::Set => RiakFieldKind::Set,
                };
                RiakField { name: Bytes::from(*text), kind, values: values.collect(), removed: removed.seen() }
            };
        let fields = self.fields.iter().map(field).collect();
        RiakDatatype::Map(RiakMap { clock: clock(&self.clock), fields })
    }
}

fn name(actor: u64) -> Bytes {
    Bytes::copy_from_slice(&actor.to_be_bytes())
}

fn clock(clock: &ModelClock) -> RiakClock {
    clock.iter().map(|(actor, count)| (name(*actor), *count)).collect()
}
