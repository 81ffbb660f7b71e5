//! Queries of secondary indexes, and of keys as an index: an [`IndexReader`] merges the shards of one index page by page
//! ([`super::shard_merge`]), filters the hits, and compares them with their objects where that is needed.
//!
//! A reader holds a page of each shard and nothing between its pages but that, so a slow client costs no more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use larder_core::metrics::KvOp;
use larder_core::node_context::{NodeContext, internal_options};
use larder_core::rules::props::EffectiveProps;
use larder_core::types::CatalogueCopy;
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::codec::DecodeError;
use larder_rows::limits::INDEX_PAGE_ROWS;
use larder_store::{CallOptions, ConsistencyLevel, Partition};
use tokio::time::Instant;

use super::shard_merge::ShardMerge;
use crate::Kv;
use crate::request_plan::conflict_policy;
use crate::rules::causality::{ConflictPolicy, KeyVersions};
use crate::rules::index::{IndexHit, IndexPosition, IndexQuery, indexed_terms};

/// Rows that a page looks at before it ends without hits: a filter may let none of them through.
const SCANNED_ROWS_MAX: usize = 20_000;
/// Bytes of terms that a regular expression looks at before other tasks of the thread have their turn.
const MATCHED_BYTES_AT_ONCE: usize = 4 * 1024;
/// Objects that a page reads at a time where it checks its hits.
const CHECKS_AT_ONCE: usize = 32;

/// A query under way.
pub struct IndexReader {
    context: Arc<NodeContext>,
    catalogue: Arc<CatalogueCopy>,
    query: Arc<IndexQuery>,
    after: Option<IndexPosition>,
    deadline: Option<Duration>,
    /// The shards, once the first page is read.
    begun: Option<BegunQuery>,
}

struct BegunQuery {
    merge: ShardMerge,
    check: Option<HitCheck>,
    /// Hits that passed the filter beyond the last page.
    ready: VecDeque<IndexHit>,
    /// Whether all rows were read.
    is_read: bool,
}

/// A page of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexPage {
    /// The hits, in the order of terms, then of keys. There may be none before the end.
    pub hits: Vec<IndexHit>,
    /// Whether no page follows.
    pub is_last: bool,
}

/// Marks a query that compares each hit with its object: index rows of the bucket may outlive their objects, or it has a filter.
#[derive(Debug, Clone, Copy)]
struct HitCheck {
    consistent: bool,
    policy: ConflictPolicy,
}

impl Kv {
    /// A query of an index, after the hit `after`, which ends within `timeout`. Nothing is read before its first page.
    #[must_use]
    pub fn query_index(
        &self,
        query: IndexQuery,
        after: Option<IndexPosition>,
        timeout: Option<Duration>,
    ) -> IndexReader {
        let deadline = timeout.map(|timeout| self.context.monotonic().saturating_add(timeout));
        let (context, catalogue) = (Arc::clone(&self.context), Arc::clone(&self.catalogue));
        IndexReader { context, catalogue, query: Arc::new(query), after, deadline, begun: None }
    }
}

impl IndexReader {
    /// The query.
    #[must_use]
    pub fn query(&self) -> &IndexQuery {
        &self.query
    }

    /// Bytes of memory that it and its next page hold: rows of the usual length, or longer ones once they are read.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let held = self.begun.as_ref().map_or(0, |begun| begun.merge.bytes());
        let epochs = self.catalogue.current().epochs(&self.query.bucket);
        held.max(ShardMerge::usual_bytes(INDEX_PAGE_ROWS, epochs)) as u64
    }

    /// The next page of at most `limit` hits.
    ///
    /// # Errors
    /// [`Error::UnknownType`], [`Error::TimedOut`], and the store's.
    pub async fn next(&mut self, limit: usize) -> Result<IndexPage> {
        let context = Arc::clone(&self.context);
        let op = if self.begun.is_none() { KvOp::Index } else { KvOp::IndexPage };
        context.admit_and_measure(op, self.read_page(limit)).await
    }

    async fn read_page(&mut self, limit: usize) -> Result<IndexPage> {
        let options = self.options()?;
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => self.begin().await?,
        };
        if begun.ready.len() < limit && !begun.is_read {
            let hits = self.read_hits(&mut begun, limit, &options).await?;
            begun.ready.extend(hits);
        }
        let hits = begun.ready.drain(..limit.min(begun.ready.len())).collect();
        let is_last = begun.is_read && begun.ready.is_empty();
        self.begun = Some(begun);
        Ok(IndexPage { hits, is_last })
    }

    /// The next hits, about as many; with a filter there may be more, fewer or none.
    async fn read_hits(&self, begun: &mut BegunQuery, limit: usize, options: &CallOptions) -> Result<Vec<IndexHit>> {
        // A filter may let few through, and checks many objects at a time.
        let limit = if self.query.filter.is_empty() { limit } else { limit.max(CHECKS_AT_ONCE) };
        let mut hits = Vec::with_capacity(limit.min(INDEX_PAGE_ROWS));
        let (mut scanned, mut matched) = (0, 0);
        // A filter may drop the rows of many small pages, each of which would be a read.
        let page = if self.query.regex.is_some() { INDEX_PAGE_ROWS } else { limit.clamp(1, INDEX_PAGE_ROWS) };
        while hits.len() < limit && scanned < SCANNED_ROWS_MAX {
            let Some(hit) = begun.merge.next(page, options).await? else {
                begun.is_read = true;
                break;
            };
            scanned += 1;
            if self.query.regex.is_some() {
                matched += hit.term.0.len() + hit.key.len();
                if matched >= MATCHED_BYTES_AT_ONCE {
                    // Matching waits for nothing: without this a long term would hold the thread, and no deadline would end it.
                    matched = 0;
                    tokio::task::yield_now().await;
                    self.options()?;
                }
            }
            if self.query.is_wanted(&hit) {
                hits.push(hit);
            }
        }
        match begun.check {
            Some(check) => self.check_hits(hits, check, options).await,
            None => Ok(hits),
        }
    }

    /// Options of the reads of a page: a quorum, whose answer has every acknowledged row.
    fn options(&self) -> Result<CallOptions> {
        let remaining = self.deadline.map(|deadline| deadline.saturating_sub(self.context.monotonic()));
        if remaining == Some(Duration::ZERO) {
            return Err(Error::TimedOut);
        }
        let timeout_max = self.context.config.timeout;
        let timeout = remaining.map_or(timeout_max, |time| time.min(timeout_max));
        Ok(CallOptions { deadline: Instant::now() + timeout, ..internal_options(ConsistencyLevel::Quorum) })
    }

    async fn begin(&self) -> Result<BegunQuery> {
        let bucket = &self.query.bucket;
        let catalogue = self.catalogue.for_type(&bucket.bucket_type).await?;
        let props = catalogue.effective(bucket).ok_or_else(|| Error::UnknownType(bucket.bucket_type.clone()))?;
        let (context, copy, query) = (Arc::clone(&self.context), Arc::clone(&self.catalogue), Arc::clone(&self.query));
        Ok(BegunQuery {
            merge: ShardMerge::new(context, copy, query, self.after.as_ref()),
            ready: VecDeque::new(),
            is_read: false,
            check: HitCheck::for_query(&self.query, &props, self.context.ports.store.limits().replicated),
        })
    }

    /// The hits whose objects have the term, and pass the filter.
    async fn check_hits(&self, hits: Vec<IndexHit>, check: HitCheck, options: &CallOptions) -> Result<Vec<IndexHit>> {
        let checked = stream::iter(hits).map(|hit| async move {
            let shown = self.is_shown(&hit, check, options).await?;
            Ok::<_, Error>(shown.then_some(hit))
        });
        let shown: Vec<Option<IndexHit>> = checked.buffered(CHECKS_AT_ONCE).try_collect().await?;
        Ok(shown.into_iter().flatten().collect())
    }

    async fn is_shown(&self, hit: &IndexHit, check: HitCheck, options: &CallOptions) -> Result<bool> {
        let address = Address { bucket: self.query.bucket.clone(), key: hit.key.clone() };
        let copies = self.catalogue.copies(&address.bucket);
        let partition = Partition::object(&address, check.consistent, copies);
        let rows = self.context.read_rows(&partition, options).await?;
        let versions = KeyVersions::from_rows(rows, check.policy).map_err(damaged)?;
        let terms: Vec<_> = versions.siblings.iter().map(|sibling| indexed_terms(&sibling.content.terms)).collect();
        let is_there = match self.query.scope.field() {
            Some(field) => terms.iter().any(|terms| terms.contains(&(field, hit.term.clone()))),
            None => !versions.siblings.is_empty(),
        };
        Ok(is_there && self.query.filter.passes(&hit.key, &terms.into_iter().flatten().collect()))
    }
}

impl HitCheck {
    /// Whether and how a query checks its hits.
    fn for_query(query: &IndexQuery, props: &EffectiveProps, replicated: bool) -> Option<Self> {
        let policy = if props.consistent { ConflictPolicy::Newest } else { conflict_policy(props) };
        // A blind write of such a bucket does not know the terms that it replaces, and its rows have no slots.
        let outlives = props.consistent || !policy.has_slots();
        // Race: two puts replace one version and both rows stay; a term of the hidden one would be a wrong hit [invariant 120].
        let hides = policy == ConflictPolicy::Newest;
        // Race: a read at a quorum misses a row that a write at one replica stored; the row goes, its terms stay [invariant 121].
        let of_field = query.scope.field().is_some();
        let compares = outlives || !query.filter.is_empty() || of_field && (hides || replicated);
        compares.then_some(Self { consistent: props.consistent, policy })
    }
}

fn damaged(error: DecodeError) -> Error {
    Error::Damaged(error.to_string())
}
