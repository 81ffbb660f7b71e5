//! The access control lists of objects.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::commit::{ObjectLocation, version_id_text};
use super::events::{ChangeCause, ChangeEvent};
use super::get::{LocatedVersion, VersionSpec};
use super::{Caller, Objects};
use crate::Result;
use crate::rules::notification::EventAction;

pub use super::acl_choice::{AclChoice, GranteeRef, ShownAcl};
pub(super) use super::acl_choice::{check_has_acls, check_owner, check_public_acl};

impl Objects {
    /// The ACL of a version.
    ///
    /// # Errors
    /// As a get of the object.
    pub async fn object_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
    ) -> Result<ShownAcl> {
        let LocatedVersion { bucket, version, .. } = self.locate(caller, bucket, key, version).await?;
        let acl = version.object.and_then(|object| object.acl).unwrap_or_default();
        Ok(ShownAcl::new(&bucket, &version.owner, &acl))
    }

    /// Replaces the ACL of a version.
    ///
    /// # Errors
    /// As a get of the object, the refusals of an ACL choice, and `AclsNotSupported`.
    #[expect(clippy::too_many_arguments, reason = "what the request names, as for every other call on a version")]
    pub async fn put_object_acl(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        owner: Option<&str>,
        acl: AclChoice,
    ) -> Result<()> {
        let LocatedVersion { bucket, version, .. } = self.locate(caller, bucket, key, version).await?;
        check_has_acls(&bucket)?;
        check_owner(owner, &version.owner)?;
        let acl = acl.resolve(&self.users, &version.owner, &bucket.owner).await?;
        let (location, named) = (ObjectLocation::new(&bucket, key), VersionSpec::Id(version_id_text(&version)));
        let cause = ChangeCause::request(EventAction::PutAcl, caller);
        let mut cas = self.heads.cas_loop(&location, None);
        loop {
            let attempt = cas.next_attempt().await?;
            check_has_acls(attempt.bucket())?;
            check_public_acl(attempt.bucket(), acl.as_ref())?;
            let stored_version = attempt.find(&named).await?.filter(|stored_version| stored_version.id == version.id);
            let Some(mut stored_version) = stored_version else {
                // Race: another writer removed the version. The result equals an ACL change just before that.
                return Ok(());
            };
            let is_changed = stored_version.object.as_ref().is_some_and(|object| object.acl != acl);
            if let Some(object) = &mut stored_version.object {
                object.acl.clone_from(&acl);
            }
            let next = attempt.rewrite(stored_version.clone());
            // Nobody hears of an ACL that is put again.
            let event = if is_changed { cause.event(Some(&stored_version)) } else { ChangeEvent::silent() };
            if attempt.commit(next, &event).await? {
                return Ok(());
            }
        }
    }
}
