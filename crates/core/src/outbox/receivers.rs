//! Receivers of notices: where each notice goes, and the last failure of each target of events.

use std::collections::BTreeMap;

use larder_rows::{NoticeContent, NoticeRow, Timestamp};

use super::Outbox;
use super::addressed_notice::{AddressedNotice, ReceiverEndpoint};
use crate::rules::props::{WebhookUrl, webhook_in};
use crate::types::Catalogue;

/// The last failure of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverFailure {
    /// When it was.
    pub at: Timestamp,
    /// Its reason, in one line.
    pub reason: String,
}

/// The last failure of each target of events: of webhooks there may be any number.
pub(super) type ReceiverFailures = BTreeMap<String, ReceiverFailure>;

impl Outbox {
    /// The last failure of a target of events since this server started.
    #[must_use]
    pub fn last_failure(&self, target: &str) -> Option<ReceiverFailure> {
        self.state.lock().failures.get(target).cloned()
    }

    pub(super) fn note_failure(&self, notice: &NoticeRow, reason: &str) {
        // Bound: only targets of the settings are kept.
        if self.context.config.event_targets.iter().any(|target| target.name() == notice.receiver) {
            let failure = ReceiverFailure { at: self.context.now(), reason: reason.to_owned() };
            self.state.lock().failures.insert(notice.receiver.clone(), failure);
        }
    }

    pub(super) fn addressed(&self, notices: Vec<NoticeRow>) -> Vec<AddressedNotice> {
        notices.into_iter().map(|row| AddressedNotice { endpoint: self.endpoint(&row), row }).collect()
    }

    fn endpoint(&self, notice: &NoticeRow) -> Option<ReceiverEndpoint> {
        match &notice.content {
            NoticeContent::Kv(_) => {
                WebhookUrl::parse(&notice.receiver).ok().map(|url| ReceiverEndpoint { url, authorization: None })
            }
            NoticeContent::Event(_) => {
                let targets = &self.context.config.event_targets;
                let target = targets.iter().find(|target| target.name() == notice.receiver)?;
                Some(ReceiverEndpoint { url: target.url.clone(), authorization: target.authorization.clone() })
            }
        }
    }

    /// Refuses a receiver that the settings do not allow any more.
    ///
    /// # Errors
    /// The reason for the log.
    pub(super) fn check_allowed(&self, notice: &NoticeRow, endpoint: &ReceiverEndpoint) -> Result<(), String> {
        let host = endpoint.url.host();
        match &notice.content {
            // A client named the host; the setting may allow less than it did when the property was set.
            NoticeContent::Kv(_) if !self.context.config.webhook_hosts.contains(host) => {
                Err(format!("the setting --webhook-hosts does not allow {host}"))
            }
            NoticeContent::Kv(_) | NoticeContent::Event(_) => Ok(()),
        }
    }
}

/// Whether the bucket of a notice still sends to its receiver.
pub(super) fn is_wanted(catalogue: &Catalogue, notice: &NoticeRow) -> bool {
    let bucket = &notice.address.bucket;
    match &notice.content {
        NoticeContent::Kv(_) => {
            let hooks = catalogue.hooks(bucket, "postcommit");
            hooks.iter().filter_map(webhook_in).any(|url| url.as_str() == notice.receiver)
        }
        NoticeContent::Event(_) => catalogue.product().has_event_target(&bucket.bucket, &notice.receiver),
    }
}
