//! The begin of a read: the first element or field that it shows.

use bytes::Bytes;
use larder_rows::codec::prefix_successor;
use larder_store::Range;

use crate::rules::datatypes::{DatatypePath, DatatypeRowName, FieldName};

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
