//! Every way a request about properties is refused, and its wording on each wire.
//!
//! Texts are Riak's to the letter, odd grammar included; the few of Larder's own are marked. Over HTTP Riak writes an
//! atom as a JSON string and a text as an array of its bytes; over protocol buffers both appear as Erlang terms.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value as Json, json};

use super::erlang;

/// One refused property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The property the client should look at; not always the one it set.
    pub prop: String,
    /// What is wrong.
    pub reason: Reason,
}

impl Invalid {
    /// The console's line for this one.
    #[must_use]
    pub fn console(&self) -> String {
        self.reason.console(&self.prop)
    }

    fn erlang(&self) -> String {
        format!("{{{},{}}}", erlang::atom(&self.prop), self.reason.erlang())
    }
}

/// Why a property was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Should be true or false.
    NotBoolean,
    /// Should be a whole number in range.
    NotInteger,
    /// Should be a number of replicas or its name.
    NotValidQuorum,
    /// Should be one, all or backend.
    NotValidSyncParam,
    /// No such property. Larder's own: Riak fails the request.
    UnknownProperty,
    /// Not a hook name, `{"name"}` or `{"mod","fun"}`. Larder's own: Riak finds out at the first write.
    NotValidHook,
    /// Not one of the forms of a function. Larder's own.
    NotValidFunction,
    /// Should be text. Larder's own.
    NotString,
    /// Not a replication choice. Larder's own: Riak does not look.
    NotValidRepl,
    /// `write_once` here is set by the type alone.
    CannotUpdateWriteOnce,
    /// `consistent` here is set by the type alone.
    CannotUpdateConsistent,
    /// `claimant` is never set.
    CannotUpdateClaimant,
    /// `active` is set by activation alone.
    CannotModifyActive,
    /// `last_write_wins` and `dvv_enabled` would both be true.
    DvvWithLastWriteWins,
    /// At creation: not a value of `consistent`.
    ConsistentValue(String),
    /// At creation: both `write_once` and `consistent`.
    CreateWriteOnceConsistent,
    /// On an existing type: `consistent` may not become true.
    UpdateWriteOnceConsistent,
    /// `write_once` and `datatype` exclude each other.
    WriteOnceDatatype,
    /// Not a data type, or not the type's own.
    Datatype(String),
    /// The type has no data type and never will.
    DatatypeNotDefined,
    /// A data type needs siblings.
    DatatypeAllowMult,
    /// Not a precision, or one above the present.
    HllPrecision(String),
    /// `n_val` of a consistent type is frozen.
    ConsistentNVal,
    /// `write_once` stays true.
    WriteOnceForever,
    /// `write_once` cannot be added to a type.
    WriteOnceExisting,
    /// A new type asks for more copies than there are machines to hold them. Larder's own: Riak puts several on one.
    NValAboveNodes(u32),
}

impl Reason {
    /// The reason as a word, when it is one.
    #[must_use]
    pub const fn atom(&self) -> Option<&'static str> {
        match self {
            Self::NotBoolean => Some("not_boolean"),
            Self::NotInteger => Some("not_integer"),
            Self::NotValidQuorum => Some("not_valid_quorum"),
            Self::NotValidSyncParam => Some("not_valid_sync_param"),
            Self::UnknownProperty => Some("unknown_property"),
            Self::NotValidHook => Some("not_valid_hook"),
            Self::NotValidFunction => Some("not_valid_function"),
            Self::NotString => Some("not_string"),
            Self::NotValidRepl => Some("not_valid_repl"),
            _ => None,
        }
    }

    /// The word or the text.
    #[must_use]
    pub fn text(&self) -> Cow<'static, str> {
        let text = match self {
            Self::CannotUpdateWriteOnce => "cannot update write_once property",
            Self::CannotUpdateConsistent => "cannot update consistent property",
            Self::CannotUpdateClaimant => "Cannot update claimant property",
            Self::CannotModifyActive => "Cannot modify active property",
            Self::DvvWithLastWriteWins => "If last_write_wins is true, dvv_enabled must be false",
            Self::ConsistentValue(value) => {
                return format!("{value} is not a valid value for consistent. Use \"true\" or \"false\"").into();
            }
            Self::CreateWriteOnceConsistent => "Write once buckets must be not be consistent=true",
            Self::UpdateWriteOnceConsistent => "Write once buckets must not be consistent=true",
            Self::WriteOnceDatatype => "Write once buckets must not have datatype defined",
            Self::Datatype(value) => return format!("{value} not supported for bucket datatype property").into(),
            Self::DatatypeNotDefined => "`datatype` must not be defined.",
            Self::DatatypeAllowMult => "Data Type buckets must be allow_mult=true",
            Self::HllPrecision(value) => return hll_precision(value).into(),
            Self::ConsistentNVal => "n_val cannot be modified for existing consistent type",
            Self::WriteOnceForever => "Cannot modify write_once property once set to true",
            Self::NValAboveNodes(nodes) => {
                return format!("n_val cannot be greater than the number of nodes that hold data, which is {nodes}")
                    .into();
            }
            Self::WriteOnceExisting => "Cannot set existing bucket type to `write_once`",
            Self::NotBoolean
            | Self::NotInteger
            | Self::NotValidQuorum
            | Self::NotValidSyncParam
            | Self::UnknownProperty
            | Self::NotValidHook
            | Self::NotValidFunction
            | Self::NotString
            | Self::NotValidRepl => self.atom().unwrap_or_default(),
        };
        Cow::Borrowed(text)
    }

    /// The value beside the property's name in the body of a 400.
    #[must_use]
    pub fn http_json(&self) -> Json {
        match self.atom() {
            Some(atom) => json!(atom),
            None => json!(self.text().as_bytes()),
        }
    }

    /// The console's line when `prop` was refused for this.
    #[must_use]
    pub fn console(&self, prop: &str) -> String {
        match self {
            Self::NotBoolean => format!("{prop} should be \"true\" or \"false\""),
            Self::NotInteger => format!("{prop} must be an integer"),
            Self::NotValidQuorum => format!("{prop} must be an integer or (one|quorum|all)"),
            Self::NotValidSyncParam => format!("{prop}: not_valid_sync_param"),
            Self::UnknownProperty => format!("{prop} is not a bucket property"),
            Self::NotValidHook => format!("{prop} must be a list of hook names"),
            Self::NotValidFunction => format!("{prop} must be an object with \"mod\" and \"fun\""),
            Self::NotString => format!("{prop} must be a string"),
            Self::NotValidRepl => format!("{prop} must be true, false, realtime, fullsync or both"),
            _ => self.text().into_owned(),
        }
    }

    /// The second half of the pair in a protocol-buffer error.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self.atom() {
            Some(atom) => erlang::atom(atom),
            None => erlang::string(&self.text()),
        }
    }
}

fn hll_precision(value: &str) -> String {
    format!(
        "{value} not supported for Hyperloglog precision property for bucket type. Precision must be an integer \
         between 4 and 16, inclusive (3 < p < 17) and precision can be reduced but never increased after initial \
         setting"
    )
}

/// Why a whole request about a type was refused before its properties were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// Create of `default`.
    DefaultType,
    /// Update of `default`.
    NoDefaultUpdate,
    /// Create of `any`.
    ReservedName,
    /// Create of a type in use.
    AlreadyActive,
    /// Update of a type that is unknown or not in use.
    NotActive,
}

impl Whole {
    /// The word or the text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::DefaultType => "default_type",
            Self::NoDefaultUpdate => "no_default_update",
            Self::ReservedName => "The name 'any' may not be used for bucket types",
            Self::AlreadyActive => "already_active",
            Self::NotActive => "not_active",
        }
    }
}

/// A refused create, update or bucket change. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The request as a whole.
    Whole(Whole),
    /// Some of its properties, never none; each is named, the last of the request first, as Riak does.
    Props(Vec<Invalid>),
}

impl Refused {
    /// The body of the 400: an object of property and reason, or one JSON string.
    #[must_use]
    pub fn http_json(&self) -> Json {
        match self {
            Self::Whole(whole) => json!(whole.text()),
            Self::Props(invalid) => {
                let members = invalid.iter().map(|one| (one.prop.clone(), one.reason.http_json()));
                Json::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The console's lines, without the one that names the type.
    #[must_use]
    pub fn console(&self) -> Vec<String> {
        match self {
            Self::Whole(whole) => vec![whole.text().to_owned()],
            Self::Props(invalid) => invalid.iter().map(Invalid::console).collect(),
        }
    }

    /// What follows `Invalid bucket properties: ` in a protocol-buffer error.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::Whole(Whole::ReservedName) => erlang::string(Whole::ReservedName.text()),
            Self::Whole(whole) => whole.text().to_owned(),
            Self::Props(invalid) => {
                format!("[{}]", invalid.iter().map(Invalid::erlang).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl From<Whole> for Refused {
    fn from(whole: Whole) -> Self {
        Self::Whole(whole)
    }
}

impl From<Vec<Invalid>> for Refused {
    fn from(invalid: Vec<Invalid>) -> Self {
        Self::Props(invalid)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.console().join("\n"))
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests;
