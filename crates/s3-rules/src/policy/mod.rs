//! Policies: statements that allow or deny actions on resources to principals under conditions.
//!
//! ```text
//! parse       the JSON document into statements        pattern    * and ?, and ${variables}
//! principal   the callers of a statement               condition  tests of the properties of a request
//! identity    policies of callers: attached to users and groups, of sessions, and the limits of access keys (key_limits)
//! canned      the policies that every store has        caller     the policies of one caller together
//! void        parts that no request can meet           work       the steps that the policies of a request may take
//! ```
//! A deny wins over every allow, in any order of the statements.

mod caller;
pub mod canned;
mod condition;
mod context;
mod identity;
mod key_limits;
mod parse;
mod pattern;
mod principal;
mod void;
mod work;

#[cfg(test)]
mod tests;

use super::access_request::{AccessContext, AccessRequest};
use super::action::S3Action;
use super::user::User;
use condition::PolicyCondition;
use context::ConditionContext;
use pattern::Pattern;
use principal::Principals;

pub use caller::CallerPolicies;
pub use identity::IdentityPolicy;
pub use void::VoidPart;
pub use work::PolicyWork;

/// The policy of a bucket: its text and its parsed statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPolicy {
    /// The JSON document, byte for byte as the client sent it.
    pub text: String,
    statements: Vec<PolicyStatement>,
}

/// The decision of a policy on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDecision {
    /// A statement denies the request.
    Deny,
    /// A statement allows the request, and none denies it.
    Allow,
    /// No statement applies.
    Neutral,
}

/// One statement of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PolicyStatement {
    allow: bool,
    principals: Principals,
    actions: PatternSet,
    resources: PatternSet,
    conditions: Vec<PolicyCondition>,
}

/// The texts that match one of these patterns, or, when negated, none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PatternSet {
    patterns: Vec<Pattern>,
    negated: bool,
}

/// Actions with their names in policies of Riak CS.
const ALIASES: &[(S3Action, &str)] = &[(S3Action::ListBucketVersions, "s3:ListObjectVersions")];

impl BucketPolicy {
    /// Reads a policy for `bucket`.
    ///
    /// # Errors
    /// [`PolicyError`] for more than [`POLICY_BYTES_MAX`](larder_rows::limits::POLICY_BYTES_MAX) bytes, for text that is no JSON, and
    /// for a statement that is unknown or about another bucket: ignoring it would hide the mistake from the client.
    pub fn parse(bucket: &str, text: &str) -> Result<Self, PolicyError> {
        Ok(Self {
            text: text.to_owned(),
            statements: parse::parse_statements(parse::PolicySubject::Bucket(bucket), text)?,
        })
    }

    /// The decision on `request` of `user` (`None`: anonymous) in `bucket`.
    #[must_use]
    pub fn evaluate(
        &self,
        bucket: &str,
        user: Option<&User>,
        request: &AccessRequest<'_>,
        context: &AccessContext,
    ) -> PolicyDecision {
        decide(&self.statements, bucket, user, request, context)
    }

    /// The parts that no request can meet, by statement from 1 on. A put of such a policy is refused, since its author means
    /// something else; one that is stored keeps its meaning.
    pub fn void_parts(&self, bucket: &str) -> impl Iterator<Item = (usize, VoidPart)> {
        numbered_void_parts(&self.statements, Some(bucket))
    }

    /// Whether it allows anything to all callers, without a condition on the caller or the caller's address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allow
                && statement.principals.is_public()
                && !statement.conditions.iter().any(PolicyCondition::narrows_callers)
        })
    }
}

/// The parts of these statements that no request can meet, by statement from 1 on.
fn numbered_void_parts(
    statements: &[PolicyStatement],
    bucket: Option<&str>,
) -> impl Iterator<Item = (usize, VoidPart)> {
    let void_parts = move |statement: &PolicyStatement| statement.void_parts(bucket);
    (1..)
        .zip(statements)
        .flat_map(move |(number, statement)| void_parts(statement).into_iter().map(move |part| (number, part)))
}

/// The decision of these statements.
fn decide(
    statements: &[PolicyStatement],
    bucket: &str,
    user: Option<&User>,
    request: &AccessRequest<'_>,
    context: &AccessContext,
) -> PolicyDecision {
    let context = ConditionContext { user, request, context };
    let resource = match request.key {
        None => bucket.as_bytes().to_vec(),
        Some(key) => [bucket.as_bytes(), b"/", key].concat(),
    };
    let mut decision = PolicyDecision::Neutral;
    for statement in statements {
        // After the first allow only a deny can change the decision.
        let can_decide = decision == PolicyDecision::Neutral || !statement.allow;
        let applies = can_decide && statement.applies(&context, &resource);
        if context.context.work.is_spent() {
            // A deny may be among the rest.
            return PolicyDecision::Deny;
        }
        if applies {
            if !statement.allow {
                return PolicyDecision::Deny;
            }
            decision = PolicyDecision::Allow;
        }
    }
    decision
}

impl PolicyStatement {
    /// Whether it allows all principals but some. Such a statement would let in anonymous callers, which no author intends.
    fn has_allow_with_not_principal(&self) -> bool {
        self.allow && self.principals.is_negated()
    }

    fn applies(&self, context: &ConditionContext<'_>, resource: &[u8]) -> bool {
        !self.has_allow_with_not_principal()
            && self.has_action(context.request.action)
            && self.principals.include(context.user)
            && self.resources.has_match(|pattern| pattern.matches(resource, context))
            && self.conditions.iter().all(|condition| condition.holds(context))
    }

    fn has_action(&self, action: S3Action) -> bool {
        self.actions.has_match(|pattern| names_action(pattern, action))
    }
}

/// Whether the pattern matches a name of the action.
fn names_action(pattern: &Pattern, action: S3Action) -> bool {
    let aliases = ALIASES.iter().filter(|(name, _)| *name == action).map(|(_, alias)| *alias);
    std::iter::once(action.name()).chain(aliases).any(|name| pattern.matches_action(name))
}

impl PatternSet {
    fn has_match(&self, matches: impl Fn(&Pattern) -> bool) -> bool {
        self.patterns.iter().any(matches) != self.negated
    }
}

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    /// The reason, for the client.
    pub message: String,
}
