//! Targets of S3 events: webhooks that the operator names in the settings.

use std::fmt;

use super::props::WebhookUrl;

/// A target of S3 events.
#[derive(Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// Its id, which its ARN has.
    pub id: String,
    /// The address of the receiver.
    pub url: WebhookUrl,
    /// The value of the header `Authorization`; `None`: requests have none.
    pub authorization: Option<String>,
}

impl EventTarget {
    /// Its name in notices: its ARN without a region.
    #[must_use]
    pub fn name(&self) -> String {
        event_target_name(&self.id)
    }
}

/// The name of the target with this id.
#[must_use]
pub fn event_target_name(id: &str) -> String {
    format!("arn:minio:sqs::{id}:webhook")
}

impl fmt::Debug for EventTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        write!(f, "EventTarget({} at {})", self.id, self.url.as_str())
    }
}
