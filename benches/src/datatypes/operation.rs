//! The table of operations on data types.

use crate::cells::OperationLabel;
use crate::numbered_work::NumberedOperation;

/// An operation of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueOperation {
    /// Adds a new element to a set.
    SetAdd,
    /// Asks whether a set has an element.
    SetMember,
    /// Removes an element from a set, with a context.
    SetRemove,
    /// Reads a whole set.
    SetFetch,
    /// Increments one counter from all connections.
    Increment,
    /// Puts an object; each connection has a key of its own.
    PlainPut,
    /// Assigns a register of a map.
    MapRegister,
    /// Increments a counter in a map.
    MapCounter,
    /// Adds a new element to a set in a map.
    MapSet,
    /// Adds a new element to a HyperLogLog.
    HllAdd,
}

impl ValueOperation {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SetAdd => "set add",
            Self::SetMember => "set membership",
            Self::SetRemove => "set remove, with a context",
            Self::SetFetch => "set fetch, whole",
            Self::Increment => "counter increment, one key",
            Self::PlainPut => "plain put of 100 B, 64 keys",
            Self::MapRegister => "map: assign a register",
            Self::MapCounter => "map: increment a counter",
            Self::MapSet => "map: add to a set",
            Self::HllAdd => "hll add",
        }
    }

    /// The label of its cells.
    fn label(self) -> OperationLabel {
        let has_size = !matches!(self, Self::Increment | Self::PlainPut | Self::HllAdd);
        OperationLabel { rank: self as u8, name: self.name(), has_size }
    }
}

impl From<ValueOperation> for NumberedOperation {
    fn from(operation: ValueOperation) -> Self {
        let reads = matches!(operation, ValueOperation::SetMember | ValueOperation::SetFetch);
        let status = if reads { 200 } else { 204 };
        Self { label: operation.label(), status, moves_body: operation == ValueOperation::SetFetch }
    }
}
