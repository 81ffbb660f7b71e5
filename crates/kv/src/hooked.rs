//! Puts and deletes in buckets with commit hooks.

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::rules::props::webhook_in;
use larder_core::{Error, Feature, Result};
use larder_rows::NoticeEvent;
use larder_rows::address::BucketAddress;
use larder_rows::content::{KvBody, KvContent};
use tokio::time::Instant;

use super::request_plan::{ReplicaPlan, RequestPlan};
use super::{FetchedObject, KvDelete, KvPut};
use crate::Kv;
use crate::hooks::{BucketHooks, CommitHooks, HookMemory, HookedObject, HookedWrite};
use crate::rules::causality::ConflictPolicy;
use larder_core::outbox::NoticeSubject;

impl RequestPlan {
    /// Whether the writes of the bucket run hooks. Those to `write_once` buckets run none, as in Riak.
    pub(super) fn runs_hooks(&self) -> bool {
        (self.props.has_precommit || self.props.has_postcommit) && self.policy != ConflictPolicy::WriteOnce
    }
}

impl Kv {
    /// Refuses updates of data types in a bucket with hooks: a hook could neither see nor change them.
    pub(crate) fn check_datatype_hooks(&self, plan: &RequestPlan) -> Result<()> {
        match plan.props.has_precommit || plan.props.has_postcommit {
            true => Err(Error::NotBuilt(Feature::DatatypeHooks)),
            false => Ok(()),
        }
    }

    /// Writes an object between its hooks. The body is in memory, 8 MiB at most.
    pub(super) async fn put_with_hooks(
        &self,
        request: KvPut,
        plan: RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<FetchedObject>> {
        let hooks = self.bucket_hooks(&request.address.bucket);
        let KvPut { address, context, content, upload, .. } = request;
        let (body, mut memory) = self.hold_body(&address.bucket, upload, &plan).await?;
        // Bound: the hooks and the engine have their full time, however slowly the client sent the body.
        let plan = RequestPlan { deadline: Instant::now() + plan.timeout, ..plan };
        let replicas = replicas.with_timeout(plan.timeout);
        let mut object = HookedObject {
            address,
            context: context.clone().unwrap_or_default(),
            content: KvContent { body: KvBody::Inline(body), ..content },
            is_delete: false,
            modified: self.context.now(),
        };
        self.hooks.before(&hooks.precommit, &mut object, plan.deadline).await?;
        // Hooks may have made it larger than the copies that are held.
        CommitHooks::hold_more(&mut memory, object.body().len() as u64)?;
        let put = KvPut {
            address: object.address.clone(),
            context,
            content: object.content.clone(),
            upload: PutBody::Bytes(object.body().clone()),
            ..request
        };
        let subject = NoticeSubject {
            event: NoticeEvent::Put,
            address: &object.address,
            content_type: object.content.content_type.as_ref(),
            bytes: object.body().len() as u64,
        };
        let notices = self.hooks.outbox.reserve(&hooks.webhooks, &subject)?;
        let hooked = HookedWrite { hooks: hooks.postcommit, object, memory, notices };
        self.put_planned(put, plan, replicas, Some(Box::new(hooked))).await
    }

    /// Runs the precommit hooks of a delete, which see the object with `X-Riak-Deleted`.
    pub(super) async fn hooks_before_delete(&self, request: &KvDelete, plan: &RequestPlan) -> Result<HookedWrite> {
        let hooks = self.bucket_hooks(&request.address.bucket);
        let memory = self.hooks.hold(&request.address.bucket, 0, plan.deadline).await?;
        let mut object = HookedObject {
            address: request.address.clone(),
            context: request.context.clone().unwrap_or_default(),
            content: KvContent::default(),
            is_delete: true,
            modified: self.context.now(),
        };
        self.hooks.before(&hooks.precommit, &mut object, plan.deadline).await?;
        let event = NoticeEvent::Delete;
        let subject = NoticeSubject { event, address: &object.address, content_type: None, bytes: 0 };
        let notices = self.hooks.outbox.reserve(&hooks.webhooks, &subject)?;
        Ok(HookedWrite { hooks: hooks.postcommit, object, memory, notices })
    }

    /// The hooks of a bucket, from the catalogue that is current now.
    fn bucket_hooks(&self, bucket: &BucketAddress) -> BucketHooks {
        let catalogue = self.catalogue.current();
        let (precommit, mut postcommit) = (catalogue.hooks(bucket, "precommit"), catalogue.hooks(bucket, "postcommit"));
        let webhooks = postcommit.iter().filter_map(webhook_in).collect();
        postcommit.retain(|hook| webhook_in(hook).is_none());
        BucketHooks { precommit, postcommit, webhooks }
    }

    async fn hold_body(
        &self,
        bucket: &BucketAddress,
        upload: PutBody,
        plan: &RequestPlan,
    ) -> Result<(Bytes, HookMemory)> {
        match upload {
            PutBody::Bytes(bytes) => {
                let memory = self.hooks.hold(bucket, bytes.len() as u64, plan.deadline).await?;
                Ok((bytes, memory))
            }
            PutBody::Stream { mut stream, length } => {
                self.hooks.receive(bucket, stream.as_mut(), length, plan.deadline).await
            }
        }
    }
}
