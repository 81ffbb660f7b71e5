//! The console's lines in the audit log: each change, each sign-in, and each refused request.

use hyper::StatusCode;
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv::Gateway;
use larder_net::RequestSource;

/// The name of this interface in the audit log.
const FACE: &str = "console";

/// A request for the audit log.
pub(crate) struct AuditedRequest<'a> {
    /// The action, by its name in the table of routes.
    pub(crate) action: &'a str,
    /// The changed thing.
    pub(crate) target: &'a str,
    /// The number of the session, if there is one.
    pub(crate) session: Option<u64>,
    /// The client.
    pub(crate) source: RequestSource,
    /// The status of the answer.
    pub(crate) status: StatusCode,
}

impl AuditedRequest<'_> {
    /// Writes the line, if there is an audit log.
    pub(crate) fn record(&self, gateway: &Gateway) {
        let Some(log) = gateway.core.audit() else { return };
        let who = self.session.map(|number| format!("session {number}"));
        let status = self.status.as_u16();
        log.record(&AuditEvent {
            face: FACE,
            who: who.as_deref(),
            from: Some(self.source.address),
            action: self.action,
            target: self.target,
            outcome: AuditOutcome::of_status(status),
            status: Some(status),
            request: None,
        });
    }
}
