//! Random policies of users, groups, sessions and a bucket together: the decision of the product is that of the second evaluator.
//!
//! The policies and their requests follow from a number, which a failed test prints. `LARDER_TEST_SCALE=soak` tries 300,000.

use std::sync::Arc;

use larder_rows::Timestamp;
use larder_s3_rules::access::is_allowed;
use larder_s3_rules::policy::{BucketPolicy, CallerPolicies, IdentityPolicy};
use larder_s3_rules::{Bucket, BucketId, User};
use larder_testkit::case_seeds;
use serde_json::Value as Json;

use super::policies::{BUCKET, Dice, policy, request};
use larder_testkit::policy_evaluator::{self, Rights};

const REQUESTS_PER_CASE: usize = 4;

/// A policy of callers: that of a bucket without principals.
fn identity_policy(dice: &mut Dice) -> Json {
    let mut json = policy(dice);
    for statement in json["Statement"].as_array_mut().unwrap() {
        let statement = statement.as_object_mut().unwrap();
        statement.remove("Principal");
        statement.remove("NotPrincipal");
    }
    json
}

fn parsed(policies: &[Json]) -> Vec<Arc<IdentityPolicy>> {
    policies.iter().map(|json| Arc::new(IdentityPolicy::parse(&json.to_string()).expect("a policy"))).collect()
}

#[test]
fn random_identities_and_sessions_are_decided_as_the_published_rules_do() {
    let mut decided = [0_usize; 2];
    let (mut turned, mut total) = (0_usize, 0_usize);
    for number in case_seeds(2_000, 300_000) {
        let dice = &mut Dice(number);
        let identity: Option<Vec<Json>> =
            (dice.roll(5) > 0).then(|| (0..dice.roll(4)).map(|_| identity_policy(dice)).collect());
        let boundaries: Vec<Json> = (0..dice.roll(3)).map(|_| identity_policy(dice)).collect();
        let of_bucket = (dice.roll(2) == 0).then(|| policy(dice));
        let policies = CallerPolicies { attached: identity.as_deref().map(parsed), narrowing: parsed(&boundaries) };
        let owner = dice.pick(&["id-alice", "id-bob", "id-owner"]);
        let mut bucket = Bucket::new(BUCKET, BucketId([1; 16]), owner, Timestamp(1));
        bucket.policy =
            of_bucket.as_ref().map(|json| Arc::new(BucketPolicy::parse(BUCKET, &json.to_string()).expect("a policy")));
        for _ in 0..REQUESTS_PER_CASE {
            let mut request = request(dice);
            // An anonymous caller has no policies, and the object of another user its own owner.
            let Some(user) = request.user.take() else { continue };
            let user = User { admin: dice.roll(10) == 0, ..user };
            let is_owner = user.id == bucket.owner;
            if let Some(version) = &mut request.version {
                version.owner.clone_from(&bucket.owner);
            }
            request.user = Some(user.clone());
            let (asked, at) = (request.asked(), &request.context);
            let attached = policies.attached_decision(BUCKET, Some(&user), &asked, at);
            let allowed = is_allowed(&bucket, Some(&user), attached, &asked, at)
                && policies.permit(BUCKET, Some(&user), &asked, at);
            let rights = Rights {
                identity: identity.as_deref(),
                boundaries: &boundaries,
                bucket: of_bucket.as_ref(),
                is_owner,
                is_admin: user.admin,
            };
            let expected = policy_evaluator::is_allowed(&rights, &request.facts());
            assert_eq!(allowed, expected, "case {number}: {rights:#?}\n{:#?}", request.facts());
            decided[usize::from(allowed)] += 1;
            let alone = policy_evaluator::is_allowed(
                &Rights { identity: None, boundaries: &[], ..rights.clone() },
                &request.facts(),
            );
            turned += usize::from(alone != expected);
            total += 1;
        }
    }
    // Policies that decide nothing would agree on everything.
    assert!(decided.iter().all(|count| count * 10 > total) && turned * 10 > total, "{decided:?}, {turned} of {total}");
}
