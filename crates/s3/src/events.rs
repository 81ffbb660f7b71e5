//! Events of objects: what a change tells the targets that the rules of its bucket name. Their notices are reserved before the
//! commit of the change, stored with it, and delivered by the outbox of the core.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_core::outbox::PendingNotices;
use larder_core::rules::event_target::event_target_name;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::text::beginning;
use larder_rows::{Batch, EventName, EventObject, NoticeContent, NoticeRow, ObjectEvent, Timestamp};
use larder_store::RateLimitedLog;

use super::commit::CasAttempt;
use super::conditions::WriteConditions;
use super::{Caller, Result};
use crate::rules::notification::{EventAction, NotificationRule};
use crate::rules::{Object, SystemHeader, Version};

/// Longest name of a client's program in an event, in bytes.
const AGENT_BYTES_MAX: usize = 256;
/// The condition key with the name of a client's program.
const USER_AGENT: &str = "aws:UserAgent";
/// The program of lifecycle rules.
const LIFECYCLE_AGENT: &str = "larder lifecycle";

static TARGET_MISSING: RateLimitedLog = RateLimitedLog::new();

/// Who changes a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum EventOrigin<'a> {
    /// The caller of a request.
    Request(&'a Caller),
    /// A lifecycle rule.
    Lifecycle,
}

/// What is done to a key, and by whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeCause<'a> {
    pub(super) action: EventAction,
    pub(super) origin: EventOrigin<'a>,
}

/// What a new version must meet, and why it is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteTerms<'a> {
    pub(super) conditions: &'a WriteConditions,
    pub(super) cause: ChangeCause<'a>,
}

/// A change of a key, as its receivers are told of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeEvent<'a> {
    cause: Option<ChangeCause<'a>>,
    /// The version that is new, changed or removed.
    version: Option<&'a Version>,
}

impl WriteTerms<'_> {
    /// Checks the conditions on the head that the attempt expects.
    ///
    /// # Errors
    /// Those of [`Caller::check_conditions`].
    pub(super) fn check(&self, attempt: &CasAttempt<'_>) -> Result<()> {
        let current = attempt.head.current.as_ref();
        match self.cause.origin {
            // Race: an owner may have replaced the object while the body arrived, and its caller may not read the new one.
            EventOrigin::Request(caller) => {
                caller.check_conditions(attempt.bucket(), &attempt.location.key, current, self.conditions)
            }
            EventOrigin::Lifecycle => self.conditions.check(current),
        }
    }
}

impl<'a> ChangeCause<'a> {
    /// A request that does this.
    pub(super) fn request(action: EventAction, caller: &'a Caller) -> Self {
        Self { action, origin: EventOrigin::Request(caller) }
    }

    /// The event of this change of a version; `None`: of a key that has none.
    pub(super) fn event(self, version: Option<&'a Version>) -> ChangeEvent<'a> {
        ChangeEvent { cause: Some(self), version }
    }
}

impl ChangeEvent<'_> {
    /// A change that nobody is told of.
    pub(super) fn silent() -> Self {
        Self { cause: None, version: None }
    }
}

impl EventOrigin<'_> {
    fn principal(&self) -> String {
        match self {
            Self::Request(caller) => caller.user.as_ref().map_or_else(String::new, |user| user.key_id.clone()),
            Self::Lifecycle => String::new(),
        }
    }

    fn source(&self) -> String {
        match self {
            Self::Request(caller) => {
                caller.access_context.source.map_or_else(String::new, |source| source.to_canonical().to_string())
            }
            Self::Lifecycle => String::new(),
        }
    }

    fn agent(&self) -> String {
        match self {
            Self::Request(caller) => {
                let agent = caller.access_context.keys.iter().find(|(name, _)| *name == USER_AGENT);
                agent.map_or_else(String::new, |(_, agent)| beginning(agent, AGENT_BYTES_MAX).to_owned())
            }
            Self::Lifecycle => LIFECYCLE_AGENT.to_owned(),
        }
    }

    fn request(&self) -> String {
        match self {
            Self::Request(caller) => caller.request_id.to_string(),
            Self::Lifecycle => String::new(),
        }
    }
}

impl CasAttempt<'_> {
    /// Reserves the notices of a change, for the rows beside its head; `None`: nobody asked for them.
    ///
    /// # Errors
    /// `Overloaded` when the outbox has no room, or the bucket or a receiver has its share.
    pub(super) fn reserve_notices(&self, event: &ChangeEvent<'_>) -> Result<Option<PendingNotices>> {
        let (Some(config), Some(cause)) = (&self.bucket().notification, event.cause) else { return Ok(None) };
        let matches = config.matches(&self.location.key, cause.action);
        let notices: Vec<NoticeRow> =
            matches.filter_map(|(rule, name)| self.notice(rule, name, cause, event.version)).collect();
        if notices.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.heads.gateway.outbox().reserve_for(notices)?))
    }

    /// The notice for the target of a rule; `None` where the settings have no such target.
    fn notice(
        &self,
        rule: &NotificationRule,
        name: EventName,
        cause: ChangeCause<'_>,
        version: Option<&Version>,
    ) -> Option<NoticeRow> {
        let (context, bucket) = (self.heads.gateway.context(), self.bucket());
        let target = rule.webhook().filter(|id| context.config.event_targets.iter().any(|target| target.id == *id));
        let Some(target) = target else {
            // A bound of time instead of a notice that waits: it would refuse writes after a while.
            if let Some(line) = TARGET_MISSING.admit(context.monotonic()) {
                let (bucket, target, left_out) = (&bucket.name, &rule.target, line.left_out);
                tracing::warn!(bucket, target, left_out, "event not sent: the settings have no such target");
            }
            return None;
        };
        let object = version.and_then(|version| version.object.as_ref()).filter(|_| cause.action.shows_object());
        let content = ObjectEvent {
            name,
            happened: context.now().min(self.stamp),
            rule: rule.id.clone(),
            region: self.heads.region.clone(),
            owner: bucket.owner.clone(),
            principal: cause.origin.principal(),
            source: cause.origin.source(),
            agent: cause.origin.agent(),
            request: cause.origin.request(),
            version: version.filter(|version| !version.null).map(|version| version.id.text()),
            object: object.map(event_object),
        };
        let address = BucketAddress { bucket_type: Bytes::new(), bucket: bucket.name.clone().into() };
        Some(NoticeRow {
            id: context.new_request_id(),
            receiver: event_target_name(target),
            // A copy: the key of a request may be a view of a larger buffer.
            address: Address { bucket: address, key: Bytes::copy_from_slice(&self.location.key) },
            time: self.stamp,
            content: NoticeContent::Event(Box::new(content)),
        })
    }

    /// Tells the receivers of a request that found nothing to change.
    ///
    /// # Errors
    /// As [`Self::reserve_notices`], and the store's.
    pub(super) async fn announce(self, event: &ChangeEvent<'_>) -> Result<()> {
        let Some(notices) = self.reserve_notices(event)? else { return Ok(()) };
        let rows = notices.changes(self.row_clock().await?);
        let batch = Batch { partitions: rows.into_iter().collect() };
        let written = self.heads.gateway.context().ports.store.apply(batch, &self.options).await;
        let written = written.map_err(larder_core::Error::from);
        notices.note_result(&written);
        Ok(written?)
    }

    /// A clock for the rows of reserved notices: above the removals of those that had their places before [invariant 138].
    pub(super) async fn row_clock(&self) -> Result<Timestamp> {
        Ok(self.heads.gateway.issuer().issue().await?)
    }
}

fn event_object(object: &Object) -> EventObject {
    let copy = |value: &Bytes| Bytes::copy_from_slice(value);
    let content_type = object.headers.iter().find(|(header, _)| *header == SystemHeader::ContentType);
    EventObject {
        size: object.length(),
        etag: object.etag.to_string(),
        content_type: content_type.map(|(_, value)| copy(value)),
        meta: object.meta.iter().map(|(name, value)| (name.clone(), copy(value))).collect(),
    }
}
