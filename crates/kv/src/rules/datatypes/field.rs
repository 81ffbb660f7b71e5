//! Fields of maps: a name and a type. Fields of one name and different types are different fields.

use bytes::Bytes;
use larder_rows::codec::coded;

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
