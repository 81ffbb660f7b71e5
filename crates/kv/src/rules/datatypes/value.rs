//! Values as a read yields them: in pieces, for a value of any size, or as a whole within a bound.
//!
//! ```text
//! counter  Counter(5)                    hll  Estimate(3)            set, gset  Element(a) Element(b) ..
//! map      Field(tags, set) Element(a) EndField Field(name, register) Register(Ann) EndField ..
//! ```
//! Elements come in the order of their bytes, fields in that of (name, type). An empty set or map has no pieces.

use bytes::Bytes;
use larder_core::rules::props::Datatype;
use larder_core::rules::refusals::DatatypeError;

use super::row_name::{EmbeddedType, FieldName};

/// A piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePiece {
    /// The value of a counter.
    Counter(i128),
    /// The estimate of a HyperLogLog.
    Estimate(u64),
    /// The next element of a set.
    Element(Bytes),
    /// The value of a register; a field without this piece is an unset register.
    Register(Bytes),
    /// The value of a flag.
    Flag(bool),
    /// A field of the current map begins.
    Field(FieldName),
    /// The current field ends.
    EndField,
}

/// A whole value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatatypeValue {
    /// The sum of all increments.
    Counter(i128),
    /// Elements in order.
    Set(Vec<Bytes>),
    /// Elements in order.
    Gset(Vec<Bytes>),
    /// The estimated number of different elements.
    Hll(u64),
    /// Fields in order.
    Map(Vec<FieldValue>),
}

/// A field with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldValue {
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: EmbeddedValue,
}

/// A value in a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddedValue {
    /// The sum of all increments.
    Counter(i128),
    /// Elements in order.
    Set(Vec<Bytes>),
    /// The bytes assigned last; `None` when unset.
    Register(Option<Bytes>),
    /// Whether it is enabled.
    Flag(bool),
    /// Fields in order.
    Map(Vec<FieldValue>),
}

impl ValuePiece {
    /// Bytes of its name or content.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Counter(_) | Self::Estimate(_) | Self::Flag(_) | Self::EndField => 0,
            Self::Element(bytes) | Self::Register(bytes) => bytes.len(),
            Self::Field(field) => field.name.len(),
        }
    }
}

/// Builds a whole value from its pieces.
#[derive(Debug)]
pub struct ValueBuilder {
    datatype: Datatype,
    root: EmbeddedValue,
    estimate: u64,
    /// The open fields, outermost first.
    open: Vec<FieldValue>,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes that each piece counts for beside its content.
const PIECE_BYTES: usize = 32;

impl ValueBuilder {
    /// A value of this type without pieces, which may take `bytes_max` bytes in memory.
    #[must_use]
    pub fn new(datatype: Datatype, bytes_max: usize) -> Self {
        let root = match datatype {
            Datatype::Counter | Datatype::Hll => EmbeddedValue::Counter(0),
            Datatype::Set | Datatype::Gset => EmbeddedValue::Set(Vec::new()),
            Datatype::Map => EmbeddedValue::Map(Vec::new()),
        };
        Self { datatype, root, estimate: 0, open: Vec::new(), bytes: 0, bytes_max }
    }

    /// Adds the next piece.
    ///
    /// # Errors
    /// [`DatatypeError::ValueTooLarge`] above the bound.
    pub fn add(&mut self, piece: ValuePiece) -> Result<(), DatatypeError> {
        self.bytes += PIECE_BYTES + piece.bytes();
        // Bound: a value has any number of elements, and memory has not.
        if self.bytes > self.bytes_max {
            return Err(DatatypeError::ValueTooLarge { max: self.bytes_max });
        }
        match piece {
            ValuePiece::Field(field) => {
                let value = EmbeddedValue::empty(field.embedded);
                self.open.push(FieldValue { field, value });
            }
            ValuePiece::EndField => {
                if let Some(done) = self.open.pop()
                    && let EmbeddedValue::Map(fields) = self.current()
                {
                    fields.push(done);
                }
            }
            ValuePiece::Element(element) => {
                if let EmbeddedValue::Set(elements) = self.current() {
                    elements.push(element);
                }
            }
            ValuePiece::Counter(total) => *self.current() = EmbeddedValue::Counter(total),
            ValuePiece::Register(bytes) => *self.current() = EmbeddedValue::Register(Some(bytes)),
            ValuePiece::Flag(enabled) => *self.current() = EmbeddedValue::Flag(enabled),
            ValuePiece::Estimate(estimate) => self.estimate = estimate,
        }
        Ok(())
    }

    /// The value.
    #[must_use]
    pub fn finish(self) -> DatatypeValue {
        match (self.datatype, self.root) {
            (Datatype::Hll, _) => DatatypeValue::Hll(self.estimate),
            (Datatype::Gset, EmbeddedValue::Set(elements)) => DatatypeValue::Gset(elements),
            (_, EmbeddedValue::Set(elements)) => DatatypeValue::Set(elements),
            (_, EmbeddedValue::Map(fields)) => DatatypeValue::Map(fields),
            (_, EmbeddedValue::Counter(total)) => DatatypeValue::Counter(total),
            (_, EmbeddedValue::Register(_) | EmbeddedValue::Flag(_)) => DatatypeValue::Counter(0),
        }
    }

    fn current(&mut self) -> &mut EmbeddedValue {
        self.open.last_mut().map_or(&mut self.root, |field| &mut field.value)
    }
}

impl EmbeddedValue {
    /// The value of a field that has no pieces.
    #[must_use]
    pub fn empty(embedded: EmbeddedType) -> Self {
        match embedded {
            EmbeddedType::Counter => Self::Counter(0),
            EmbeddedType::Register => Self::Register(None),
            EmbeddedType::Map => Self::Map(Vec::new()),
            EmbeddedType::Flag => Self::Flag(false),
            EmbeddedType::Set => Self::Set(Vec::new()),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_built_from_its_pieces() {
        let field = |name: &'static str, embedded| FieldName::new(name, embedded);
        let mut builder = ValueBuilder::new(Datatype::Map, 10_000);
        let pieces = [
            ValuePiece::Field(field("m", EmbeddedType::Map)),
            ValuePiece::Field(field("s", EmbeddedType::Set)),
            ValuePiece::Element("a".into()),
            ValuePiece::Element("b".into()),
            ValuePiece::EndField,
            ValuePiece::EndField,
            ValuePiece::Field(field("r", EmbeddedType::Register)),
            ValuePiece::EndField,
        ];
        pieces.into_iter().for_each(|piece| builder.add(piece).unwrap());
        let set = FieldValue {
            field: field("s", EmbeddedType::Set),
            value: EmbeddedValue::Set(vec!["a".into(), "b".into()]),
        };
        let map = FieldValue { field: field("m", EmbeddedType::Map), value: EmbeddedValue::Map(vec![set]) };
        let register = FieldValue { field: field("r", EmbeddedType::Register), value: EmbeddedValue::Register(None) };
        assert_eq!(builder.finish(), DatatypeValue::Map(vec![map, register]));
    }

    #[test]
    fn a_value_above_its_bound_is_refused() {
        let mut builder = ValueBuilder::new(Datatype::Set, 3 * PIECE_BYTES);
        assert_eq!(builder.add(ValuePiece::Element("a".into())), Ok(()));
        assert_eq!(builder.add(ValuePiece::Element("b".into())), Ok(()));
        let refused = DatatypeError::ValueTooLarge { max: 3 * PIECE_BYTES };
        assert_eq!(builder.add(ValuePiece::Element("c".into())), Err(refused));
    }
}
