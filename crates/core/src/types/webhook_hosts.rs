//! Hosts of webhooks, checked when the property is set: a client must not make the server call what it cannot reach itself.

use serde_json::{Map, Value};

use super::Types;
use crate::Result;
use crate::rules::props::{InvalidProp, InvalidReason, PropsError, webhooks_in};

/// The property with the webhooks.
const PROP: &str = "postcommit";

impl Types {
    /// Checks the hosts of the webhooks in properties that a client sets.
    ///
    /// # Errors
    /// [`crate::Error::Refused`]: the setting does not name the host.
    pub(super) fn check_webhooks(&self, props: &Map<String, Value>) -> Result<()> {
        let allowed = &self.core.config.webhook_hosts;
        let webhooks = props.get(PROP).map(webhooks_in).unwrap_or_default();
        match webhooks.iter().find(|url| !allowed.contains(url.host())) {
            None => Ok(()),
            Some(url) => {
                let reason = InvalidReason::host_not_allowed(url.host().clone());
                Err(PropsError::Props(vec![InvalidProp { prop: PROP.into(), reason }]).into())
            }
        }
    }
}
