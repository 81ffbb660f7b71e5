//! Bodies of Riak's data types, in the forms v1 and v2.
//!
//! ```text
//! 45 01 · 47 01 · u32 length · increments · u32 length · decrements      a counter of Riak 1.4; each is 46 01 · term
//! 45 02 · u32 length · module · its bytes                                 u8 tag · u8 version · term
//! ```
//! Versions of a field that were written at once stay side by side, each with its own value.

use bytes::Bytes;

use super::erlang_term::{ErlangTerm, RiakTerm as _};
use super::riak_bytes::{RiakBytes, RiakFormError};

/// The first byte of the body of a data type.
const DATATYPE_TAG: u8 = 69;
/// Tag and version of a counter of Riak 1.4, and of each of its halves.
const COUNTER_OF_1_4: [u8; 2] = [71, 1];
const HALF_OF_1_4: [u8; 2] = [70, 1];
/// Most values of a field that writes left side by side. Each node of a cluster leaves one at a time.
const FIELD_VALUES_MAX: usize = 256;

/// The value of a data type.
#[derive(Debug, Clone, PartialEq)]
pub enum RiakDatatype {
    /// A counter.
    Counter(RiakPnCounter),
    /// A set.
    Set(RiakSet),
    /// A map.
    Map(RiakMap),
    /// A grow-only set: its members.
    GrowOnlySet(Vec<Bytes>),
    /// A HyperLogLog: its precision, and its registers above zero as (index, value).
    HyperLogLog {
        /// The number of bits of a register's index.
        precision: u8,
        /// The registers.
        registers: Vec<(u32, u8)>,
    },
    /// A counter of a map.
    MapCounter(RiakMapCounter),
    /// A register of a map.
    Register(RiakRegister),
    /// A flag of a map.
    Flag(RiakFlag),
}

/// The last write of each actor: its name, and the number of the write.
pub type RiakClock = Vec<(Bytes, u64)>;

/// A counter: what each actor added and took away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RiakPnCounter {
    /// Actor, increments and decrements.
    pub actors: Vec<(Bytes, u64, u64)>,
}

/// A counter of a map: what each actor added and took away, and its last write there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RiakMapCounter {
    /// The writes that it has seen.
    pub clock: RiakClock,
    /// Actor, its last write, increments and decrements.
    pub actors: Vec<(Bytes, u64, u64, u64)>,
}

/// A flag: enabled while a write enabled it that no other one disabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RiakFlag {
    /// The writes that it has seen.
    pub clock: RiakClock,
    /// The writes that enabled it.
    pub dots: RiakClock,
}

/// A set with removals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RiakSet {
    /// The writes that it has seen.
    pub clock: RiakClock,
    /// Its members, each with the writes that added it.
    pub members: Vec<(Bytes, RiakClock)>,
}

/// A map.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RiakMap {
    /// The writes that it has seen.
    pub clock: RiakClock,
    /// Its fields.
    pub fields: Vec<RiakField>,
}

/// A field of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct RiakField {
    /// Its name, without the suffix of its kind.
    pub name: Bytes,
    /// Its kind.
    pub kind: RiakFieldKind,
    /// The writes that no other replaced, each with the value that it left; mostly one.
    pub values: Vec<((Bytes, u64), RiakDatatype)>,
    /// The writes that the removals of the field had seen: what they left in it is gone.
    pub removed: RiakClock,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiakRegister {
    /// Its value.
    pub value: Bytes,
    /// The time of its write, in microseconds since 1970.
    pub time: u64,
}

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RiakFieldKind {
    /// `name_counter`.
    Counter,
    /// `name_set`.
    Set,
    /// `name_map`.
    Map,
    /// `name_register`.
    Register,
    /// `name_flag`.
    Flag,
}

impl RiakPnCounter {
    /// Its value.
    #[must_use]
    pub fn value(&self) -> i128 {
        self.actors.iter().map(|(_, inc, dec)| i128::from(*inc) - i128::from(*dec)).sum()
    }
}

impl RiakDatatype {
    /// Whether the bytes of an object are the body of a data type.
    #[must_use]
    pub fn is_one(body: &[u8]) -> bool {
        matches!(body, [DATATYPE_TAG, 1 | 2, ..])
    }

    /// Decodes the body of a data type.
    ///
    /// # Errors
    /// [`RiakFormError`].
    pub fn decode(body: Bytes) -> Result<Self, RiakFormError> {
        let mut rest = RiakBytes(body);
        if rest.u8("mark of a data type")? != DATATYPE_TAG {
            return Err(RiakFormError::Invalid("mark of a data type"));
        }
        match rest.u8("version of a data type")? {
            1 => read_counter_of_1_4(rest.rest()).map(Self::Counter),
            2 => {
                let module = rest.sized("module of a data type")?;
                read_module(&module, rest)
            }
            _ => Err(RiakFormError::Invalid("version of a data type")),
        }
    }

    /// The writes that it has seen.
    fn into_clock(self) -> RiakClock {
        match self {
            Self::Set(RiakSet { clock, .. }) | Self::Map(RiakMap { clock, .. }) => clock,
            Self::MapCounter(RiakMapCounter { clock, .. }) | Self::Flag(RiakFlag { clock, .. }) => clock,
            Self::Counter(_) | Self::GrowOnlySet(_) | Self::HyperLogLog { .. } | Self::Register(_) => RiakClock::new(),
        }
    }

    /// The value of a field, by the name of its module.
    fn from_module(module: &ErlangTerm, value: ErlangTerm) -> Result<(RiakFieldKind, Self), RiakFormError> {
        let ErlangTerm::Atom(module) = module else { return Err(RiakFormError::Invalid("kind of a field")) };
        Ok(match &module[..] {
            b"riak_dt_emcntr" => (RiakFieldKind::Counter, Self::MapCounter(read_map_counter(value)?)),
            b"riak_dt_orswot" => (RiakFieldKind::Set, Self::Set(read_set(value)?)),
            b"riak_dt_map" => (RiakFieldKind::Map, Self::Map(read_map(value)?)),
            b"riak_dt_lwwreg" => (RiakFieldKind::Register, Self::Register(read_register(value)?)),
            b"riak_dt_od_flag" => (RiakFieldKind::Flag, Self::Flag(read_flag(value)?)),
            _ => return Err(RiakFormError::Invalid("kind of a field")),
        })
    }
}

fn read_module(module: &[u8], mut rest: RiakBytes) -> Result<RiakDatatype, RiakFormError> {
    if module == b"riak_dt_pncounter" && rest.0.starts_with(&COUNTER_OF_1_4) {
        return read_counter_of_1_4(rest.rest()).map(RiakDatatype::Counter);
    }
    let head = [rest.u8("tag of a data type")?, rest.u8("version of a data type")?];
    let term = ErlangTerm::from_stored(rest.rest())?;
    Ok(match (module, head) {
        (b"riak_dt_pncounter", [b'G', 2]) => RiakDatatype::Counter(read_counter(term)?),
        (b"riak_dt_orswot", [b'K', 1 | 2]) => RiakDatatype::Set(read_set(term)?),
        (b"riak_dt_map", [b'M', 1 | 2]) => RiakDatatype::Map(read_map(term)?),
        (b"riak_dt_gset", [b'R', 1 | 2]) => RiakDatatype::GrowOnlySet(read_members(term)?),
        (b"riak_kv_hll", [b'V', 1]) => read_hyper_log_log(term)?,
        _ => return Err(RiakFormError::Invalid("module of a data type")),
    })
}

fn read_counter_of_1_4(body: Bytes) -> Result<RiakPnCounter, RiakFormError> {
    let mut rest = RiakBytes(body);
    if rest.take(2, "counter")? != COUNTER_OF_1_4[..] {
        return Err(RiakFormError::Invalid("counter"));
    }
    let mut counter = RiakPnCounter::default();
    let (up, down) = (rest.sized("counter")?, rest.sized("counter")?);
    rest.finish()?;
    for (half, is_up) in [(up, true), (down, false)] {
        let mut half = RiakBytes(half);
        if half.take(2, "counter")? != HALF_OF_1_4[..] {
            return Err(RiakFormError::Invalid("counter"));
        }
        for entry in ErlangTerm::from_stored(half.rest())?.into_items("counter")? {
            let [actor, count] = entry.into_tuple("counter")?;
            let (actor, count) = (actor.into_bytes("actor")?, count.to_number("counter")?);
            counter.actors.push(if is_up { (actor, count, 0) } else { (actor, 0, count) });
        }
    }
    Ok(counter)
}

fn read_counter(term: ErlangTerm) -> Result<RiakPnCounter, RiakFormError> {
    let actor = |entry: ErlangTerm| {
        let [actor, up, down] = entry.into_tuple("counter")?;
        Ok((actor.into_bytes("actor")?, up.to_number("counter")?, down.to_number("counter")?))
    };
    let actors = term.into_items("counter")?.into_iter().map(actor).collect::<Result<_, _>>()?;
    Ok(RiakPnCounter { actors })
}

/// A counter of a map: `{Clock, [{Actor, {Count, Up, Down}}]}`.
fn read_map_counter(term: ErlangTerm) -> Result<RiakMapCounter, RiakFormError> {
    let [clock, entries] = term.into_tuple("counter of a map")?;
    let actor = |entry: ErlangTerm| {
        let [actor, counts] = entry.into_tuple("counter of a map")?;
        let [last, up, down] = counts.into_tuple("counter of a map")?;
        let number = |term: &ErlangTerm| term.to_number("counter of a map");
        Ok((actor.into_bytes("actor")?, number(&last)?, number(&up)?, number(&down)?))
    };
    let actors = entries.into_items("counter of a map")?.into_iter().map(actor).collect::<Result<_, _>>()?;
    Ok(RiakMapCounter { clock: read_dots(clock)?, actors })
}

/// A set: `{Clock, Members, Deferred}`. Removals that wait for their adds name no member that is there: once the source has the
/// adds, too, its state is without them.
fn read_set(term: ErlangTerm) -> Result<RiakSet, RiakFormError> {
    let [clock, members, _] = term.into_tuple("set")?;
    let member = |(member, dots): (ErlangTerm, ErlangTerm)| Ok((member.into_bytes("member")?, read_dots(dots)?));
    let members = read_dictionary(members)?.into_iter().map(member).collect::<Result<_, _>>()?;
    Ok(RiakSet { clock: read_dots(clock)?, members })
}

fn read_members(term: ErlangTerm) -> Result<Vec<Bytes>, RiakFormError> {
    term.into_items("set")?.into_iter().map(|member| member.into_bytes("member")).collect()
}

/// A map: `{Clock, Fields, Deferred}`; a field has its values by dot, and what its removals left.
fn read_map(term: ErlangTerm) -> Result<RiakMap, RiakFormError> {
    let [clock, fields, _] = term.into_tuple("map")?;
    let field = |(name, value): (ErlangTerm, ErlangTerm)| {
        let [name, module] = name.into_tuple("field")?;
        let [values, removals] = value.into_tuple("field")?;
        let (kind, removals) = RiakDatatype::from_module(&module, removals)?;
        let mut kept = Vec::new();
        let values = read_dictionary(values)?;
        // Bound: each is merged with the others, and a source may lie.
        if values.len() > FIELD_VALUES_MAX {
            return Err(RiakFormError::TooLarge("number of values of a field"));
        }
        for (dot, value) in values {
            kept.push((read_dot(dot)?, RiakDatatype::from_module(&module, value)?.1));
        }
        Ok(RiakField { name: name.into_bytes("field")?, kind, values: kept, removed: removals.into_clock() })
    };
    let fields = read_dictionary(fields)?.into_iter().map(field).collect::<Result<_, _>>()?;
    Ok(RiakMap { clock: read_dots(clock)?, fields })
}

fn read_register(term: ErlangTerm) -> Result<RiakRegister, RiakFormError> {
    let [value, time] = term.into_tuple("register")?;
    Ok(RiakRegister { value: value.into_bytes("register")?, time: time.to_number("time of a register")? })
}

/// A flag: `{Clock, Dots, Deferred}`; it is on while it has a dot.
fn read_flag(term: ErlangTerm) -> Result<RiakFlag, RiakFormError> {
    let [clock, dots, _] = term.into_tuple("flag")?;
    Ok(RiakFlag { clock: read_dots(clock)?, dots: read_dots(dots)? })
}

fn read_hyper_log_log(term: ErlangTerm) -> Result<RiakDatatype, RiakFormError> {
    let [record, precision, registers] = term.into_tuple("HyperLogLog")?;
    let [backend, registers] = registers.into_tuple("HyperLogLog")?;
    // Few registers are pairs alone; else pairs are additions that are not merged yet.
    let [form, first, second, ..]: [ErlangTerm; 5] = registers.into_tuple("form of a HyperLogLog")?;
    if !record.is_atom("hyper") || !backend.is_atom("hyper_binary") {
        return Err(RiakFormError::Invalid("form of a HyperLogLog"));
    }
    let (dense, pairs) = match (form.is_atom("buffer"), form.is_atom("dense")) {
        (true, _) => (Bytes::new(), first),
        (_, true) => (first.into_bytes("registers of a HyperLogLog")?, second),
        _ => return Err(RiakFormError::Invalid("form of a HyperLogLog")),
    };
    let register = |pair: ErlangTerm| {
        let [index, value] = pair.into_tuple("register of a HyperLogLog")?;
        Ok((index.to_number("register of a HyperLogLog")?, value.to_number("register of a HyperLogLog")?))
    };
    let pairs = pairs.into_items("HyperLogLog")?.into_iter().map(register);
    Ok(RiakDatatype::HyperLogLog {
        precision: precision.to_number("precision of a HyperLogLog")?,
        registers: dense_registers(&dense).map(Ok).chain(pairs).collect::<Result<_, _>>()?,
    })
}

/// The registers above zero in a binary of six bits for each.
fn dense_registers(dense: &[u8]) -> impl Iterator<Item = (u32, u8)> {
    let unpacked = |three: &[u8]| {
        let bits = three.iter().fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte));
        [18, 12, 6, 0].map(|shift| (bits >> shift & 0x3f) as u8)
    };
    dense.chunks_exact(3).flat_map(unpacked).zip(0..).filter(|(rank, _)| *rank > 0).map(|(rank, index)| (index, rank))
}

/// Writes: `[{Actor, Count}]`.
fn read_dots(term: ErlangTerm) -> Result<RiakClock, RiakFormError> {
    term.into_items("dots")?.into_iter().map(read_dot).collect()
}

fn read_dot(term: ErlangTerm) -> Result<(Bytes, u64), RiakFormError> {
    let [actor, count] = term.into_tuple("dot")?;
    Ok((actor.into_bytes("actor")?, count.to_number("dot")?))
}

/// The pairs of a `dict`, which is a record of segments with cells `[Key|Value]`, or of an `orddict`, a list of pairs.
fn read_dictionary(term: ErlangTerm) -> Result<Vec<(ErlangTerm, ErlangTerm)>, RiakFormError> {
    let invalid = RiakFormError::Invalid("dictionary");
    let record = match term {
        ErlangTerm::Tuple(record) => record,
        list => {
            let pair = |term: ErlangTerm| term.into_tuple("dictionary").map(|[key, value]| (key, value));
            return list.into_items("dictionary")?.into_iter().map(pair).collect();
        }
    };
    let [name, _, _, _, _, _, _, _, segments]: [ErlangTerm; 9] = record.try_into().map_err(|_| invalid)?;
    let ErlangTerm::Tuple(segments) = segments else { return Err(invalid) };
    if !name.is_atom("dict") {
        return Err(invalid);
    }
    let mut pairs = Vec::new();
    for segment in segments {
        let ErlangTerm::Tuple(buckets) = segment else { return Err(invalid) };
        for bucket in buckets {
            for cell in bucket.into_items("dictionary")? {
                pairs.push(read_cell(cell)?);
            }
        }
    }
    Ok(pairs)
}

/// A cell `[Key|Value]`: where the value is a list, the cell is a list of one element more.
fn read_cell(cell: ErlangTerm) -> Result<(ErlangTerm, ErlangTerm), RiakFormError> {
    let invalid = RiakFormError::Invalid("dictionary");
    let (mut items, is_proper) = match cell {
        ErlangTerm::List(items) => (items, true),
        ErlangTerm::Improper(items) => (items, false),
        _ => return Err(invalid),
    };
    if items.is_empty() {
        return Err(invalid);
    }
    let key = items.remove(0);
    Ok((
        key,
        match (is_proper, items.len()) {
            (true, _) => ErlangTerm::List(items),
            (false, 1) => items.remove(0),
            (false, _) => ErlangTerm::Improper(items),
        },
    ))
}
