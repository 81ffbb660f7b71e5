//! The answer to a request that was not carried out: Riak's error message, and whether the connection goes on.

use bytes::{Bytes, BytesMut};
use larder_core::types::TypeStateError;
use larder_core::{Error, QuorumParam};
use larder_kv::rules::causality::FailedCondition;
use larder_kv::rules::datatypes::DatatypeError;
use larder_rows::address::AddressError;
use prost::Message;

use super::frame::put_message;
use super::messages::RpbErrorResp;

/// A request that was not carried out.
#[derive(Debug)]
pub(super) enum PbFault {
    /// The gateway's error.
    Gateway(Error),
    /// An error of this protocol alone.
    Text(String),
    /// As [`Self::Text`], and the connection ends after it.
    Last(String),
    /// The message cannot be decoded: as in Riak, the connection ends after the error.
    Undecodable(String),
}

impl PbFault {
    /// Appends the error message.
    pub(super) fn put(&self, output: &mut BytesMut) {
        let errmsg = match self {
            Self::Gateway(error) => text(error),
            Self::Text(text) | Self::Last(text) => text.clone(),
            Self::Undecodable(reason) => format!("Error processing incoming message: {reason}"),
        };
        put_message(output, 0, &RpbErrorResp { errmsg: errmsg.into(), errcode: 0 });
    }

    /// Whether the connection ends after the error.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Undecodable(_) | Self::Last(_))
    }

    /// Whether the client should come back later.
    pub(super) fn is_overload(&self) -> bool {
        matches!(self, Self::Gateway(Error::Overloaded { .. }))
    }

    /// The same, with this protocol's text for an unknown type in requests about buckets and types.
    pub(super) fn from_bucket(error: Error) -> Self {
        match error {
            Error::UnknownType(name) => {
                Self::Text(format!("No bucket-type named '{}'", String::from_utf8_lossy(&name)))
            }
            error => Self::Gateway(error),
        }
    }
}

/// The message in these bytes.
///
/// # Errors
/// [`PbFault::Undecodable`].
pub(super) fn decode<M: Message + Default>(message: Bytes) -> Result<M, PbFault> {
    M::decode(message).map_err(|error| PbFault::Undecodable(error.to_string()))
}

impl From<Error> for PbFault {
    fn from(error: Error) -> Self {
        Self::Gateway(error)
    }
}

impl From<AddressError> for PbFault {
    fn from(error: AddressError) -> Self {
        Self::Gateway(error.into())
    }
}

/// Riak's text for an error of the gateway; errors that Riak does not have get plain sentences (Riak KV protocol buffers
/// reference §8). The match has no wildcard: a new error does not compile without a text.
fn text(error: &Error) -> String {
    match error {
        Error::UnknownType(_) => "no_type".into(),
        Error::BadAddress(AddressError::Empty("bucket type")) => "Type cannot be zero-length".into(),
        Error::BadAddress(AddressError::Empty("bucket")) => "Bucket cannot be zero-length".into(),
        Error::BadAddress(AddressError::Empty(_)) => "Key cannot be zero-length".into(),
        Error::QuorumAboveN { n_val } => format!("{{n_val_violation,{n_val}}}"),
        Error::Unsatisfied { which, got, wanted } => format!("{{{}_val_unsatisfied,{wanted},{got}}}", name(*which)),
        Error::NodeConfirms { got, wanted, reading: true } => format!("{{insufficient_nodes,{got},need,{wanted}}}"),
        Error::NodeConfirms { got, wanted, reading: false } => {
            format!("{{node_confirms_val_unsatisfied,{wanted},{got}}}")
        }
        Error::Condition(FailedCondition::Precondition | FailedCondition::NotModified) => "match_found".into(),
        Error::Condition(FailedCondition::Modified) => "modified".into(),
        Error::Condition(FailedCondition::Missing) => "notfound".into(),
        Error::Superseded => "failed".into(),
        Error::TooLarge { bytes, max: _ } => format!("{{too_large,{bytes}}}"),
        Error::TooManySiblings { count } => format!("{{too_many_siblings,{count}}}"),
        Error::Datatype(DatatypeError::NotPresent(absent)) => absent.clone(),
        Error::DatatypeNeedsSiblings => "\"Bucket must be allow_mult=true\"".into(),
        Error::Datatype(_) | Error::NotDatatype | Error::DatatypePut => error.to_string(),
        Error::Precommit(refusal) => refusal.erlang(),
        Error::NotBuilt(feature) => format!("Not available yet: {}", feature.name()),
        Error::Refused(refused) => format!("Invalid bucket properties: {}", refused.erlang()),
        Error::Type(TypeStateError::Unknown) => "no_type".into(),
        Error::Type(TypeStateError::NotReady) => "not_ready".into(),
        Error::TimedOut => "timeout".into(),
        Error::Changed | Error::Overloaded { .. } => "overload".into(),
        Error::BadAddress(_)
        | Error::Context(_)
        | Error::MetadataTooLarge { .. }
        | Error::IndexTooLarge { .. }
        | Error::BrokenBody(_)
        | Error::NotReady(_)
        | Error::DiskFull
        | Error::Damaged(_)
        | Error::Internal(_) => error.to_string(),
    }
}

fn name(which: QuorumParam) -> &'static str {
    match which {
        QuorumParam::R => "r",
        QuorumParam::Pr => "pr",
        QuorumParam::W => "w",
        QuorumParam::Dw => "dw",
        QuorumParam::Pw => "pw",
    }
}
