//! A notice with the place that it goes to.

use larder_rows::NoticeRow;

use crate::rules::props::{WebhookHost, WebhookUrl};

/// Where the notices of a receiver go.
#[derive(Debug, Clone)]
pub(crate) struct ReceiverEndpoint {
    pub(crate) url: WebhookUrl,
    pub(crate) authorization: Option<String>,
}

/// A notice, and where it goes; `None`: this server does not know its receiver.
#[derive(Debug, Clone)]
pub(crate) struct AddressedNotice {
    pub(crate) row: NoticeRow,
    pub(crate) endpoint: Option<ReceiverEndpoint>,
}

impl AddressedNotice {
    /// The host that it goes to.
    pub(super) fn host(&self) -> Option<WebhookHost> {
        self.endpoint.as_ref().map(|endpoint| endpoint.url.host().clone())
    }
}
