//! Updates: what one request does to a data type. All of it becomes visible at once, or none of it.

use bytes::Bytes;
use larder_core::rules::props::Datatype;

use super::field::{EmbeddedType, FieldName};

/// The update of a whole value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatatypeUpdate {
    /// Adds to a counter. Zero changes nothing, and makes the counter.
    Counter(i64),
    /// Edits a set, one after the other.
    Set(Vec<SetEdit>),
    /// Adds to a set that only grows.
    Gset(Vec<Bytes>),
    /// Adds to a HyperLogLog.
    Hll(Vec<Bytes>),
    /// Edits a map.
    Map(MapEdits),
}

/// One edit of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetEdit {
    /// Adds the element.
    Add(Bytes),
    /// Removes the element.
    Remove(Bytes),
}

/// The edits of a map: the removals first, then the updates in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapEdits {
    /// Fields to remove, with everything in them.
    pub removes: Vec<FieldName>,
    /// Fields to update. An update without edits makes the field.
    pub updates: Vec<FieldEdit>,
}

/// The update of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldEdit {
    /// The name of the field; its type is that of the update.
    pub name: Bytes,
    /// Its update.
    pub update: EmbeddedUpdate,
}

/// The update of a value in a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddedUpdate {
    /// Adds to a counter.
    Counter(i64),
    /// Edits a set, one after the other.
    Set(Vec<SetEdit>),
    /// Assigns a register.
    Register(Bytes),
    /// Enables a flag, or disables it.
    Flag(bool),
    /// Edits a map.
    Map(MapEdits),
}

impl DatatypeUpdate {
    /// The data type that it is an update of.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        match self {
            Self::Counter(_) => Datatype::Counter,
            Self::Set(_) => Datatype::Set,
            Self::Gset(_) => Datatype::Gset,
            Self::Hll(_) => Datatype::Hll,
            Self::Map(_) => Datatype::Map,
        }
    }
}

impl EmbeddedUpdate {
    /// The type of field that it is an update of.
    #[must_use]
    pub fn embedded(&self) -> EmbeddedType {
        match self {
            Self::Counter(_) => EmbeddedType::Counter,
            Self::Set(_) => EmbeddedType::Set,
            Self::Register(_) => EmbeddedType::Register,
            Self::Flag(_) => EmbeddedType::Flag,
            Self::Map(_) => EmbeddedType::Map,
        }
    }
}

impl FieldEdit {
    /// The field that it updates.
    #[must_use]
    pub fn field(&self) -> FieldName {
        FieldName { name: self.name.clone(), embedded: self.update.embedded() }
    }
}
