//! Why a data type refuses a request. Nothing was changed then.

use bytes::Bytes;
use larder_rows::codec::DecodeError;

use super::field::FieldName;
use crate::causality::ContextError;
use crate::erlang;
use crate::props::Datatype;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatatypeError {
    /// A removal without a context names something that is not there.
    #[error("{}", .0.erlang())]
    NotPresent(AbsentTarget),
    /// The update is one of another data type than the bucket's.
    #[error("an update of a {} in a bucket of the data type {}", .update.name(), .bucket.name())]
    WrongOperation {
        /// The data type of the update.
        update: Datatype,
        /// The data type of the bucket.
        bucket: Datatype,
    },
    /// The context is damaged, or not one of this key.
    #[error("{}", .0.about("context"))]
    Context(#[from] ContextError),
    /// A name, an element, a register or the whole update is larger than it may be.
    #[error("{part} is larger than {max} bytes")]
    UpdateTooLarge {
        /// The part, as the subject of a sentence.
        part: &'static str,
        /// The limit in bytes.
        max: usize,
    },
    /// The update has more edits than one request may have, or its maps are nested deeper.
    #[error("the update has more than {max} {part}")]
    TooMany {
        /// The things counted.
        part: &'static str,
        /// The limit.
        max: usize,
    },
    /// The id of a request is empty, too long, or for a type that counts nothing.
    #[error("an id of a request has 1 to 256 bytes, and only counters and maps take one")]
    RequestId,
    /// The value takes more memory than a reader of whole values allows; it can be read in pages.
    #[error("the value is larger than {max} bytes: read it in pages over HTTP, with start and max_results")]
    ValueTooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// Stored bytes are damaged.
    #[error("a row of a data type is damaged: {0}")]
    Damaged(#[from] DecodeError),
}

/// The thing that a removal did not find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbsentTarget {
    /// An element of a set.
    Element(Bytes),
    /// A field of a map.
    Field(FieldName),
}

impl AbsentTarget {
    /// The Erlang term of the refusal, as Riak shows it over both protocols.
    #[must_use]
    pub fn erlang(&self) -> String {
        let what = match self {
            Self::Element(element) => erlang::binary(element),
            Self::Field(field) => format!("{{{},{}}}", erlang::binary(&field.name), field.embedded.riak_module()),
        };
        format!("{{precondition,{{not_present,{what}}}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatypes::EmbeddedType;

    #[test]
    fn the_terms_of_absent_targets_are_riaks() {
        let element = AbsentTarget::Element("zz".into());
        assert_eq!(element.erlang(), "{precondition,{not_present,<<\"zz\">>}}");
        let field = AbsentTarget::Field(FieldName::new("name", EmbeddedType::Register));
        assert_eq!(field.erlang(), "{precondition,{not_present,{<<\"name\">>,riak_dt_lwwreg}}}");
    }
}
