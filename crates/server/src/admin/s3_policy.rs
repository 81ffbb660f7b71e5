//! `s3 policy check`: the parts of stored policies that no request can meet.

use std::sync::Arc;

use larder_kv_admin::frame::AdminAnswer;
use larder_s3::{Error, Objects};
use larder_s3_rules::Bucket;

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn check(call: CommandCall<'_>) -> CommandResult {
    let buckets = buckets(call.objects(), call.args.first().copied()).await.map_err(|error| failed(&error))?;
    let lines: String = buckets.iter().flat_map(|bucket| findings(bucket)).collect();
    if lines.is_empty() { Ok(AdminAnswer::done("")) } else { Ok(AdminAnswer::negative(lines)) }
}

/// The bucket of this name, or all.
async fn buckets(objects: &Objects, name: Option<&str>) -> Result<Vec<Arc<Bucket>>, Error> {
    match name {
        Some(name) => Ok(vec![objects.buckets.find(name).await?]),
        None => objects.buckets.all().await,
    }
}

/// A line for each void part of the bucket's policy.
fn findings(bucket: &Bucket) -> Vec<String> {
    let Some(policy) = &bucket.policy else { return Vec::new() };
    let line = |(number, part)| {
        let part = shown(format!("{part}").as_bytes());
        format!("{}: statement {number}: {part}\n", bucket.name)
    };
    policy.void_parts(&bucket.name).map(line).collect()
}

fn failed(error: &Error) -> AdminAnswer {
    match error {
        Error::NoSuchBucket(name) => AdminAnswer::failed(format!("There is no S3 bucket {}", shown(name.as_bytes()))),
        error => AdminAnswer::failed(format!("Error checking S3 policies:\n{error}")),
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3_rules::BucketId;
    use larder_s3_rules::policy::BucketPolicy;

    use super::*;

    #[test]
    fn every_void_part_of_a_stored_policy_is_a_line() {
        let policy = r#"{"Statement":[
            {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::tea/*"},
            {"Effect":"Allow","NotPrincipal":{"AWS":"x"},"Action":["s3:ListBucket","s3:Get*"],"Resource":"*",
             "Condition":{"StringEquals":{"s3:prefix":"a","aws:Colour":"red"}}}]}"#;
        let policy = BucketPolicy::parse("tea", policy).unwrap();
        let bucket = Bucket::new("tea", BucketId([1; 16]), "owner", Timestamp(1));
        assert!(findings(&bucket).is_empty());
        let bucket = Bucket { policy: Some(Arc::new(policy)), ..bucket };
        assert_eq!(
            findings(&bucket),
            [
                "tea: statement 2: Allow with NotPrincipal is not allowed.\n",
                "tea: statement 2: No request can meet the condition key aws:colour.\n",
                "tea: statement 2: Conditions do not apply to combination of actions and resources in statement: \
                 s3:prefix and s3:Get*\n",
            ]
        );
    }
}
