//! The ACLs of buckets and objects of an S3 store: which of their grants can be had here.
//!
//! Who owned a bucket or an object there, and is no user here, is its owner here, who needs no grant. A grant to another user
//! counts where a user here has the same canonical id, as after an import of a Riak CS's users.

use std::sync::Arc;

use bytes::Bytes;
use larder_api_s3::{AclDocument, source_acl};
use larder_s3::Error;
use larder_s3::acl::{AclChoice, GranteeRef};
use larder_s3::rules::{Acl, Grant, Grantee, Permission, S3Action, User};

use super::SourceVersion;
use super::bucket_move::{S3Side, caller};
use super::object_move::failure;
use crate::move_run::{KeyFailure, MoveRun, MoveStopped};

/// The parameter of requests for ACLs.
const ACL: &str = "acl";

impl MoveRun<S3Side> {
    /// Whether the ACLs of objects move.
    pub(super) fn brings_acls(&self) -> bool {
        self.order.s3.as_ref().is_some_and(|terms| terms.acls)
    }

    /// Gives a bucket the ACL that it has at the source. One that is refused here is told.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(super) async fn move_bucket_acl(&self, bucket: &str, owner: &Arc<User>) -> Result<(), MoveStopped> {
        let Some(text) = self.source.source.bucket_document(bucket, ACL).await? else { return Ok(()) };
        let document = match source_acl(&text) {
            Ok(document) => document,
            Err(error) => {
                self.tell_refused(bucket, ACL, &format!("{}: {}", error.code.name(), error.message));
                return Ok(());
            }
        };
        match self.put_bucket_acl(bucket, document, owner).await {
            // With such ownership controls it does not count at the source either.
            Ok(()) | Err(Error::AclsNotSupported) => Ok(()),
            Err(Error::Gateway(error)) => Err(error.into()),
            Err(error) => {
                self.tell_refused(bucket, ACL, &error.to_string());
                Ok(())
            }
        }
    }

    async fn put_bucket_acl(&self, bucket: &str, document: AclDocument, owner: &Arc<User>) -> larder_s3::Result<()> {
        let Some(acl) = self.grants_here(bucket, document, &owner.id).await? else { return Ok(()) };
        let choice = AclChoice::Grants(acl.grants.into_iter().map(named).collect());
        self.source.objects.buckets.put_acl(&caller(owner, S3Action::PutBucketAcl), bucket, None, choice).await
    }

    /// The ACL of a version of an object, if ACLs move.
    ///
    /// # Errors
    /// [`KeyFailure`].
    pub(super) async fn object_acl(
        &self,
        bucket: &str,
        key: &Bytes,
        version: &SourceVersion,
    ) -> Result<Option<Acl>, KeyFailure> {
        if !self.brings_acls() {
            return Ok(None);
        }
        let id = version.version_id.as_deref();
        let Some(text) = self.source.source.object_document(bucket, key, id, ACL).await? else { return Ok(None) };
        let document = source_acl(&text)
            .map_err(|error| KeyFailure::Aside(format!("{}: {}", error.code.name(), error.message)))?;
        let owner = self.source.objects.buckets.find(bucket).await.map_err(failure)?.owner.clone();
        self.grants_here(bucket, document, &owner).await.map_err(failure)
    }

    /// The grants of a document to others than the owner here; those to nobody here are left out and told.
    async fn grants_here(&self, bucket: &str, document: AclDocument, owner: &str) -> larder_s3::Result<Option<Acl>> {
        let mut grants = Vec::new();
        for (permission, to) in document.grants {
            let grantee = match to {
                GranteeRef::Group(uri) => Grantee::from_uri(&uri).ok_or(uri),
                GranteeRef::Id(id) if id == owner => continue,
                GranteeRef::Id(id) => match self.source.objects.users.find_by_id(&id).await? {
                    Some(user) => Ok(Grantee::User(user.id.clone())),
                    None if document.owner.as_ref() == Some(&id) => continue,
                    None => Err(id),
                },
                GranteeRef::Email(email) => Err(email),
            };
            match grantee {
                Ok(grantee) => grants.push(Grant { grantee, permission }),
                Err(stranger) => {
                    let stranger = stranger.escape_debug();
                    self.tell(format!("bucket {bucket}: grants to {stranger} are left out, who is nobody here"));
                }
            }
        }
        if grants.is_empty() {
            return Ok(None);
        }
        Acl::new(grants).map(Some).map_err(|error| Error::InvalidRequest(error.message))
    }
}

/// A grant, as a request names it.
fn named(Grant { grantee, permission }: Grant) -> (Permission, GranteeRef) {
    let to = match grantee {
        Grantee::User(id) => GranteeRef::Id(id),
        group => GranteeRef::Group(group.uri().unwrap_or_default().to_owned()),
    };
    (permission, to)
}
