//! The limits of an access key as a policy of its own.

use serde_json::{Value as Json, json};

use super::super::user::KeyLimits;
use super::{IdentityPolicy, PolicyError};

/// Actions that read.
const READS: &[&str] = &["s3:Get*", "s3:List*"];
/// Actions on a bucket that a key with prefixes may carry out: the first three only within its prefixes.
const OF_PREFIXES: &[&str] =
    &["s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads", "s3:GetBucketLocation", LIST_BUCKETS];
const LIST_BUCKETS: &str = "s3:ListAllMyBuckets";

impl IdentityPolicy {
    /// The policy of these limits.
    ///
    /// # Errors
    /// [`PolicyError`] when it is longer than a policy may be.
    pub fn from_limits(limits: &KeyLimits) -> Result<Self, PolicyError> {
        let document = json!({"Version": "2012-10-17", "Statement": limit_statements(limits)});
        let too_long =
            |_| PolicyError { message: "The limits of a key have too many buckets and prefixes.".to_owned() };
        Self::parse(&document.to_string()).map_err(too_long)
    }
}

/// All is allowed, and each limit denies what is beyond it.
fn limit_statements(limits: &KeyLimits) -> Vec<Json> {
    let mut statements = vec![json!({"Effect": "Allow", "Action": "*", "Resource": "*"})];
    if limits.read_only {
        statements.push(json!({"Effect": "Deny", "NotAction": READS, "Resource": "*"}));
    }
    if !limits.buckets.is_empty() {
        let resources: Vec<_> = limits.buckets.iter().flat_map(|bucket| [arn(bucket), arn(bucket) + "/*"]).collect();
        statements.push(json!({"Effect": "Deny", "Action": "*", "NotResource": resources}));
    }
    if !limits.prefixes.is_empty() {
        let prefixes: Vec<_> = limits.prefixes.iter().map(|prefix| escaped(prefix) + "*").collect();
        let keys = |bucket: &String| prefixes.iter().map(|prefix| arn(bucket) + "/" + prefix).collect::<Vec<_>>();
        let keys: Vec<_> = limits.buckets.iter().flat_map(keys).collect();
        statements.push(json!({"Effect": "Deny", "NotAction": OF_PREFIXES, "NotResource": keys}));
        statements.push(json!({
            "Effect": "Deny", "Action": OF_PREFIXES[..3], "Resource": "*",
            "Condition": {"StringNotLike": {"s3:prefix": prefixes}},
        }));
    }
    statements
}

fn arn(bucket: &str) -> String {
    format!("arn:aws:s3:::{}", escaped(bucket))
}

/// The text in a pattern that matches it alone.
fn escaped(text: &str) -> String {
    let piece = |character: char| match character {
        '*' | '?' | '$' => format!("${{{character}}}"),
        character => character.to_string(),
    };
    text.chars().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::access_request::{AccessContext, AccessRequest};
    use super::super::super::action::{ActionScope, S3Action};
    use super::*;

    /// The rules of the limits, one after the other.
    fn is_within(limits: &KeyLimits, bucket: &str, action: S3Action, key: Option<&str>, prefix: Option<&str>) -> bool {
        let name = action.name();
        let is_read = name.starts_with("s3:Get") || name.starts_with("s3:List");
        let is_prefixed = |text: &str| limits.prefixes.iter().any(|prefix| text.starts_with(prefix.as_str()));
        let in_prefixes = match (key, action) {
            (Some(key), _) => is_prefixed(key),
            (None, S3Action::ListAllMyBuckets | S3Action::GetBucketLocation) => true,
            (None, S3Action::ListBucket | S3Action::ListBucketVersions | S3Action::ListBucketMultipartUploads) => {
                prefix.is_some_and(is_prefixed)
            }
            _ => false,
        };
        (is_read || !limits.read_only)
            && (limits.buckets.is_empty() || limits.buckets.iter().any(|permitted_bucket| permitted_bucket == bucket))
            && (limits.prefixes.is_empty() || in_prefixes)
    }

    fn limits() -> impl Strategy<Value = KeyLimits> {
        let buckets = prop::sample::subsequence(vec!["tea".to_owned(), "tea2".to_owned(), "te-a".to_owned()], 0..=2);
        let prefixes = prop::collection::vec("[a*?$/]{1,3}", 0..3);
        (any::<bool>(), buckets, prefixes).prop_map(|(read_only, buckets, prefixes)| {
            let prefixes = if buckets.is_empty() { Vec::new() } else { prefixes };
            KeyLimits { read_only, buckets, prefixes, expires: None }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_key_permits_what_is_within_all_its_limits(
            limits in limits(),
            bucket in prop::sample::select(vec!["tea", "tea2", "milk"]),
            key in "[a*?$/]{1,4}",
            prefix in prop::option::of("[a*?$/]{0,4}"),
        ) {
            let policy = IdentityPolicy::from_limits(&limits).unwrap();
            let keys = prefix.iter().map(|prefix| ("s3:prefix", prefix.clone())).collect();
            let context = AccessContext { keys, ..AccessContext::default() };
            for action in S3Action::ALL {
                let key = (action.scope() == ActionScope::Object).then_some(key.as_str());
                let request = AccessRequest { action: *action, key: key.map(str::as_bytes), version: None };
                let expected = is_within(&limits, bucket, *action, key, prefix.as_deref());
                prop_assert_eq!(policy.permits(bucket, None, &request, &context), expected, "{:?} {:?}", action, key);
            }
        }
    }

    #[test]
    fn limits_longer_than_a_policy_are_refused() {
        let prefixes = (0..20).map(|number| format!("{number}{}", "a".repeat(1000))).collect();
        let limits = KeyLimits { buckets: vec!["tea".into()], prefixes, ..KeyLimits::default() };
        assert!(IdentityPolicy::from_limits(&limits).is_err());
    }
}
