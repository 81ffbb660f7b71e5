//! Reads an object at once: no wait, no task, no copy of its bytes. Everything else, each refusal included, takes [`Objects::get`]
//! and [`Objects::head`].

use std::sync::Arc;

use bytes::Bytes;
use larder_store::Partition;

use super::{FoundObject, GetObject, ReadWindow, VersionSpec, check_access, open_inline};
use crate::conditions::window_range;
use crate::object_lock::visible_lock;
use crate::rules::access::AccessContext;
use crate::rules::encryption::EncryptionKind;
use crate::rules::{Bucket, ObjectBody, ObjectHead};
use crate::{Caller, Objects};

impl Objects {
    /// The current version and its requested bytes, if the engine reads on the caller's thread and the bytes are in the row of
    /// the head. `None` says nothing: the caller then uses [`Self::get`], which answers the same for such an object.
    ///
    /// `context` is asked for where the bucket or the caller has a policy; the one of `caller` does not count.
    #[must_use]
    pub fn try_get(
        &self,
        caller: Caller,
        context: impl FnOnce() -> AccessContext,
        request: &GetObject,
    ) -> Option<(FoundObject, Bytes)> {
        let found_object = self.try_head(caller, context, request)?;
        let object = found_object.version.object.as_ref()?;
        let ObjectBody::Inline(bytes) = &object.body else { return None };
        let key = self.keys.object_key(object, None).ok()?;
        let bytes = open_inline(bytes, key.as_ref()).ok()?;
        let (start, end) =
            (usize::try_from(found_object.window.start).ok()?, usize::try_from(found_object.window.end).ok()?);
        let bytes = bytes.slice(start..end);
        Some((found_object, bytes))
    }

    /// The metadata of a current version, as [`Self::try_get`] reads it; its bytes may be anywhere. `None` says nothing: the
    /// caller then uses [`Self::head`].
    #[must_use]
    pub fn try_head(
        &self,
        caller: Caller,
        context: impl FnOnce() -> AccessContext,
        request: &GetObject,
    ) -> Option<FoundObject> {
        let names_more = request.version != VersionSpec::Current || request.customer_key.is_some();
        if names_more || matches!(request.window, ReadWindow::Part(_)) {
            return None;
        }
        let node = self.gateway.context();
        let catalogue = self.gateway.catalogue().peek(node.monotonic())?;
        let bucket = super::super::buckets::active(&catalogue, &request.bucket)?;
        let partition = Partition::head(bucket.id, &request.key);
        let row = node.ports.store.try_read_row(&partition, &Bytes::new())?;
        let version = ObjectHead::decode(row.value).ok()?.current?;
        if bucket.may_be_partial(&version) {
            return None;
        }
        let encryption = version.object.as_ref()?.encryption;
        // Without its key nothing of it is shown.
        if encryption.is_some_and(|encryption| encryption.kind() == EncryptionKind::Customer) {
            return None;
        }
        let caller = with_context(caller, bucket, context);
        check_access(&caller, bucket, &request.key, &request.version, Some(&version)).ok()?;
        request.conditions.check(bucket, &version, || node.now()).ok()?;
        let requested_window = request.conditions.window(&version, request.window);
        let window = window_range(requested_window, version.object.as_ref()?.length()).ok()?;
        let lock = visible_lock(&caller, bucket, &request.key, &version);
        let found_object = FoundObject::from_current(bucket, &request.key, version, requested_window, window);
        Some(FoundObject { lock, ..found_object })
    }
}

/// Only a policy, of the bucket or of the caller, looks at the context, which costs as much as the read to collect.
fn with_context(caller: Caller, bucket: &Arc<Bucket>, context: impl FnOnce() -> AccessContext) -> Caller {
    if bucket.policy.is_some() || caller.policies.is_some() {
        Caller { access_context: context(), ..caller }
    } else {
        caller
    }
}
