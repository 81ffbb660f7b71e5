//! Every refusal of a change of properties, and its wording in HTTP, protocol buffers and on the console.
//!
//! The texts are Riak's to the letter, with its grammar; the few of Larder's own are marked. Over HTTP Riak writes an atom as
//! a JSON string and a text as an array of its bytes. Over protocol buffers both are Erlang terms.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value as Json, json};

use super::native_hook::HookFault;
use super::webhook_url::WebhookHost;
use crate::rules::erlang;

/// Most characters of a client's function in a reason.
const FUNCTION_CHARS_MAX: usize = 200;

/// A refused property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidProp {
    /// The property at fault, which is not always one that the client set.
    pub prop: String,
    /// The reason.
    pub reason: InvalidReason,
}

impl InvalidProp {
    /// The line of the console for this property.
    #[must_use]
    pub fn console(&self) -> String {
        self.reason.console(&self.prop)
    }

    fn erlang(&self) -> String {
        format!("{{{},{}}}", erlang::atom(&self.prop), self.reason.erlang())
    }
}

/// Why a property is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidReason {
    /// The value is not true or false.
    NotBoolean,
    /// The value is not a whole number in range.
    NotInteger,
    /// The value is not a number of replicas or its name.
    NotValidQuorum,
    /// The value is not one, all or backend.
    NotValidSyncParam,
    /// There is no such property. Larder's own: Riak fails the request.
    UnknownProperty,
    /// The value is not a hook name, `{"name"}` or `{"mod","fun"}`. Larder's own: Riak fails at the first write.
    NotValidHook,
    /// A hook names an Erlang function that is not built in, or gives it a wrong argument. Larder's own.
    UnknownHookFunction {
        /// The first such function, as `module:function`.
        function: String,
        /// Its fault.
        fault: HookFault,
    },
    /// The value has none of the forms of a function. Larder's own.
    NotValidFunction,
    /// The value is not text. Larder's own.
    NotString,
    /// The value is not a replication choice. Larder's own: Riak does not check.
    NotValidRepl,
    /// Only the creation of a type sets `write_once`.
    CannotUpdateWriteOnce,
    /// Only the creation of a type sets `consistent`.
    CannotUpdateConsistent,
    /// No client sets `claimant`.
    CannotUpdateClaimant,
    /// Only activation sets `active`.
    CannotModifyActive,
    /// `last_write_wins` and `dvv_enabled` would both be true.
    DvvWithLastWriteWins,
    /// At creation: the value of `consistent` is not a boolean.
    ConsistentValue(String),
    /// At creation: both `write_once` and `consistent` are true.
    CreateWriteOnceConsistent,
    /// On an existing type: `consistent` cannot become true.
    UpdateWriteOnceConsistent,
    /// `write_once` and `datatype` exclude each other.
    WriteOnceDatatype,
    /// The value is no data type, or not that of the type.
    Datatype(String),
    /// The type was created without a data type and cannot get one.
    DatatypeNotDefined,
    /// A data type needs `allow_mult`.
    DatatypeAllowMult,
    /// The value is no precision, or greater than the current one.
    HllPrecision(String),
    /// The `n_val` of a consistent type cannot change.
    ConsistentNVal,
    /// `write_once` cannot become false.
    WriteOnceForever,
    /// `write_once` cannot become true on an existing type.
    WriteOnceExisting,
    /// A new type has a greater `n_val` than there are nodes with data. Larder's own: Riak puts several replicas on one node.
    NValAboveNodes(u32),
}

impl InvalidReason {
    /// A hook `json_schema` has an argument that is no schema, for this reason.
    #[must_use]
    pub fn not_a_schema(reason: String) -> Self {
        Self::UnknownHookFunction { function: "larder:json_schema".into(), fault: HookFault::NotASchema(reason) }
    }

    /// A webhook names a host that the server sends nothing to.
    #[must_use]
    pub fn host_not_allowed(host: WebhookHost) -> Self {
        Self::UnknownHookFunction { function: "larder:webhook".into(), fault: HookFault::HostNotAllowed(host) }
    }

    /// The atom of the reason, if it is one.
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

    /// The atom or the text.
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
            Self::UnknownHookFunction { function, fault } => {
                return format!("unknown_hook_function: {}", function_fault(function, fault)).into();
            }
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

    /// The value of the property's name in the body of a 400.
    #[must_use]
    pub fn http_json(&self) -> Json {
        match (self.atom(), self) {
            (Some(atom), _) => json!(atom),
            // Larder's own, so it is not an array of bytes.
            (None, Self::UnknownHookFunction { .. }) => json!(self.text()),
            (None, _) => json!(self.text().as_bytes()),
        }
    }

    /// The line of the console when `prop` is refused for this reason.
    #[must_use]
    pub fn console(&self, prop: &str) -> String {
        match self {
            Self::NotBoolean => format!("{prop} should be \"true\" or \"false\""),
            Self::NotInteger => format!("{prop} must be an integer"),
            Self::NotValidQuorum => format!("{prop} must be an integer or (one|quorum|all)"),
            Self::NotValidSyncParam => format!("{prop}: not_valid_sync_param"),
            Self::UnknownProperty => format!("{prop} is not a bucket property"),
            Self::NotValidHook => format!("{prop} must be a list of hook names"),
            Self::UnknownHookFunction { function, fault } => {
                format!("{prop} cannot be run: {}", function_fault(function, fault))
            }
            Self::NotValidFunction => format!("{prop} must be an object with \"mod\" and \"fun\""),
            Self::NotString => format!("{prop} must be a string"),
            Self::NotValidRepl => format!("{prop} must be true, false, realtime, fullsync or both"),
            _ => self.text().into_owned(),
        }
    }

    /// The second element of the pair in a protocol-buffer error.
    #[must_use]
    pub fn erlang(&self) -> String {
        match (self.atom(), self) {
            (Some(atom), _) => erlang::atom(atom),
            (None, Self::UnknownHookFunction { function, fault }) => {
                format!("{{unknown_hook_function,{}}}", erlang::string(&function_fault(function, fault)))
            }
            (None, _) => erlang::string(&self.text()),
        }
    }
}

/// The sentence about a hook that cannot run; the name is a client's.
fn function_fault(function: &str, fault: &HookFault) -> String {
    let shown: String = function.chars().take(FUNCTION_CHARS_MAX).collect();
    format!("{shown} {}", fault.text())
}

fn hll_precision(value: &str) -> String {
    format!(
        "{value} not supported for Hyperloglog precision property for bucket type. Precision must be an integer \
         between 4 and 16, inclusive (3 < p < 17) and precision can be reduced but never increased after initial \
         setting"
    )
}

/// Why a request about a type is refused before its properties are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeRefusal {
    /// Create of `default`.
    DefaultType,
    /// Update of `default`.
    NoDefaultUpdate,
    /// Create of `any`.
    ReservedName,
    /// Create of an active type.
    AlreadyActive,
    /// Update of a type that is unknown or not active.
    NotActive,
}

impl TypeRefusal {
    /// The atom or the text.
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

/// Why a create or update of a type, or a change of a bucket, is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropsError {
    /// The request as a whole.
    Type(TypeRefusal),
    /// Every refused property, at least one, the last of the request first, as in Riak.
    Props(Vec<InvalidProp>),
}

impl PropsError {
    /// The body of the 400: an object of property and reason, or one JSON string.
    #[must_use]
    pub fn http_json(&self) -> Json {
        match self {
            Self::Type(whole) => json!(whole.text()),
            Self::Props(invalid) => {
                let members =
                    invalid.iter().map(|invalid_prop| (invalid_prop.prop.clone(), invalid_prop.reason.http_json()));
                Json::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The lines of the console, without the one that names the type.
    #[must_use]
    pub fn console(&self) -> Vec<String> {
        match self {
            Self::Type(whole) => vec![whole.text().to_owned()],
            Self::Props(invalid) => invalid.iter().map(InvalidProp::console).collect(),
        }
    }

    /// The text after `Invalid bucket properties: ` in a protocol-buffer error.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::Type(TypeRefusal::ReservedName) => erlang::string(TypeRefusal::ReservedName.text()),
            Self::Type(whole) => whole.text().to_owned(),
            Self::Props(invalid) => {
                format!("[{}]", invalid.iter().map(InvalidProp::erlang).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl From<TypeRefusal> for PropsError {
    fn from(whole: TypeRefusal) -> Self {
        Self::Type(whole)
    }
}

impl From<Vec<InvalidProp>> for PropsError {
    fn from(invalid: Vec<InvalidProp>) -> Self {
        Self::Props(invalid)
    }
}

impl fmt::Display for PropsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.console().join("\n"))
    }
}

impl std::error::Error for PropsError {}

#[cfg(test)]
mod tests;
