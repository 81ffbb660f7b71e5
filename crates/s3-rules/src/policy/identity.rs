//! Policies of callers: those attached to users and groups, those of sessions, and the limits of access keys.
//!
//! Their language is that of the policies of buckets, without principals: each is about the requests of its caller, in all buckets.

use super::super::access_request::{AccessContext, AccessRequest};
use super::super::user::User;
use super::parse::{PolicySubject, parse_statements};
use super::principal::Principals;
use super::{PatternSet, PolicyDecision, PolicyError, PolicyStatement, VoidPart, decide, numbered_void_parts};

/// A policy of callers, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPolicy {
    statements: Vec<PolicyStatement>,
}

impl IdentityPolicy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`PolicyError`] for more than [`POLICY_BYTES_MAX`](larder_rows::limits::POLICY_BYTES_MAX) bytes, for text that is no JSON,
    /// for a statement with a principal, and for one about a service that there is not.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        Ok(Self { statements: parse_statements(PolicySubject::Caller, text)? })
    }

    /// Reads a policy that is new: its author means something by every part.
    ///
    /// # Errors
    /// As [`Self::parse`], and for a part that no request can meet.
    pub fn parse_new(text: &str) -> Result<Self, PolicyError> {
        let policy = Self::parse(text)?;
        let void = policy.void_parts().next();
        match void {
            Some((number, part)) => Err(PolicyError { message: format!("Statement {number}: {part}") }),
            None => Ok(policy),
        }
    }

    /// A policy that denies everything, in the place of one that is not there.
    #[must_use]
    pub fn deny_all() -> Self {
        // None of no patterns: all.
        let all = PatternSet { patterns: Vec::new(), negated: true };
        let (actions, resources) = (all.clone(), all);
        let principals = Principals::everybody();
        Self {
            statements: vec![PolicyStatement { allow: false, principals, actions, resources, conditions: Vec::new() }],
        }
    }

    /// The decision on `request` of `user` in `bucket`; an empty bucket for an action on none.
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

    /// Whether it permits `request` in `bucket`.
    #[must_use]
    pub fn permits(
        &self,
        bucket: &str,
        user: Option<&User>,
        request: &AccessRequest<'_>,
        context: &AccessContext,
    ) -> bool {
        self.evaluate(bucket, user, request, context) == PolicyDecision::Allow
    }

    /// The parts that no request can meet, by statement from 1 on.
    pub fn void_parts(&self) -> impl Iterator<Item = (usize, VoidPart)> {
        numbered_void_parts(&self.statements, None)
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::limits::POLICY_BYTES_MAX;
    use serde_json::{Value as Json, json};

    use super::super::super::action::S3Action;
    use super::*;

    fn parsed(with: &Json) -> Result<IdentityPolicy, PolicyError> {
        let mut statement = json!({"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::*"});
        for (name, value) in with.as_object().unwrap() {
            statement[name] = value.clone();
        }
        statement.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        IdentityPolicy::parse_new(&json!({"Version": "2012-10-17", "Statement": [statement]}).to_string())
    }

    #[test]
    fn what_a_policy_of_callers_cannot_mean_is_refused_by_name() {
        for (with, message) in [
            (json!({"Principal": "*"}), "Principal"),
            (json!({"NotPrincipal": {"AWS": "x"}}), "NotPrincipal"),
            (
                json!({"Action": "admin:ServerInfo"}),
                "The Action admin:ServerInfo cannot be in a policy of users, groups or sessions.",
            ),
            (json!({"Action": ["s3:GetObject", "kms:Decrypt"]}), "kms:Decrypt"),
            (json!({"Action": "s3:GetObjct"}), "Statement 1: No request can meet the action s3:GetObjct."),
            (json!({"Action": "sts:GetFederationToken"}), "sts:GetFederationToken"),
            (json!({"Resource": "arn:aws:sqs:::queue"}), "arn:aws:sqs:::queue"),
            (json!({"Resource": null}), "either Resource or NotResource"),
            (
                json!({"Action": "s3:ListBucket", "Resource": "arn:aws:s3:::tea/*"}),
                "Action does not apply to any resource(s) in statement: s3:ListBucket",
            ),
            (
                json!({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::tea"}),
                "Action does not apply to any resource(s) in statement: s3:GetObject",
            ),
            (json!({"Condition": {"Bool": {"aws:MultiFactorAuthPresent": "true"}}}), "aws:multifactorauthpresent"),
        ] {
            let error = parsed(&with).expect_err("no policy");
            assert!(error.message.contains(message), "{with}: {error}");
        }
        let long = json!({"Sid": "a".repeat(POLICY_BYTES_MAX)});
        assert!(parsed(&long).is_err());
    }

    #[test]
    fn actions_on_no_bucket_and_of_sessions_are_its_own() {
        for action in [S3Action::ListAllMyBuckets, S3Action::CreateBucket, S3Action::AssumeRole] {
            let policy = parsed(&json!({"Action": action.name()})).unwrap();
            let permits = |bucket| policy.permits(bucket, None, &action.on_bucket(), &AccessContext::default());
            assert!(permits("") && permits("tea"), "{action:?}");
            let everything = parsed(&json!({"Action": "*"})).unwrap();
            assert!(everything.permits("", None, &action.on_bucket(), &AccessContext::default()), "{action:?}");
        }
        let sessions = parsed(&json!({"Action": "sts:*"})).unwrap();
        assert_eq!(
            IdentityPolicy::deny_all().evaluate("", None, &S3Action::AssumeRole.on_bucket(), &AccessContext::default()),
            PolicyDecision::Deny
        );
        let is_permitted =
            |action: S3Action| sessions.permits("tea", None, &action.on_bucket(), &AccessContext::default());
        assert!(is_permitted(S3Action::AssumeRole) && !is_permitted(S3Action::ListBucket));
        // The name of a bucket in the resource is one condition on its creation.
        let named = parsed(&json!({"Action": "s3:CreateBucket", "Resource": "arn:aws:s3:::tea-*"})).unwrap();
        let creates =
            |bucket| named.permits(bucket, None, &S3Action::CreateBucket.on_bucket(), &AccessContext::default());
        assert!(creates("tea-1") && !creates("milk"));
    }
}
