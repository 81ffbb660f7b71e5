//! The buckets that `--s3-buckets` names: the start makes those that are missing.

use std::sync::Arc;

use larder_s3::acl::AclChoice;
use larder_s3::{Caller, Error, Objects};
use larder_s3_rules::policy::BucketPolicy;
use larder_s3_rules::{Bucket, S3Action, User};
use serde_json::json;

use crate::failure::ServerFailure;
use crate::settings::StartBucket;

/// Makes the buckets that are missing, as the S3 admin. A bucket of the same name stays as it is, whoever owns it; a public one
/// gets its policy if it has none.
///
/// # Errors
/// A line that names the bucket that could not be made.
pub(crate) async fn make_buckets(
    buckets: &[StartBucket],
    admin: Option<&Arc<User>>,
    objects: &Objects,
) -> Result<(), ServerFailure> {
    for bucket in buckets {
        let failed =
            |reason: String| ServerFailure(format!("cannot start: the bucket {} of s3-buckets: {reason}", bucket.name));
        let admin = admin.ok_or_else(|| failed("there is no S3 listener, or no S3 admin".to_owned()))?;
        make_bucket(bucket, admin, objects).await.map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

async fn make_bucket(bucket: &StartBucket, admin: &Arc<User>, objects: &Objects) -> Result<(), Error> {
    let name = &bucket.name;
    let caller = |action| Caller { user: Some(Arc::clone(admin)), action: Some(action), ..Caller::default() };
    match objects.buckets.find(name).await {
        Ok(_) => {}
        Err(Error::NoSuchBucket(_)) => {
            let created = objects.buckets.create(&caller(S3Action::CreateBucket), name, AclChoice::Private, None).await;
            match created {
                Ok(()) => tracing::info!(bucket = name, "bucket of s3-buckets made"),
                // Race: another gateway that starts with the same settings may have made it a moment ago.
                Err(Error::BucketExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(error) => return Err(error),
    }
    if !bucket.is_public {
        return Ok(());
    }
    let policy = Arc::new(read_policy(name)?);
    let change = |bucket: &mut Bucket| {
        bucket.policy.get_or_insert_with(|| Arc::clone(&policy));
        Ok(())
    };
    objects.buckets.configure(&caller(S3Action::PutBucketPolicy), name, change).await
}

/// The policy of a public bucket: everyone may list and read it.
fn read_policy(bucket: &str) -> Result<BucketPolicy, Error> {
    let bucket_arn = format!("arn:aws:s3:::{bucket}");
    let allow = |actions: &[&str], resource: &str| json!({"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": actions, "Resource": [resource]});
    let policy = json!({"Version": "2012-10-17", "Statement": [
        allow(&["s3:GetBucketLocation", "s3:ListBucket"], &bucket_arn),
        allow(&["s3:GetObject"], &format!("{bucket_arn}/*")),
    ]});
    BucketPolicy::parse(bucket, &policy.to_string()).map_err(|error| Error::MalformedPolicy(error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_a_public_bucket_is_public_and_has_no_void_part() {
        let policy = read_policy("teas").unwrap();
        assert!(policy.is_public() && policy.void_parts("teas").next().is_none());
    }
}
