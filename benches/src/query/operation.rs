//! The table of operations on indexes, hooks and jobs.

use crate::cells::OperationLabel;
use crate::numbered_work::NumberedOperation;

/// An operation of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryBenchOperation {
    /// A range of a bucket whose rows need no check.
    Range,
    /// The same with the term of each result.
    RangeTerms,
    /// A range of a bucket that checks each result against its object.
    RangeChecked,
    /// A durable put of a new key.
    PutNew,
    /// A durable put of a key that exists, with other terms.
    PutOverwritten,
    /// A buffered put without a hook.
    HookNone,
    /// A buffered put with a built-in precommit hook.
    HookNative,
    /// A buffered put with a precommit hook in JavaScript that does nothing.
    HookScript,
    /// A count of objects by native functions.
    CountNative,
    /// A count of objects by JavaScript.
    CountScript,
    /// Sums of members by native functions.
    SumNative,
    /// The sum of a member by JavaScript.
    SumScript,
}

impl QueryBenchOperation {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Range => "index range",
            Self::RangeTerms => "index range, return_terms",
            Self::RangeChecked => "index range, results checked",
            Self::PutNew => "put durable with terms, new key",
            Self::PutOverwritten => "put durable with terms, existing key",
            Self::HookNone => "put buffered, no hook",
            Self::HookNative => "put buffered, native hook max_size",
            Self::HookScript => "put buffered, JavaScript hook, no-op",
            Self::CountNative => "MapReduce count, native",
            Self::CountScript => "MapReduce count, JavaScript",
            Self::SumNative => "MapReduce sum, native",
            Self::SumScript => "MapReduce sum, JavaScript",
        }
    }

    fn is_put(self) -> bool {
        self.is_hook() || matches!(self, Self::PutNew | Self::PutOverwritten)
    }

    fn is_hook(self) -> bool {
        matches!(self, Self::HookNone | Self::HookNative | Self::HookScript)
    }
}

impl From<QueryBenchOperation> for NumberedOperation {
    fn from(operation: QueryBenchOperation) -> Self {
        let label = OperationLabel { rank: operation as u8, name: operation.name(), has_size: !operation.is_hook() };
        Self { label, status: if operation.is_put() { 204 } else { 200 }, moves_body: false }
    }
}
