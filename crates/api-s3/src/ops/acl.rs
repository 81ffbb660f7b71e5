//! `?acl`: who may, of buckets and of objects.

use hyper::StatusCode;
use larder_gateway::objects::acl::{AclChoice, ShownAcl};

use super::names::Names;
use super::{describe, grants, incoming, params};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

pub(super) async fn get_bucket(call: &Call) -> Result<Reply, Fault> {
    let shown = call.objects.bucket_acl(&call.caller, &call.bucket).await?;
    answer(call, &shown).await
}

pub(super) async fn get_object(call: &Call) -> Result<Reply, Fault> {
    let version = params::version(&call.query);
    let shown = call.objects.object_acl(&call.caller, &call.bucket, &call.key, &version).await?;
    let mut reply = answer(call, &shown).await?;
    describe::version(&mut reply, call.query.filled("versionId"));
    Ok(reply)
}

pub(super) async fn put_bucket(call: &Call) -> Result<Reply, Fault> {
    let (owner, choice) = choice(call).await?;
    call.objects.put_bucket_acl(&call.caller, &call.bucket, owner.as_deref(), choice).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(super) async fn put_object(call: &Call) -> Result<Reply, Fault> {
    let (owner, choice) = choice(call).await?;
    let version = params::version(&call.query);
    call.objects.put_object_acl(&call.caller, &call.bucket, &call.key, &version, owner.as_deref(), choice).await?;
    Ok(reply::empty(StatusCode::OK))
}

async fn answer(call: &Call, shown: &ShownAcl) -> Result<Reply, Fault> {
    let names = Names::of(&call.objects, grants::ids(shown).collect()).await;
    Ok(reply::document(grants::write(shown, &names.0).finish()))
}

/// What is asked for: the headers decide, and without any the document.
async fn choice(call: &Call) -> Result<(Option<String>, AclChoice), Fault> {
    let document = incoming::document(call).await?;
    if grants::in_headers(&call.headers) {
        return Ok((None, grants::of(&call.headers)?));
    }
    let read = grants::read(&document)?;
    Ok((read.owner, AclChoice::Grants(read.grants)))
}
