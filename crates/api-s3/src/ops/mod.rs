//! The operations: each decodes what was asked for, calls the gateway, and encodes what it answered. No meaning is
//! here.
//!
//! ```text
//! service   list_buckets
//! bucket    bucket  list_objects  list_versions  list_uploads  delete_objects  post_object
//!           versioning  acl  policy  cors  lifecycle  tagging  public_access
//! object    put_object  copy_object  get_object (and head)  delete_object  attributes  acl  tagging
//! upload    create_upload  upload_part  copy_part  list_parts  complete  abort
//! shared    params  conditions  checksums  about  grants  copy_source  incoming  owner   what requests say
//!           describe  names  spelling  dates                                     how answers say it
//! ```

mod abort;
mod about;
mod acl;
mod attributes;
mod bucket;
mod checksums;
mod complete;
mod conditions;
mod copy_object;
mod copy_part;
mod copy_source;
mod cors;
mod create_upload;
mod dates;
mod delete_object;
mod delete_objects;
mod describe;
mod get_object;
mod grants;
mod incoming;
mod lifecycle;
mod list_buckets;
mod list_objects;
mod list_parts;
mod list_uploads;
mod list_versions;
mod names;
mod owner;
mod params;
mod policy;
mod post_object;
mod public_access;
mod put_object;
mod spelling;
mod tagging;
mod upload_part;
mod versioning;

use crate::admin;
use crate::call::Call;
use crate::errors::Fault;
use crate::operations::{Op, Scope};
use crate::reply::Reply;

/// Carries an operation out. Who asks is known; whether they may, the gateway says.
///
/// # Errors
/// Every refusal of the protocol.
pub(crate) async fn run(call: &Call) -> Result<Reply, Fault> {
    if !matches!(call.operation.scope, Scope::Admin(_)) && call.operation.op != Op::CreateBucket {
        owner::expected(call, owner::OF_BUCKET, &call.bucket).await?;
    }
    match call.operation.op {
        Op::ListBuckets => list_buckets::run(call).await,

        Op::CreateBucket => bucket::create(call).await,
        Op::HeadBucket => bucket::head(call).await,
        Op::DeleteBucket => bucket::delete(call).await,
        Op::GetBucketLocation => bucket::location(call).await,
        Op::ListObjects => list_objects::run_v1(call).await,
        Op::ListObjectsV2 => list_objects::run_v2(call).await,
        Op::ListObjectVersions => list_versions::run(call).await,
        Op::ListMultipartUploads => list_uploads::run(call).await,
        Op::DeleteObjects => delete_objects::run(call).await,
        Op::PostObject => post_object::run(call).await,

        Op::GetObject => get_object::get(call).await,
        Op::HeadObject => get_object::head(call).await,
        Op::PutObject => put_object::run(call).await,
        Op::CopyObject => copy_object::run(call).await,
        Op::DeleteObject => delete_object::run(call).await,
        Op::GetObjectAcl => acl::get_object(call).await,
        Op::PutObjectAcl => acl::put_object(call).await,
        Op::GetObjectTagging => tagging::get_object(call).await,
        Op::PutObjectTagging => tagging::put_object(call).await,
        Op::DeleteObjectTagging => tagging::delete_object(call).await,
        Op::GetObjectAttributes => attributes::run(call).await,

        Op::CreateMultipartUpload => create_upload::run(call).await,
        Op::UploadPart => upload_part::run(call).await,
        Op::UploadPartCopy => copy_part::run(call).await,
        Op::ListParts => list_parts::run(call).await,
        Op::CompleteMultipartUpload => complete::run(call).await,
        Op::AbortMultipartUpload => abort::run(call).await,

        _ => configuration(call).await,
    }
}

/// The operations on a bucket's configuration, and behind them those of the admin API.
async fn configuration(call: &Call) -> Result<Reply, Fault> {
    match call.operation.op {
        Op::GetBucketVersioning => versioning::get(call).await,
        Op::PutBucketVersioning => versioning::put(call).await,
        Op::GetBucketAcl => acl::get_bucket(call).await,
        Op::PutBucketAcl => acl::put_bucket(call).await,
        Op::GetBucketPolicy => policy::get(call).await,
        Op::PutBucketPolicy => policy::put(call).await,
        Op::DeleteBucketPolicy => policy::delete(call).await,
        Op::GetBucketPolicyStatus => policy::status(call).await,
        Op::GetBucketCors => cors::get(call).await,
        Op::PutBucketCors => cors::put(call).await,
        Op::DeleteBucketCors => cors::delete(call).await,
        Op::GetBucketLifecycleConfiguration => lifecycle::get(call).await,
        Op::PutBucketLifecycleConfiguration => lifecycle::put(call).await,
        Op::DeleteBucketLifecycle => lifecycle::delete(call).await,
        Op::GetBucketTagging => tagging::get_bucket(call).await,
        Op::PutBucketTagging => tagging::put_bucket(call).await,
        Op::DeleteBucketTagging => tagging::delete_bucket(call).await,
        Op::GetPublicAccessBlock => public_access::get(call).await,
        Op::PutPublicAccessBlock => public_access::put(call).await,
        Op::DeletePublicAccessBlock => public_access::delete(call).await,
        _ => admin::run(call).await,
    }
}
