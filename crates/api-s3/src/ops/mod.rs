//! The operations. Each decodes its request, calls the gateway and encodes the result; the rules are in the gateway.
//!
//! ```text
//! service   list_buckets  assume_role (of STS)
//! bucket    bucket  list_objects  list_versions  list_uploads  delete_objects  post_object
//!           acl  policy  cors  lifecycle  tagging  public_access  ownership  bucket_encryption  website  object_lock
//!           notification
//! object    put_object  copy_object  get_object (and head)  delete_objects  attributes  acl  tagging  object_lock
//! upload    create_upload (and abort)  upload_part (and copies)  list_parts  complete
//! requests  conditions  checksums  encryption  object_metadata  lock_headers  grants  copy_source  upload_body
//! moves     source_store (documents and headers of another store)
//! responses object_headers  listing_document (and the parameters of listings)
//! ```

mod acl;
mod assume_role;
mod attributes;
mod bucket;
mod bucket_encryption;
mod checksums;
mod complete;
pub(crate) mod conditions;
mod copy_object;
mod copy_source;
mod cors;
mod create_upload;
mod delete_objects;
mod encryption;
pub(crate) mod get_object;
mod grants;
mod lifecycle;
mod list_buckets;
mod list_objects;
mod list_parts;
mod list_uploads;
mod list_versions;
mod listing_document;
mod lock_headers;
mod notification;
mod object_headers;
mod object_lock;
mod object_metadata;
mod ownership;
mod policy;
mod post_object;
mod public_access;
pub(crate) mod put_object;
pub(crate) mod source_store;
mod tagging;
pub(crate) mod upload_body;
mod upload_part;
mod website;

use crate::admin;
use crate::call::{EXPECTED_OWNER, S3Call};
use crate::errors::S3Error;
use crate::operations::{OperationScope, S3Operation};
use crate::response::S3Response;

pub(crate) use assume_role::token_error;
pub(crate) use get_object::at_once;

/// Runs an operation. The caller is authenticated and has the operation's action; the gateway checks its permissions.
///
/// # Errors
/// Every S3 error.
pub(crate) async fn run(op: S3Operation, call: &S3Call) -> Result<S3Response, S3Error> {
    // The expected owner is checked before the operation changes anything.
    if !matches!(call.operation.scope, OperationScope::Admin(_)) && op != S3Operation::CreateBucket {
        call.check_expected_owner(EXPECTED_OWNER, &call.bucket).await?;
    }
    // No wildcard: an operation of the table does not compile until it has a handler here.
    match op {
        S3Operation::ListBuckets => list_buckets::run(call).await,
        S3Operation::AssumeRole => assume_role::run(call).await,

        S3Operation::CreateBucket => bucket::create(call).await,
        S3Operation::HeadBucket => bucket::head(call).await,
        S3Operation::DeleteBucket => bucket::delete(call).await,
        S3Operation::ListObjects => list_objects::run_v1(call).await,
        S3Operation::ListObjectsV2 => list_objects::run_v2(call).await,
        S3Operation::ListObjectVersions => list_versions::run(call).await,
        S3Operation::ListMultipartUploads => list_uploads::run(call).await,
        S3Operation::DeleteObjects => delete_objects::run(call).await,
        S3Operation::PostObject => post_object::run(call).await,

        S3Operation::GetBucketLocation => bucket::location(call).await,
        S3Operation::GetBucketVersioning => bucket::versioning(call).await,
        S3Operation::PutBucketVersioning => bucket::put_versioning(call).await,
        S3Operation::GetBucketAcl => acl::get_bucket(call).await,
        S3Operation::PutBucketAcl => acl::put_bucket(call).await,
        S3Operation::GetBucketPolicy => policy::get(call).await,
        S3Operation::PutBucketPolicy => policy::put(call).await,
        S3Operation::DeleteBucketPolicy => policy::delete(call).await,
        S3Operation::GetBucketPolicyStatus => policy::status(call).await,
        S3Operation::GetBucketCors => cors::get(call).await,
        S3Operation::PutBucketCors => cors::put(call).await,
        S3Operation::DeleteBucketCors => cors::delete(call).await,
        S3Operation::GetBucketLifecycleConfiguration => lifecycle::get(call).await,
        S3Operation::PutBucketLifecycleConfiguration => lifecycle::put(call).await,
        S3Operation::DeleteBucketLifecycle => lifecycle::delete(call).await,
        S3Operation::GetBucketTagging => tagging::get_bucket(call).await,
        S3Operation::PutBucketTagging => tagging::put_bucket(call).await,
        S3Operation::DeleteBucketTagging => tagging::delete_bucket(call).await,
        S3Operation::GetBucketEncryption => bucket_encryption::get(call).await,
        S3Operation::PutBucketEncryption => bucket_encryption::put(call).await,
        S3Operation::DeleteBucketEncryption => bucket_encryption::delete(call).await,
        S3Operation::GetPublicAccessBlock => public_access::get(call).await,
        S3Operation::PutPublicAccessBlock => public_access::put(call).await,
        S3Operation::DeletePublicAccessBlock => public_access::delete(call).await,
        S3Operation::GetBucketOwnershipControls => ownership::get(call).await,
        S3Operation::PutBucketOwnershipControls => ownership::put(call).await,
        S3Operation::DeleteBucketOwnershipControls => ownership::delete(call).await,
        S3Operation::GetBucketWebsite => website::get(call).await,
        S3Operation::PutBucketWebsite => website::put(call).await,
        S3Operation::DeleteBucketWebsite => website::delete(call).await,
        S3Operation::GetObjectLockConfiguration => object_lock::get_bucket(call).await,
        S3Operation::PutObjectLockConfiguration => object_lock::put_bucket(call).await,
        S3Operation::GetBucketNotificationConfiguration => notification::get(call).await,
        S3Operation::PutBucketNotificationConfiguration => notification::put(call).await,

        S3Operation::GetObject => get_object::get(call).await,
        S3Operation::HeadObject => get_object::head(call).await,
        S3Operation::PutObject => put_object::run(call).await,
        S3Operation::CopyObject => copy_object::run(call).await,
        S3Operation::DeleteObject => delete_objects::run_single(call).await,
        S3Operation::GetObjectAcl => acl::get_object(call).await,
        S3Operation::PutObjectAcl => acl::put_object(call).await,
        S3Operation::GetObjectTagging => tagging::get_object(call).await,
        S3Operation::PutObjectTagging => tagging::put_object(call).await,
        S3Operation::DeleteObjectTagging => tagging::delete_object(call).await,
        S3Operation::GetObjectAttributes => attributes::run(call).await,
        S3Operation::GetObjectRetention => object_lock::get_retention(call).await,
        S3Operation::PutObjectRetention => object_lock::put_retention(call).await,
        S3Operation::GetObjectLegalHold => object_lock::get_legal_hold(call).await,
        S3Operation::PutObjectLegalHold => object_lock::put_legal_hold(call).await,

        S3Operation::CreateMultipartUpload => create_upload::run(call).await,
        S3Operation::UploadPart => upload_part::run(call).await,
        S3Operation::UploadPartCopy => upload_part::copy(call).await,
        S3Operation::ListParts => list_parts::run(call).await,
        S3Operation::CompleteMultipartUpload => complete::run(call).await,
        S3Operation::AbortMultipartUpload => create_upload::abort(call).await,

        S3Operation::AdminPing | S3Operation::AdminHeadPing => Ok(admin::user::ping(call)),
        S3Operation::AdminStats => admin::user::stats(call),
        S3Operation::AdminInfo => admin::user::info(call),
        S3Operation::AdminCreateUser => admin::user::create(call).await,
        S3Operation::AdminReadUser | S3Operation::AdminHeadUser => admin::user::read(call).await,
        S3Operation::AdminUpdateUser => admin::user::update(call).await,
        S3Operation::AdminDeleteUser => admin::user::delete(call).await,
        S3Operation::AdminListUsers => admin::users::list(call).await,
        S3Operation::AdminUsage => admin::usage::report(call).await,
    }
}
