//! The rights that a MapReduce job needs, in every protocol.

use larder_core::rules::security::{AccessRules, AccessScope, KvPermission};
use larder_core::security::{PermissionDenied, check_permission};
use larder_mapreduce::rules::Job;
use larder_mapreduce::rules::inputs::JobInputs;
use larder_rows::address::BucketAddress;

/// Checks that a user may run a job: each bucket that its inputs name needs a permission, and a whole bucket or an index one more.
///
/// # Errors
/// The first permission that the user lacks.
pub(crate) fn check_job(rules: &AccessRules, user: &str, job: &Job) -> Result<(), PermissionDenied> {
    let check = |permission, bucket: &BucketAddress| {
        check_permission(rules, user, permission, AccessScope::Bucket(bucket))?;
        check_permission(rules, user, KvPermission::MapReduce, AccessScope::Bucket(bucket))
    };
    match &job.inputs {
        JobInputs::Bucket(bucket) | JobInputs::Filtered(bucket, _) => check(KvPermission::ListKeys, bucket),
        JobInputs::Index(index) => check(KvPermission::Index, &index.bucket),
        // Attack: without inputs a reduce still runs once, and the phases after it read the keys that it returns.
        JobInputs::Keys(keys) if keys.is_empty() => {
            check_permission(rules, user, KvPermission::MapReduce, AccessScope::Any)
        }
        JobInputs::Keys(keys) => keys.iter().try_for_each(|key| {
            let scope = AccessScope::Bucket(&key.address.bucket);
            check_permission(rules, user, KvPermission::MapReduce, scope)
        }),
    }
}
