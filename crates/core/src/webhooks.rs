//! The port to the receivers of webhooks.

use async_trait::async_trait;
use bytes::Bytes;

use crate::rules::props::WebhookUrl;

/// Sends notices over HTTP.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Posts a JSON body to this address and to no other: a redirection is a failure. The caller gives it up after its time.
    ///
    /// # Errors
    /// One line for the log: no connection, no answer, or a status other than 2xx.
    async fn post(&self, url: &WebhookUrl, id: &str, body: Bytes) -> Result<(), String>;
}
