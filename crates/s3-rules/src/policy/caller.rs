//! The policies of one caller together.

use std::sync::Arc;

use super::super::access_request::{AccessContext, AccessRequest};
use super::super::user::User;
use super::{IdentityPolicy, PolicyDecision};

/// The policies of a caller, beside those of buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerPolicies {
    /// The policies attached to its user and to the user's groups. They take the place of the rights that follow from owning
    /// buckets and objects; `None`: the user has neither policies nor groups, and those rights.
    pub attached: Option<Vec<Arc<IdentityPolicy>>>,
    /// The limits of its key and the policy of its session: a request needs the permission of each one besides.
    pub narrowing: Vec<Arc<IdentityPolicy>>,
}

impl CallerPolicies {
    /// The number of its policies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.attached.as_ref().map_or(0, Vec::len) + self.narrowing.len()
    }

    /// Whether it has no policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The decision of the attached policies: a deny of one wins over the allows of all. `None` without any.
    #[must_use]
    pub fn attached_decision(
        &self,
        bucket: &str,
        user: Option<&User>,
        request: &AccessRequest<'_>,
        context: &AccessContext,
    ) -> Option<PolicyDecision> {
        let attached = self.attached.as_ref()?;
        let mut decision = PolicyDecision::Neutral;
        for policy in attached {
            match policy.evaluate(bucket, user, request, context) {
                PolicyDecision::Deny => return Some(PolicyDecision::Deny),
                PolicyDecision::Allow => decision = PolicyDecision::Allow,
                PolicyDecision::Neutral => {}
            }
        }
        Some(decision)
    }

    /// Whether each narrowing policy permits the request.
    #[must_use]
    pub fn permit(
        &self,
        bucket: &str,
        user: Option<&User>,
        request: &AccessRequest<'_>,
        context: &AccessContext,
    ) -> bool {
        self.narrowing.iter().all(|policy| policy.permits(bucket, user, request, context))
    }
}
