//! `?acl`: the ACLs of buckets and objects.

use hyper::StatusCode;
use larder_s3::acl::{AclChoice, ShownAcl};

use super::listing_document::{self, DisplayNames};
use super::{grants, object_headers, upload_body};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};

pub(super) async fn get_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let shown = call.objects.buckets.acl(&call.caller, &call.bucket).await?;
    respond(call, &shown).await
}

pub(super) async fn get_object(call: &S3Call) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let shown = call.objects.object_acl(&call.caller, &call.bucket, &call.key, &version).await?;
    let mut response = respond(call, &shown).await?;
    object_headers::write_version(&mut response, call.query.non_empty("versionId"));
    Ok(response)
}

pub(super) async fn put_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let (owner, choice) = choice(call).await?;
    call.objects.buckets.put_acl(&call.caller, &call.bucket, owner.as_deref(), choice).await?;
    Ok(response::empty(StatusCode::OK))
}

pub(super) async fn put_object(call: &S3Call) -> Result<S3Response, S3Error> {
    let (owner, choice) = choice(call).await?;
    let version = listing_document::version(&call.query);
    call.objects.put_object_acl(&call.caller, &call.bucket, &call.key, &version, owner.as_deref(), choice).await?;
    Ok(response::empty(StatusCode::OK))
}

async fn respond(call: &S3Call, shown: &ShownAcl) -> Result<S3Response, S3Error> {
    let names = DisplayNames::load(&call.objects, grants::ids(shown).collect()).await;
    Ok(response::document(grants::write(shown, &names.0).finish()))
}

/// The requested ACL: of the headers or of the document.
async fn choice(call: &S3Call) -> Result<(Option<String>, AclChoice), S3Error> {
    let document = upload_body::document(call).await?;
    if grants::in_headers(&call.headers) {
        if !document.is_empty() {
            return Err(S3Error::from(Code::UnexpectedContent));
        }
        return Ok((None, grants::acl_from_headers(&call.headers)?));
    }
    let read = grants::read(&document)?;
    Ok((read.owner, AclChoice::Grants(read.grants)))
}
