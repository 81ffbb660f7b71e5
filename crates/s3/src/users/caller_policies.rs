//! The policies attached to a user, read and parsed when the user is found by a key.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_rows::Timestamp;

use super::Users;
use super::transaction::{POLICY, decode_json};
use crate::Result;
use crate::rules::User;
use crate::rules::policy::IdentityPolicy;
use crate::rules::policy::canned::canned_document;

impl Users {
    /// The policies attached to a user and its groups; `None` for a user with neither policies nor groups.
    ///
    /// Race: a policy or a group may have been removed after the user was read. What it denied must not become allowed, so all is
    /// denied until the user is read again [invariant 178].
    pub(super) async fn attached_policies(&self, user: &User) -> Result<Option<Vec<Arc<IdentityPolicy>>>> {
        if !user.has_attachments() {
            return Ok(None);
        }
        let mut names: BTreeSet<String> = user.policies.iter().cloned().collect();
        let mut policies = Vec::new();
        for name in &user.groups {
            match self.find_group(name).await? {
                Some(group) => names.extend(group.policies),
                None => policies.push(Arc::new(IdentityPolicy::deny_all())),
            }
        }
        for name in names {
            policies.push(self.parsed_policy(&name).await?);
        }
        Ok(Some(policies))
    }

    async fn parsed_policy(&self, name: &str) -> Result<Arc<IdentityPolicy>> {
        let parse = |document: &str| {
            let damaged = |error| larder_core::Error::Damaged(format!("policy {name}: {error}")).into();
            IdentityPolicy::parse(document).map_err(damaged)
        };
        if let Some(document) = canned_document(name) {
            return self.parsed.get_or_parse(name, Timestamp::ZERO, || parse(document));
        }
        match self.named_row(POLICY, name).await? {
            Some(row) => {
                self.parsed.get_or_parse(name, row.stamp, || parse(&decode_json::<String>(&row.value, "policy")?))
            }
            None => Ok(Arc::new(IdentityPolicy::deny_all())),
        }
    }
}
