//! The lifecycle worker: removes objects, versions and uploads by the rules of their bucket.
//!
//! The entries of a bucket tell which keys may have something due; the worker opens only these. The change that removes a
//! version evaluates the rules again, on the bucket and versions of that moment: a concurrent write or new rules are never
//! overlooked.

mod keys;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larder_core::Core;
use larder_rows::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS};
use larder_rows::{Row, Timestamp};
use larder_store::{Partition, ReadQuery, Stopped};

use super::commit::{HeadStore, ObjectLocation};
use super::uploads::Uploads;
use super::{Error, Result};
use crate::catalogue::S3Catalogue;
use crate::rules::entry::upload_of_entry_name;
use crate::rules::lifecycle::Lifecycle;
use crate::rules::{Bucket, BucketState, ListingEntry, UploadEntry};
use keys::LifecyclePrefilter;

/// Failures logged per pass; further ones are only counted.
const FAILURES_LOGGED_MAX: u64 = 10;

/// Counts of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecyclePass {
    /// Expired current versions.
    pub expired: u64,
    /// Removed noncurrent versions, and delete markers.
    pub removed: u64,
    /// Aborted uploads.
    pub aborted: u64,
    /// Keys and uploads left to the next pass after an error.
    pub failed: u64,
}

impl LifecyclePass {
    /// Counts and logs a failure: the pass goes on.
    fn record_failure(&mut self, what: &str, bucket: &Bucket, error: &Error) {
        self.failed += 1;
        if self.failed <= FAILURES_LOGGED_MAX {
            tracing::warn!(%error, bucket = bucket.name, "lifecycle removal of {what} failed; the next pass retries");
        }
    }
}

/// A bucket and its rules during a pass.
struct BucketScan<'a> {
    bucket: &'a Bucket,
    rules: &'a Lifecycle,
    now: Timestamp,
}

/// Removes objects, versions and uploads by the rules of their bucket.
pub struct LifecycleWorker {
    pub(super) gateway: Arc<Core>,
    pub(super) heads: Arc<HeadStore>,
    pub(super) uploads: Arc<Uploads>,
}

impl LifecycleWorker {
    /// Runs one pass over every bucket with rules. Failures are logged, counted and left to the next pass.
    ///
    /// # Errors
    /// Any error of the store while listing; removals until then stay.
    pub async fn run(&self) -> Result<LifecyclePass> {
        let mut pass = LifecyclePass::default();
        let catalogue = self.gateway.catalogue().refreshed().await?;
        let buckets: Vec<Arc<Bucket>> = S3Catalogue::within(&catalogue).buckets().map(Arc::clone).collect();
        drop(catalogue);
        for bucket in buckets {
            let rules = bucket.lifecycle.as_ref().filter(|rules| rules.rules.iter().any(|rule| rule.enabled));
            let Some(rules) = rules.filter(|_| bucket.state == BucketState::Active) else { continue };
            let scan = BucketScan { bucket: &bucket, rules, now: self.gateway.context().now() };
            self.scan_keys(&scan, &mut pass).await?;
            self.scan_uploads(&scan, &mut pass).await?;
        }
        Ok(pass)
    }

    /// Scans the entries of keys under the prefixes of the rules.
    async fn scan_keys(&self, scan: &BucketScan<'_>, pass: &mut LifecyclePass) -> Result<()> {
        let prefilter = LifecyclePrefilter::new(scan.bucket, scan.rules);
        for prefix in prefilter.prefixes() {
            for shard in 0..KEY_VIEW_SHARDS {
                let partition = Partition::entries(scan.bucket.id, shard);
                let mut left = Some(ReadQuery::prefix(prefix.clone(), LISTING_PAGE_ROWS));
                while let Some(rows) = self.page(&partition, &mut left).await? {
                    for row in rows {
                        // Race: the entry may be older than the key; the removal checks the version itself.
                        if prefilter.may_have_due(&row.name, &ListingEntry::decode(row.value)?, scan.now) {
                            let location = ObjectLocation::new(scan.bucket, &row.name);
                            self.expire_key(scan, &location, pass).await;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Aborts uploads that began too long ago.
    async fn scan_uploads(&self, scan: &BucketScan<'_>, pass: &mut LifecyclePass) -> Result<()> {
        if scan.rules.rules.iter().all(|rule| !rule.enabled || rule.abort_uploads_days.is_none()) {
            return Ok(());
        }
        let partition = Partition::upload_entries(scan.bucket.id);
        let mut left = Some(ReadQuery::all(LISTING_PAGE_ROWS));
        while let Some(rows) = self.page(&partition, &mut left).await? {
            for row in rows {
                let (key, id) = upload_of_entry_name(&row.name)?;
                let initiated = UploadEntry::decode(row.value)?.initiated;
                if scan.is_due(scan.rules.upload_expiry(&key, initiated)) {
                    // Race: a running completion is about to make an object of these parts.
                    match self.uploads.abort_unless_completing(id).await {
                        Ok(aborted) => pass.aborted += u64::from(aborted),
                        Err(error) => pass.record_failure("an upload", scan.bucket, &error),
                    }
                }
            }
        }
        Ok(())
    }

    /// The next page of the rest of a query; `None` at the end.
    async fn page(&self, partition: &Partition, left: &mut Option<ReadQuery>) -> Result<Option<Vec<Row>>> {
        let Some(mut query) = left.take() else { return Ok(None) };
        tokio::task::yield_now().await; // Lets other requests run.
        let page = self.gateway.context().ports.store.read(partition, &query, &self.heads.options()).await?;
        if let Some(last) = page.rows.last().filter(|_| page.stopped == Stopped::Limit) {
            query.range.from = ReadQuery::after(Some(&last.name), query.limit).range.from;
            *left = Some(query);
        }
        Ok(Some(page.rows))
    }
}

impl BucketScan<'_> {
    /// Whether a decision of a rule is due.
    fn is_due(&self, decision: Option<(Timestamp, &str)>) -> bool {
        decision.is_some_and(|(when, _)| when <= self.now)
    }
}
