//! The worker that removes what is old by the rules of its bucket.
//!
//! The entries of a bucket say which keys may have something old; these alone are opened. What goes is judged once more
//! inside the change that removes it, by the bucket and the versions as they are then: what was written, or what the rules
//! became, in between is never missed.

mod keys;
mod relaxed;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_model::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS};
use larder_model::objects::entry::upload_of_entry_name;
use larder_model::objects::lifecycle::Lifecycle;
use larder_model::objects::{Bucket, BucketState, Entry, UploadEntry, UploadId, UploadState};
use larder_model::rows::{Micros, Row};
use larder_store::{Partition, ReadQuery, Stopped};

use super::commit::Place;
use super::{Error, Objects, Result};
use relaxed::Relaxed;

/// So many failures of one pass are told one by one.
const FAILURES_TOLD: u64 = 10;

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecyclePass {
    /// Current versions that expired.
    pub expired: u64,
    /// Versions removed that were not current, delete markers included.
    pub removed: u64,
    /// Uploads given up.
    pub aborted: u64,
    /// Keys and uploads left to the next pass because something failed.
    pub failed: u64,
}

impl LifecyclePass {
    /// Notes a failure: the pass goes on.
    fn fails(&mut self, what: &str, bucket: &Bucket, error: &Error) {
        self.failed += 1;
        if self.failed <= FAILURES_TOLD {
            tracing::warn!(%error, bucket = bucket.name, "{what}: left to the next pass of the lifecycle");
        }
    }
}

/// A bucket as a pass found it.
struct Round<'a> {
    bucket: &'a Bucket,
    rules: &'a Lifecycle,
    now: Micros,
}

impl Objects {
    /// Looks at every bucket with rules once. What fails is told, counted and left to the next pass.
    ///
    /// # Errors
    /// What the store answers to who asks what there is; what was done until then stays.
    pub async fn run_lifecycle(&self) -> Result<LifecyclePass> {
        let mut pass = LifecyclePass::default();
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let buckets: Vec<Arc<Bucket>> = catalogue.s3_buckets().map(Arc::clone).collect();
        drop(catalogue);
        for bucket in buckets {
            let rules = bucket.lifecycle.as_ref().filter(|rules| rules.rules.iter().any(|rule| rule.enabled));
            let Some(rules) = rules.filter(|_| bucket.state == BucketState::Active) else { continue };
            let round = Round { bucket: &bucket, rules, now: self.gateway.now() };
            self.age_keys(&round, &mut pass).await?;
            self.age_uploads(&round, &mut pass).await?;
        }
        Ok(pass)
    }

    /// Looks at the entries of the keys some rule is about.
    async fn age_keys(&self, round: &Round<'_>, pass: &mut LifecyclePass) -> Result<()> {
        let relaxed = Relaxed::of(round.bucket, round.rules);
        for prefix in relaxed.prefixes() {
            for shard in 0..KEY_VIEW_SHARDS {
                let partition = Partition::entries(round.bucket.id, shard);
                let mut left = Some(ReadQuery::prefix(prefix.clone(), LISTING_PAGE_ROWS));
                while let Some(rows) = self.page(&partition, &mut left).await? {
                    for row in rows {
                        if relaxed.may_act(&row.name, &Entry::decode(row.value)?, round.now) {
                            let place = Place::of(round.bucket, &row.name);
                            self.age_key(round, &place, pass).await;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives up the uploads that were begun too long ago.
    async fn age_uploads(&self, round: &Round<'_>, pass: &mut LifecyclePass) -> Result<()> {
        if round.rules.rules.iter().all(|rule| !rule.enabled || rule.abort_uploads_days.is_none()) {
            return Ok(());
        }
        let partition = Partition::upload_entries(round.bucket.id);
        let mut left = Some(ReadQuery::all(LISTING_PAGE_ROWS));
        while let Some(rows) = self.page(&partition, &mut left).await? {
            for row in rows {
                let (key, id) = upload_of_entry_name(&row.name)?;
                let initiated = UploadEntry::decode(row.value)?.initiated;
                if round.is_due(round.rules.abort_upload(&key, initiated)) {
                    match self.age_upload(id).await {
                        Ok(aborted) => pass.aborted += u64::from(aborted),
                        Err(error) => pass.fails("an upload", round.bucket, &error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives an upload up, unless somebody is completing it at this moment.
    async fn age_upload(&self, id: UploadId) -> Result<bool> {
        let Some(head) = self.read_upload(id).await? else { return Ok(false) };
        match &head.upload.state {
            UploadState::Completing { version, since, .. } if !self.is_left_behind(*version, *since) => Ok(false),
            state if !state.is_alive() => Ok(false),
            _ => self.give_up_upload(head).await,
        }
    }

    /// The next page of what is left to ask; `None` at the end.
    async fn page(&self, partition: &Partition, left: &mut Option<ReadQuery>) -> Result<Option<Vec<Row>>> {
        let Some(mut query) = left.take() else { return Ok(None) };
        tokio::task::yield_now().await; // Other requests have their turn.
        let page = self.gateway.ports.store.read(partition, &query, &self.options()).await?;
        if let Some(last) = page.rows.last().filter(|_| page.stopped == Stopped::Limit) {
            query.range.from = ReadQuery::after(Some(&last.name), query.limit).range.from;
            *left = Some(query);
        }
        Ok(Some(page.rows))
    }
}

impl Round<'_> {
    /// Whether the moment of a decision has come.
    fn is_due(&self, decision: Option<(Micros, &str)>) -> bool {
        decision.is_some_and(|(when, _)| when <= self.now)
    }
}
