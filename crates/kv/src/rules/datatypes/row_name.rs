//! Names of the rows of one key. They sort so that a read meets clocks and markers first, then each field whole.
//!
//! ```text
//! 00 actor                         clock row
//! 01 path 00 remover               marker
//! 01 01                            what imports have seen of the source of a move
//! 02 path 00 request id            one increment that its id names
//! 02 path 01 actor                 presence of a field
//! 02 path 02 element actor         element of a set
//! 02 path 03 actor                 register
//! 02 path 04 actor                 enabled flag
//! 02 path 05 actor birth           counter
//! 02 path 06 remover               resets of a counter
//! 02 path 07 request id            id of an update that was made
//! 02 path 09 form chunk actor      registers of a HyperLogLog
//! path: (80 name type)* with `put_ordered` names; leaf tags are below 80, so no leaf is read as a step
//! ```

use bytes::Bytes;
use larder_rows::codec::{DecodeError, coded, put_ordered, take_ordered};
use larder_rows::{ActorId, Timestamp};

use super::hll::HllForm;

const CLOCK: u8 = 0;
const MARKER: u8 = 1;
const DATA: u8 = 2;
const STEP: u8 = 0x80;
const INCREMENT: u8 = 0;
const PRESENCE: u8 = 1;
const ELEMENT: u8 = 2;
const REGISTER: u8 = 3;
const FLAG: u8 = 4;
const COUNTER: u8 = 5;
const RESETS: u8 = 6;
const REQUEST: u8 = 7;
const CHUNK: u8 = 9;
/// The tag behind [`MARKER`] of what imports have seen.
const IMPORT: u8 = 1;

/// The place of a value in a key: the fields around it, outermost first, as they stand in row names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DatatypePath(Bytes);

/// A row of a key by its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatatypeRowName {
    /// The last clock of an actor.
    Clock(ActorId),
    /// Older rows below the path are dead.
    Marker(DatatypePath, ActorId),
    /// What imports have seen of the source of a move. A removal of the value leaves it.
    Import,
    /// Part of the value at the path.
    Data(DatatypePath, DatatypeLeaf),
}

/// A part of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatatypeLeaf {
    /// One increment that its id names, beside the totals.
    Increment(Bytes),
    /// The field is there.
    Presence(ActorId),
    /// The element is there.
    Element(Bytes, ActorId),
    /// The register has a value.
    Register(ActorId),
    /// The flag is enabled.
    Flag(ActorId),
    /// Totals of one source.
    Counter(CounterSource),
    /// Totals that this actor reset.
    Resets(ActorId),
    /// An update with this id was made.
    Request(Bytes),
    /// Registers of a HyperLogLog: their form, the number of the chunk.
    Chunk(HllForm, u8, ActorId),
}

/// The row of a counter that one actor adds to. A new birth begins at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterSource {
    /// The actor.
    pub actor: ActorId,
    /// The clock of its first increment.
    pub birth: Timestamp,
}

impl DatatypePath {
    /// The place of the whole value.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The place of a field of the map here.
    #[must_use]
    pub fn child(&self, field: &FieldName) -> Self {
        let mut path = self.0.to_vec();
        path.push(STEP);
        put_ordered(&mut path, &field.name);
        path.push(field.embedded.code());
        Self(path.into())
    }

    /// Whether the other place is this one or in it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        // Types end the steps, and ordered names are no prefixes of each other: a prefix is an ancestor.
        other.0.starts_with(&self.0)
    }

    /// The fields around the value, outermost first.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes of another form.
    pub fn fields(&self) -> Result<Vec<FieldName>, DecodeError> {
        let mut rest = &self.0[..];
        let mut fields = Vec::new();
        while let [STEP, tail @ ..] = rest {
            let (name, tail) = take_ordered(tail)?;
            let (&code, tail) = tail.split_first().ok_or(DecodeError::Truncated)?;
            let embedded = EmbeddedType::from_code(code).ok_or(DecodeError::Invalid("field type"))?;
            fields.push(FieldName::new(name, embedded));
            rest = tail;
        }
        if rest.is_empty() { Ok(fields) } else { Err(DecodeError::Trailing) }
    }

    /// Bytes of its encoding.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The prefix of the names of all rows of the value and in it.
    #[must_use]
    pub fn prefix(&self) -> Bytes {
        [&[DATA], &self.0[..]].concat().into()
    }

    fn leaf_prefix(&self, tag: u8, suffix_bytes: usize) -> Vec<u8> {
        let mut name = Vec::with_capacity(2 + self.0.len() + suffix_bytes);
        name.push(DATA);
        name.extend_from_slice(&self.0);
        name.push(tag);
        name
    }

    /// The prefix of the rows of one element.
    #[must_use]
    pub fn element_prefix(&self, element: &[u8]) -> Bytes {
        let mut name = self.leaf_prefix(ELEMENT, element.len() + 10);
        put_ordered(&mut name, element);
        name.into()
    }

    /// The prefix of the rows of a register.
    #[must_use]
    pub fn register_prefix(&self) -> Bytes {
        self.leaf_prefix(REGISTER, 0).into()
    }

    /// The prefix of the rows of a flag.
    #[must_use]
    pub fn flag_prefix(&self) -> Bytes {
        self.leaf_prefix(FLAG, 0).into()
    }

    /// The prefix of the ids of increments, which lie behind the totals of a counter and show nothing of its value.
    #[must_use]
    pub fn requests_prefix(&self) -> Bytes {
        self.leaf_prefix(REQUEST, 0).into()
    }

    /// The prefix of the counter rows of an actor.
    #[must_use]
    pub fn counter_prefix(&self, actor: ActorId) -> Bytes {
        let mut name = self.leaf_prefix(COUNTER, 16);
        name.extend_from_slice(&actor.0.to_be_bytes());
        name.into()
    }
}

impl DatatypeRowName {
    /// The first name past clocks and markers.
    pub const DATA: Bytes = Bytes::from_static(&[DATA]);

    /// The bytes of the name.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let with_actor = |mut name: Vec<u8>, actor: ActorId| {
            name.extend_from_slice(&actor.0.to_be_bytes());
            name
        };
        let (path, leaf) = match self {
            Self::Clock(actor) => return with_actor(vec![CLOCK], *actor).into(),
            Self::Marker(path, actor) => return with_actor([&[MARKER], &path.0[..], &[0]].concat(), *actor).into(),
            Self::Import => return Bytes::from_static(&[MARKER, IMPORT]),
            Self::Data(path, leaf) => (path, leaf),
        };
        match leaf {
            DatatypeLeaf::Increment(id) => [path.leaf_prefix(INCREMENT, id.len()), id.to_vec()].concat(),
            DatatypeLeaf::Presence(actor) => with_actor(path.leaf_prefix(PRESENCE, 8), *actor),
            DatatypeLeaf::Element(element, actor) => with_actor(path.element_prefix(element).into(), *actor),
            DatatypeLeaf::Register(actor) => with_actor(path.leaf_prefix(REGISTER, 8), *actor),
            DatatypeLeaf::Flag(actor) => with_actor(path.leaf_prefix(FLAG, 8), *actor),
            DatatypeLeaf::Counter(source) => {
                let mut name = with_actor(path.leaf_prefix(COUNTER, 16), source.actor);
                name.extend_from_slice(&source.birth.0.to_be_bytes());
                name
            }
            DatatypeLeaf::Resets(actor) => with_actor(path.leaf_prefix(RESETS, 8), *actor),
            DatatypeLeaf::Request(id) => [path.leaf_prefix(REQUEST, id.len()), id.to_vec()].concat(),
            DatatypeLeaf::Chunk(form, chunk, actor) => {
                let mut name = path.leaf_prefix(CHUNK, 10);
                name.extend_from_slice(&[form.0, *chunk]);
                with_actor(name, *actor)
            }
        }
        .into()
    }

    /// Reads a name.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes of another form.
    pub fn decode(name: &Bytes) -> Result<Self, DecodeError> {
        let (&section, rest) = name.split_first().ok_or(DecodeError::Truncated)?;
        if section == CLOCK {
            return Ok(Self::Clock(decode_actor(rest)?));
        }
        let length = path_length(rest)?;
        let path = DatatypePath(name.slice(1..1 + length));
        let (&tag, rest) = rest[length..].split_first().ok_or(DecodeError::Truncated)?;
        match (section, tag) {
            (MARKER, 0) => Ok(Self::Marker(path, decode_actor(rest)?)),
            (MARKER, IMPORT) if length == 0 && rest.is_empty() => Ok(Self::Import),
            (DATA, _) => Ok(Self::Data(path, DatatypeLeaf::decode(tag, rest)?)),
            _ => Err(DecodeError::Invalid("row name")),
        }
    }
}

impl DatatypeLeaf {
    fn decode(tag: u8, rest: &[u8]) -> Result<Self, DecodeError> {
        Ok(match tag {
            INCREMENT => Self::Increment(Bytes::copy_from_slice(rest)),
            PRESENCE => Self::Presence(decode_actor(rest)?),
            ELEMENT => {
                let (element, rest) = take_ordered(rest)?;
                Self::Element(element.into(), decode_actor(rest)?)
            }
            REGISTER => Self::Register(decode_actor(rest)?),
            FLAG => Self::Flag(decode_actor(rest)?),
            COUNTER => {
                let (actor, birth) = rest.split_at_checked(8).ok_or(DecodeError::Truncated)?;
                Self::Counter(CounterSource { actor: decode_actor(actor)?, birth: Timestamp(decode_actor(birth)?.0) })
            }
            RESETS => Self::Resets(decode_actor(rest)?),
            REQUEST => Self::Request(Bytes::copy_from_slice(rest)),
            CHUNK => match rest {
                [form, chunk, actor @ ..] => Self::Chunk(HllForm(*form), *chunk, decode_actor(actor)?),
                _ => return Err(DecodeError::Truncated),
            },
            _ => return Err(DecodeError::Invalid("row name")),
        })
    }

    /// The actor whose clock stamps the row; `None` for a row that no clock covers.
    #[must_use]
    pub fn actor(&self) -> Option<ActorId> {
        match self {
            Self::Presence(actor) | Self::Element(_, actor) | Self::Register(actor) | Self::Flag(actor) => Some(*actor),
            Self::Counter(source) => Some(source.actor),
            Self::Chunk(_, _, actor) => Some(*actor),
            Self::Increment(_) | Self::Resets(_) | Self::Request(_) => None,
        }
    }
}

/// Bytes of the path at the begin of `rest`.
fn path_length(rest: &[u8]) -> Result<usize, DecodeError> {
    let mut tail = rest;
    while let [STEP, name @ ..] = tail {
        let after = take_ordered(name)?.1;
        tail = after.get(1..).ok_or(DecodeError::Truncated)?;
    }
    Ok(rest.len() - tail.len())
}

fn decode_actor(bytes: &[u8]) -> Result<ActorId, DecodeError> {
    let bytes = bytes.try_into().map_err(|_| DecodeError::Invalid("actor"))?;
    Ok(ActorId(u64::from_be_bytes(bytes)))
}

coded! {
    /// The type of a field of a map. Codes are stored; they sort fields of one name as Riak does.
    pub enum EmbeddedType {
        /// A counter.
        Counter = 1, "counter";
        /// A register: one value of bytes, the last one assigned.
        Register = 2, "register";
        /// A map.
        Map = 3, "map";
        /// A flag: true or false.
        Flag = 4, "flag";
        /// A set.
        Set = 5, "set";
    }
}

impl EmbeddedType {
    /// Riak's module for it, which its error texts name.
    #[must_use]
    pub fn riak_module(self) -> &'static str {
        match self {
            Self::Counter => "riak_dt_emcntr",
            Self::Register => "riak_dt_lwwreg",
            Self::Map => "riak_dt_map",
            Self::Flag => "riak_dt_od_flag",
            Self::Set => "riak_dt_orswot",
        }
    }
}

/// The name of a field of a map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldName {
    /// Its bytes, also none.
    pub name: Bytes,
    /// The type of its value.
    pub embedded: EmbeddedType,
}

impl FieldName {
    /// A field of this name and type.
    #[must_use]
    pub fn new(name: impl Into<Bytes>, embedded: EmbeddedType) -> Self {
        Self { name: name.into(), embedded }
    }
}

#[cfg(test)]
mod tests;
