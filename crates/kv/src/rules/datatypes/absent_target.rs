//! The thing that a removal did not find.

use bytes::Bytes;
use larder_core::rules::erlang;
use larder_core::rules::refusals::DatatypeError;

use super::field::FieldName;

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

impl From<AbsentTarget> for DatatypeError {
    fn from(absent: AbsentTarget) -> Self {
        Self::NotPresent(absent.erlang())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::datatypes::EmbeddedType;

    #[test]
    fn the_terms_of_absent_targets_are_riaks() {
        let element = AbsentTarget::Element("zz".into());
        assert_eq!(element.erlang(), "{precondition,{not_present,<<\"zz\">>}}");
        let field = AbsentTarget::Field(FieldName::new("name", EmbeddedType::Register));
        assert_eq!(field.erlang(), "{precondition,{not_present,{<<\"name\">>,riak_dt_lwwreg}}}");
    }
}
