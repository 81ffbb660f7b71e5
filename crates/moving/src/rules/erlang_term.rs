//! Terms of Erlang in their external form, as far as Riak stores them.

use bytes::Bytes;

use super::riak_bytes::RiakFormError;

/// A term of Erlang.
#[derive(Debug, Clone, PartialEq)]
pub enum ErlangTerm {
    /// An integer; larger ones are not decoded.
    Integer(i128),
    /// A float.
    Float(f64),
    /// The name of an atom.
    Atom(Bytes),
    /// A binary.
    Binary(Bytes),
    /// A list of bytes in its short form, as a text of Erlang.
    Text(Bytes),
    /// A tuple.
    Tuple(Vec<ErlangTerm>),
    /// A list; `tail` is what an improper list ends with.
    List {
        /// Its elements.
        items: Vec<ErlangTerm>,
        /// Its end, if that is not the empty list.
        tail: Option<Box<ErlangTerm>>,
    },
    /// The pairs of a map, in their order.
    Map(Vec<(ErlangTerm, ErlangTerm)>),
}

impl ErlangTerm {
    /// The elements of a proper list. A text is a list of its bytes.
    pub(super) fn into_items(self, part: &'static str) -> Result<Vec<Self>, RiakFormError> {
        match self {
            Self::List { items, tail: None } => Ok(items),
            Self::Text(text) => Ok(text.iter().map(|byte| Self::Integer(i128::from(*byte))).collect()),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    /// The elements of a tuple of this size.
    pub(super) fn into_tuple<const SIZE: usize>(self, part: &'static str) -> Result<[Self; SIZE], RiakFormError> {
        match self {
            Self::Tuple(items) => items.try_into().map_err(|_| RiakFormError::Invalid(part)),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    /// The bytes of a binary or a text. The empty text is the empty list.
    pub(super) fn into_bytes(self, part: &'static str) -> Result<Bytes, RiakFormError> {
        match self {
            Self::Binary(bytes) | Self::Text(bytes) => Ok(bytes),
            Self::List { items, tail: None } if items.is_empty() => Ok(Bytes::new()),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    /// The number of an integer that fits.
    pub(super) fn to_number<N: TryFrom<i128>>(&self, part: &'static str) -> Result<N, RiakFormError> {
        match self {
            Self::Integer(number) => N::try_from(*number).map_err(|_| RiakFormError::TooLarge(part)),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    /// Whether it is this atom.
    pub(super) fn is_atom(&self, name: &str) -> bool {
        matches!(self, Self::Atom(atom) if atom == name)
    }
}
