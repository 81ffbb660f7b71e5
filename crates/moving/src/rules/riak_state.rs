//! A data type of Riak as the state that an import merges: every part with the dots of the writes that left it.
//!
//! A field of a map has a value for each write that no other replaced. These merge as Riak merges them when it reads: what one of them
//! has removed is gone, and so is what a removal of the field had seen.

use bytes::Bytes;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeError, DatatypePath, EmbeddedType, FieldName, SourceClock, SourceDatatype, SourceDot,
};

use super::riak_datatype::{
    RiakClock, RiakDatatype, RiakField, RiakFieldKind, RiakFlag, RiakMap, RiakMapCounter, RiakPnCounter, RiakSet,
};

impl RiakDatatype {
    /// The state of a whole value.
    ///
    /// # Errors
    /// [`DatatypeError::SourceState`]: it is none that a key has, or one that cannot be imported.
    pub fn into_state(self) -> Result<SourceDatatype, DatatypeError> {
        match self {
            Self::Counter(counter) => counter_state(counter),
            Self::Set(set) => Ok(set_state(Datatype::Set, &DatatypePath::root(), set)),
            Self::Map(map) => Ok(map_state(&DatatypePath::root(), map)),
            Self::GrowOnlySet(members) => Ok(grow_only_state(members)),
            Self::HyperLogLog { precision, registers } => SourceDatatype::hyperloglog(precision, registers),
            Self::MapCounter(_) | Self::Register(_) | Self::Flag(_) => Err(DatatypeError::SourceState("a form")),
        }
    }
}

fn counter_state(counter: RiakPnCounter) -> Result<SourceDatatype, DatatypeError> {
    // A counter of Riak 1.4 has its increments apart from its decrements.
    let mut totals = std::collections::BTreeMap::<Bytes, (u64, u64)>::new();
    for (actor, plus, minus) in counter.actors {
        let known = totals.entry(actor).or_default();
        *known = (known.0.max(plus), known.1.max(minus));
    }
    if totals.is_empty() {
        totals.insert(SourceDatatype::NAMELESS, (0, 0));
    }
    SourceDatatype::counter(totals.into_iter().map(|(actor, (plus, minus))| (actor, plus, minus)))
}

/// The clock of a whole value. One that no write has changed since it was made has none, and is there all the same.
fn whole_clock(clock: RiakClock) -> SourceClock {
    match clock.is_empty() {
        true => [(SourceDatatype::NAMELESS, 1)].into(),
        false => source_clock(clock),
    }
}

fn source_clock(clock: RiakClock) -> SourceClock {
    let mut latest = SourceClock::new();
    for (actor, count) in clock {
        let known = latest.entry(actor).or_default();
        *known = count.max(*known);
    }
    latest
}

fn dots(clock: RiakClock) -> impl Iterator<Item = SourceDot> {
    clock.into_iter().map(|(actor, count)| SourceDot { actor, count })
}

fn grow_only_state(members: Vec<Bytes>) -> SourceDatatype {
    // Its members have no dots, and none is ever removed: their number tells the newer state.
    let count = members.len() as u64 + 1;
    let mut state = SourceDatatype::new(Datatype::Gset, [(SourceDatatype::NAMELESS, count)].into());
    for member in members {
        state.add_element(&DatatypePath::root(), member, SourceDot { actor: SourceDatatype::NAMELESS, count });
    }
    state
}

fn set_state(datatype: Datatype, path: &DatatypePath, set: RiakSet) -> SourceDatatype {
    let is_root = *path == DatatypePath::root();
    let clock = if is_root { whole_clock(set.clock) } else { source_clock(set.clock) };
    let mut state = SourceDatatype::new(datatype, clock);
    for (member, writes) in set.members {
        dots(writes).for_each(|dot| state.add_element(path, member.clone(), dot));
    }
    state
}

fn map_state(path: &DatatypePath, map: RiakMap) -> SourceDatatype {
    let is_root = *path == DatatypePath::root();
    let clock = if is_root { whole_clock(map.clock) } else { source_clock(map.clock) };
    let mut state = SourceDatatype::new(Datatype::Map, clock);
    for field in map.fields {
        state.extend(field_state(path, field));
    }
    state
}

/// The rows of one field and of what is in it.
fn field_state(path: &DatatypePath, field: RiakField) -> SourceDatatype {
    let RiakField { name, kind, values, removed } = field;
    let path = path.child(&FieldName::new(name, embedded(kind)));
    let mut merged = SourceDatatype::new(Datatype::Map, SourceClock::new());
    let mut presence = SourceDatatype::new(Datatype::Map, SourceClock::new());
    for ((actor, count), value) in values {
        let dot = SourceDot { actor, count };
        presence.add_presence(&path, dot.clone());
        merged.merge(value_state(&path, dot, value));
    }
    merged.remove_seen(&source_clock(removed));
    merged.extend(presence);
    merged
}

fn value_state(path: &DatatypePath, dot: SourceDot, value: RiakDatatype) -> SourceDatatype {
    match value {
        RiakDatatype::Set(set) => set_state(Datatype::Map, path, set),
        RiakDatatype::Map(map) => map_state(path, map),
        RiakDatatype::MapCounter(RiakMapCounter { clock, actors }) => {
            let mut state = SourceDatatype::new(Datatype::Map, source_clock(clock));
            for (actor, count, plus, minus) in actors {
                state.add_counter(path, SourceDot { actor, count }, plus, minus);
            }
            state
        }
        RiakDatatype::Flag(RiakFlag { clock, dots: enabled }) => {
            let mut state = SourceDatatype::new(Datatype::Map, source_clock(clock));
            dots(enabled).for_each(|dot| state.add_flag(path, dot));
            state
        }
        RiakDatatype::Register(register) => {
            // It has no dot of its own: that of the write that left it is its name.
            let mut state = SourceDatatype::new(Datatype::Map, SourceClock::new());
            let is_set = register.time > 0 || !register.value.is_empty();
            if is_set {
                state.add_register(path, dot, register.time, &register.value);
            }
            state
        }
        // The decoder of maps makes none of these.
        RiakDatatype::Counter(_) | RiakDatatype::GrowOnlySet(_) | RiakDatatype::HyperLogLog { .. } => {
            SourceDatatype::new(Datatype::Map, SourceClock::new())
        }
    }
}

fn embedded(kind: RiakFieldKind) -> EmbeddedType {
    match kind {
        RiakFieldKind::Counter => EmbeddedType::Counter,
        RiakFieldKind::Set => EmbeddedType::Set,
        RiakFieldKind::Map => EmbeddedType::Map,
        RiakFieldKind::Register => EmbeddedType::Register,
        RiakFieldKind::Flag => EmbeddedType::Flag,
    }
}
