//! The memory of a connection between requests.

use bytes::Bytes;
use larder_core::security::LoggedIn;
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv::Gateway;
use larder_net::RequestSource;

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
            failed_logins: 0,
        }
    }

    /// Reports a refusal to the audit log.
    pub(super) fn report(&self, gateway: &Gateway, (action, target): (&str, &str), user: Option<&str>) {
        if let Some(log) = gateway.core.audit() {
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
