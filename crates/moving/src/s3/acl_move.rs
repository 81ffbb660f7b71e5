//! The ACLs of buckets and objects of an S3 store: which of their grants can be had here.
//!
//! Who owned a bucket or an object there, and is no user here, is its owner here, who needs no grant. A grant to another user
//! counts where a user here has the same canonical id, as after an import of a Riak CS's users.

use std::sync::Arc;

use bytes::Bytes;
use larder_s3::Error;
use larder_s3::acl::{AclChoice, GranteeRef};
use larder_s3_rules::{Acl, Bucket, Grant, Grantee, Permission, S3Action, User};

use super::SourceVersion;
use super::bucket_move::{S3Side, caller};
use super::documents::SourceAcl;
use super::object_move::failure;
use crate::move_run::{KeyFailure, MoveRun, MoveStopped, shown_name};
use crate::source_calls::SourceError;

/// The parameter of requests for ACLs.
const ACL: &str = "acl";

impl MoveRun<S3Side> {
    /// Whether ACLs move.
    pub(super) fn brings_acls(&self) -> bool {
        self.order.s3.as_ref().is_some_and(|terms| terms.acls)
    }

    /// Gives a bucket the ACL that it has at the source, if ACLs move. One that cannot be had is told: less is allowed then.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(super) async fn move_bucket_acl(&self, bucket: &str, owner: &Arc<User>) -> Result<(), MoveStopped> {
        if !self.brings_acls() {
            return Ok(());
        }
        let text = match self.source.source.bucket_document(bucket, ACL).await {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(()),
            Err(error @ (SourceError::Refused { .. } | SourceError::Props(_))) => {
                self.tell_refused(bucket, ACL, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        match self.put_bucket_acl(bucket, &text, owner).await {
            // With such ownership controls it does not count at the source either.
            Ok(()) | Err(Error::AclsNotSupported) => Ok(()),
            Err(Error::Gateway(error)) => Err(error.into()),
            Err(error) => {
                self.tell_refused(bucket, ACL, &error.to_string());
                Ok(())
            }
        }
    }

    async fn put_bucket_acl(&self, name: &str, document: &[u8], owner: &Arc<User>) -> larder_s3::Result<()> {
        let read = SourceAcl::read(document).map_err(|error| Error::InvalidRequest(error.to_string()))?;
        let (buckets, document) = (&self.source.objects.buckets, read.unwrap_or_default());
        let Some(acl) = self.grants_here(&*buckets.find(name).await?, document).await? else { return Ok(()) };
        let choice = AclChoice::Grants(acl.grants.into_iter().map(named).collect());
        buckets.put_acl(&caller(owner, S3Action::PutBucketAcl), name, None, choice).await
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
        let text = match self.source.source.object_document(bucket, key, id, ACL).await {
            Ok(Some(text)) => text,
            // A source without ACLs answers with the object, or not at all.
            Ok(None) | Err(SourceError::Props(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = SourceAcl::read(&text).map_err(|error| KeyFailure::Aside(format!("its ACL: {error}")))?;
        let bucket = self.source.objects.buckets.find(bucket).await.map_err(failure)?;
        self.grants_here(&bucket, read.unwrap_or_default()).await.map_err(failure)
    }

    /// The grants to others than the owner of the bucket; those that cannot be had here are left out and told.
    async fn grants_here(&self, bucket: &Bucket, document: SourceAcl) -> larder_s3::Result<Option<Acl>> {
        let mut acl = Acl::default();
        let mut stranger = None;
        for (permission, to) in document.grants {
            let grantee = match to {
                GranteeRef::Group(uri) => Grantee::from_uri(&uri).ok_or(uri),
                GranteeRef::Id(id) if id == bucket.owner => continue,
                GranteeRef::Id(id) => match self.source.objects.users.find_by_id(&id).await? {
                    Some(user) => Ok(Grantee::User(user.id.clone())),
                    None if document.owner.as_ref() == Some(&id) => continue,
                    None => Err(id),
                },
                GranteeRef::Email(email) => Err(email),
            };
            match grantee {
                Ok(grantee) => acl.grants.push(Grant { grantee, permission }),
                Err(name) => stranger = Some(name),
            }
        }
        if let Some(name) = stranger {
            let prefix = format!("bucket {}: grants to users who are not here are left out", bucket.name);
            self.tell_instead(&prefix, format!("{prefix}, such as {}", shown_name(name.as_bytes())));
        }
        if bucket.public_access.is_some_and(|access| access.refuses_acl(&acl)) {
            self.tell(format!("bucket {}: grants to everybody are left out, which it refuses here", bucket.name));
            acl.grants.retain(|grant| !grant.grantee.is_public());
        }
        Ok(Some(acl).filter(|acl| !acl.grants.is_empty()))
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
