//! The parts of a statement that no request can meet.

use std::collections::BTreeSet;
use std::fmt;

use super::super::action::{ActionScope, S3Action};
use super::super::condition_keys::key_carriers;
use super::condition::PolicyCondition;
use super::pattern::Pattern;
use super::{PatternSet, PolicyStatement, names_action};

/// A part of a statement that no request can meet. Its text is the error for the client, in AWS's words where AWS has some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoidPart {
    /// An allow with `NotPrincipal`: it would let anonymous callers in, and never applies.
    AllowNotPrincipal,
    /// An action that there is none of.
    Action(String),
    /// A condition key, or the one of a variable, that requests do not have.
    ConditionKey(String),
    /// An action that is on none of the statement's resources.
    Resource {
        /// The action.
        action: String,
    },
    /// A condition key that requests for an action do not have.
    Condition {
        /// The condition key, in lower case.
        key: String,
        /// The action.
        action: String,
    },
}

impl fmt::Display for VoidPart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllowNotPrincipal => write!(out, "Allow with NotPrincipal is not allowed."),
            Self::Action(action) => write!(out, "No request can meet the action {action}."),
            Self::ConditionKey(key) => write!(out, "No request can meet the condition key {key}."),
            Self::Resource { action } => {
                write!(out, "Action does not apply to any resource(s) in statement: {action}")
            }
            Self::Condition { key, action } => write!(
                out,
                "Conditions do not apply to combination of actions and resources in statement: {key} and {action}"
            ),
        }
    }
}

/// Actions that a statement names together: those of one pattern, or all but those of `NotAction`.
struct ActionGroup {
    /// Its text for the author.
    text: String,
    actions: Vec<S3Action>,
}

impl PolicyStatement {
    /// The parts that no request can meet, each once; `bucket`: that of the policy, `None` for one of callers.
    pub(super) fn void_parts(&self, bucket: Option<&str>) -> Vec<VoidPart> {
        let mut parts = Vec::new();
        if self.has_allow_with_not_principal() {
            parts.push(VoidPart::AllowNotPrincipal);
        }
        let unknown = self.actions.patterns.iter().filter(|pattern| known_actions(pattern).is_empty());
        parts.extend(unknown.map(|pattern| VoidPart::Action(pattern.to_string())));
        let (known, unknown): (BTreeSet<_>, BTreeSet<_>) =
            self.condition_keys().partition(|key| key_carriers(key).is_some());
        parts.extend(unknown.into_iter().map(|key| VoidPart::ConditionKey(key.to_owned())));
        for ActionGroup { text: action, mut actions } in self.action_groups() {
            actions.retain(|action| self.resources.has_scope(action.scope(), bucket));
            if actions.is_empty() {
                parts.push(VoidPart::Resource { action });
                continue;
            }
            let is_carried = |key: &str| {
                key_carriers(key).is_some_and(|carriers| actions.iter().any(|action| carriers.include(*action)))
            };
            let unfit = known.iter().filter(|key| !is_carried(key));
            parts.extend(unfit.map(|key| VoidPart::Condition { key: (*key).to_owned(), action: action.clone() }));
        }
        parts
    }

    /// The condition keys of its conditions and variables, in lower case.
    fn condition_keys(&self) -> impl Iterator<Item = &str> {
        let variables = self.resources.patterns.iter().flat_map(Pattern::variables);
        let variables = variables.chain(self.conditions.iter().flat_map(PolicyCondition::variables));
        self.conditions.iter().map(PolicyCondition::key).chain(variables)
    }

    /// The actions that a condition has to fit, in groups: a wildcard may name some that do not carry the key.
    fn action_groups(&self) -> Vec<ActionGroup> {
        let PatternSet { patterns, negated } = &self.actions;
        let groups = if *negated {
            let actions = S3Action::ALL.iter().copied().filter(|action| self.has_action(*action)).collect();
            vec![ActionGroup { text: "NotAction".to_owned(), actions }]
        } else {
            let group = |pattern: &Pattern| ActionGroup { text: pattern.to_string(), actions: known_actions(pattern) };
            patterns.iter().map(group).collect()
        };
        groups.into_iter().filter(|group| !group.actions.is_empty()).collect()
    }
}

impl PatternSet {
    /// Whether it can match a resource of this kind in `bucket`, or in any.
    fn has_scope(&self, scope: ActionScope, bucket: Option<&str>) -> bool {
        let can_match = |pattern: &Pattern| match (scope, bucket) {
            (ActionScope::Object, _) => pattern.can_match_path(),
            (ActionScope::Bucket, Some(bucket)) => pattern.can_match(bucket),
            (ActionScope::Account, Some(_)) => false,
            (ActionScope::Account | ActionScope::Bucket, None) => pattern.can_match_name(),
        };
        // The resources beside those of `NotResource` may be of both kinds.
        self.negated || self.patterns.iter().any(can_match)
    }
}

/// The actions of a pattern.
fn known_actions(pattern: &Pattern) -> Vec<S3Action> {
    S3Action::ALL.iter().copied().filter(|action| names_action(pattern, *action)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::super::BucketPolicy;

    /// The texts of the void parts of a statement that allows all on the bucket `tea`, with these fields.
    fn void_parts(with: &Json) -> Vec<String> {
        let mut all = json!({"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*"});
        for (name, value) in with.as_object().unwrap() {
            all[name] = value.clone();
        }
        all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let text = json!({"Version": "2012-10-17", "Statement": all}).to_string();
        let policy = BucketPolicy::parse("tea", &text).unwrap();
        policy.void_parts("tea").map(|(_, part)| part.to_string()).collect()
    }

    #[test]
    fn a_part_that_no_request_meets_is_named() {
        let equals = |key: &str| json!({"StringEquals": {key: "x"}});
        for (with, part) in [
            (json!({"Action": ["s3:GetObject", "s3:GetObjct"]}), "No request can meet the action s3:GetObjct."),
            (json!({"Action": "s3:Frobnicate*"}), "No request can meet the action s3:Frobnicate*."),
            (
                json!({"Condition": equals("aws:PrincipalArn")}),
                "No request can meet the condition key aws:principalarn.",
            ),
            (
                json!({"Condition": {"StringLike": {"s3:prefix": "${aws:PrincipalTag/team}/*"}}}),
                "No request can meet the condition key aws:principaltag/team.",
            ),
            (
                json!({"Resource": "arn:aws:s3:::tea/${aws:usernam}/*"}),
                "No request can meet the condition key aws:usernam.",
            ),
            (json!({"Principal": null, "NotPrincipal": {"AWS": "id"}}), "Allow with NotPrincipal is not allowed."),
        ] {
            assert_eq!(void_parts(&with), [part], "{with}");
        }
    }

    #[test]
    fn a_condition_that_does_not_fit_an_action_is_named() {
        const UNFIT: &str = "Conditions do not apply to combination of actions and resources in statement: ";
        let listing = json!({"StringLike": {"s3:prefix": "a/*"}});
        for (with, part) in [
            (json!({"Action": "s3:GetObject", "Condition": listing}), "s3:prefix and s3:GetObject"),
            (json!({"Action": ["s3:ListBucket", "s3:Get*"], "Condition": listing}), "s3:prefix and s3:Get*"),
            (json!({"Resource": "arn:aws:s3:::tea/*", "Condition": listing}), "s3:prefix and s3:*"),
            (json!({"Action": null, "NotAction": "s3:List*", "Condition": listing}), "s3:prefix and NotAction"),
            (
                json!({"Action": "s3:DeleteObject", "Condition": {"StringEquals": {"s3:ExistingObjectTag/a": "b"}}}),
                "s3:existingobjecttag/a and s3:DeleteObject",
            ),
            (
                json!({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::tea/${s3:prefix}*"}),
                "s3:prefix and s3:GetObject",
            ),
        ] {
            assert_eq!(void_parts(&with), [format!("{UNFIT}{part}")], "{with}");
        }
        const NO_RESOURCE: &str = "Action does not apply to any resource(s) in statement: ";
        for (action, resource) in [("s3:ListBucket", "arn:aws:s3:::tea/*"), ("s3:GetObject*", "arn:aws:s3:::tea")] {
            let with = json!({"Action": action, "Resource": resource});
            assert_eq!(void_parts(&with), [format!("{NO_RESOURCE}{action}")], "{with}");
        }
    }

    #[test]
    fn policies_that_fit_have_no_void_part() {
        for with in [
            json!({}),
            json!({"Action": ["*", "S3:getobject", "s3:ListObjectVersions", "s3:Put*Tagging"]}),
            json!({"Condition": {"StringEquals": {
                "S3:ExistingObjectTag/any": "x", "aws:REFERER": "y", "s3:x-amz-acl": "z"}}}),
            json!({"Condition": {"Null": {"s3:x-amz-server-side-encryption": "true"}}}),
            json!({"Resource": "arn:aws:s3:::tea/${aws:username}/${*}"}),
            json!({"Action": "s3:ListBucket*", "Resource": "arn:aws:s3:::te?",
                "Condition": {"NumericLessThan": {"s3:max-keys": 10}}}),
            json!({"Action": ["s3:PutObject", "s3:PutObjectAcl"], "Resource": "arn:aws:s3:::tea*",
                "Condition": {"StringEquals": {"s3:x-amz-acl": "bucket-owner-full-control"}}}),
            json!({"Action": ["s3:PutObject", "s3:PutObjectTagging"],
                "Condition": {"ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": "team"}}}),
            json!({"Resource": null, "NotResource": "arn:aws:s3:::tea/a", "Action": ["s3:GetObject", "s3:ListBucket"]}),
            json!({"Action": null, "NotAction": "*"}),
        ] {
            assert_eq!(void_parts(&with), [""; 0], "{with}");
        }
    }
}
