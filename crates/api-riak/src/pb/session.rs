//! The memory of a connection between requests.

use bytes::Bytes;
use larder_core::rules::security::{KvPermission, SourceMethod};
use larder_core::security::LoggedIn;
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv::Gateway;
use larder_net::RequestSource;
use larder_rows::address::{BucketAddress, DEFAULT_TYPE};
use prost::Message;

use super::fault::{PbFault, decode};
use super::fields::type_name;

/// The memory of a connection between requests.
pub(super) struct PbSession {
    /// The client.
    pub(super) source: RequestSource,
    /// The id that the client set.
    pub(super) client_id: Bytes,
    /// Whether the connection can be encrypted later.
    pub(super) offers_tls: bool,
    /// The common name in the client's certificate.
    pub(super) common_name: Option<String>,
    /// The user that the client has proved to be.
    pub(super) user: Option<LoggedIn>,
    /// The method of the source by which it proved so.
    pub(super) proven_by: Option<SourceMethod>,
    /// Log-ins that failed.
    pub(super) failed_logins: u32,
}

impl PbSession {
    /// The begin of a connection of this client.
    pub(super) fn new(source: RequestSource) -> Self {
        Self {
            source,
            client_id: Bytes::from_static(&[0; 4]),
            offers_tls: false,
            common_name: None,
            user: None,
            proven_by: None,
            failed_logins: 0,
        }
    }

    /// Reports a refusal to the audit log.
    pub(super) fn report(&self, gateway: &Gateway, action: &str, target: &str, user: Option<&str>) {
        if let Some(log) = gateway.context().audit() {
            log.record(&AuditEvent {
                face: "pb",
                who: user,
                from: Some(self.source.address),
                action,
                target,
                outcome: AuditOutcome::Refused,
                status: None,
                request: None,
            });
        }
    }
}

/// The right that a request needs while security is on.
#[derive(Debug, Clone, Copy)]
pub(super) enum PbAccess {
    /// None: the request makes a client a user.
    Login,
    /// Any user may make it.
    LoggedIn,
    /// All these permissions on the scope that its message names.
    Needs(&'static [KvPermission], ScopeDecoder),
    /// Those that the inputs of a job need.
    Job,
}

/// Reads the scope of a message.
pub(super) type ScopeDecoder = fn(Bytes) -> Result<PbScope, PbFault>;

/// The scope of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PbScope {
    /// A bucket type.
    Type(Bytes),
    /// A bucket. Its names need not be valid.
    Bucket(BucketAddress),
}

/// Messages with the fields of a scope alone: a bucket in field 1 and a type in another one. They decode as the whole messages do,
/// so the scope that is checked is the one that is served.
macro_rules! scope_decoders {
    ($($decoder:ident, $message:ident, $tag:literal;)*) => {
        $(
            #[derive(Clone, PartialEq, Message)]
            struct $message {
                #[prost(bytes = "bytes", optional, tag = "1")]
                bucket: Option<Bytes>,
                #[prost(bytes = "bytes", optional, tag = $tag)]
                bucket_type: Option<Bytes>,
            }

            pub(super) fn $decoder(message: Bytes) -> Result<PbScope, PbFault> {
                let $message { bucket, bucket_type } = decode(message)?;
                Ok(PbScope::Bucket(BucketAddress {
                    bucket_type: type_name(bucket_type),
                    bucket: bucket.unwrap_or_default(),
                }))
            }
        )*
    };
}

scope_decoders! {
    bucket_type_at_2, BucketTypeAt2, "2";
    bucket_type_at_3, BucketTypeAt3, "3";
    bucket_type_at_9, BucketTypeAt9, "9";
    bucket_type_at_12, BucketTypeAt12, "12";
    bucket_type_at_13, BucketTypeAt13, "13";
    bucket_type_at_16, BucketTypeAt16, "16";
}

/// A bucket in field 1, of type `default`.
#[derive(Clone, PartialEq, Message)]
struct DefaultBucket {
    #[prost(bytes = "bytes", optional, tag = "1")]
    bucket: Option<Bytes>,
}

/// A type in field 1.
#[derive(Clone, PartialEq, Message)]
struct TypeAt1 {
    #[prost(bytes = "bytes", optional, tag = "1")]
    bucket_type: Option<Bytes>,
}

/// A type in field 3.
#[derive(Clone, PartialEq, Message)]
struct TypeAt3 {
    #[prost(bytes = "bytes", optional, tag = "3")]
    bucket_type: Option<Bytes>,
}

pub(super) fn default_bucket(message: Bytes) -> Result<PbScope, PbFault> {
    let bucket = decode::<DefaultBucket>(message)?.bucket.unwrap_or_default();
    Ok(PbScope::Bucket(BucketAddress { bucket_type: Bytes::from_static(DEFAULT_TYPE), bucket }))
}

pub(super) fn type_at_1(message: Bytes) -> Result<PbScope, PbFault> {
    Ok(PbScope::Type(type_name(decode::<TypeAt1>(message)?.bucket_type)))
}

pub(super) fn type_at_3(message: Bytes) -> Result<PbScope, PbFault> {
    Ok(PbScope::Type(type_name(decode::<TypeAt3>(message)?.bucket_type)))
}
