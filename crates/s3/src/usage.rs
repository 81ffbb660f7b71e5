//! Requests and storage of users, for the usage reports of Riak CS.
//!
//! A row holds the total of one process for one operation in one hour. Only that process writes it, so a repeated write is
//! idempotent. A read adds the rows up.

mod log;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_core::clock_issuer::ClockIssuer;
use larder_core::node_context::NodeContext;
use larder_core::types::CatalogueCopy;
use larder_rows::codec::{DecodeError, name_after, put_ordered, take_ordered};
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{ActorId, Batch, Change, Row, Timestamp};
use larder_store::{Partition, Range, ReadOrder, ReadQuery, Stopped};
use serde::{Deserialize, Serialize};

use super::Result;
use super::quotas::current_storage;
use crate::catalogue::S3Catalogue;
use crate::rules::Storage;
use log::UsageLog;

/// Version byte of the rows.
const VERSION: u8 = 1;
/// Length of a time slice.
const HOUR_MICROS: u64 = 3_600_000_000;
/// Rows per batch.
const ROWS_MAX: usize = 1000;

/// Counts of one operation in one hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageCounts {
    /// Successful requests.
    pub count: u64,
    /// Requests that failed by the client's fault.
    pub user_errors: u64,
    /// Requests that failed by the server's fault.
    pub system_errors: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes sent in interrupted answers.
    pub bytes_out_incomplete: u64,
}

impl UsageCounts {
    fn add(&mut self, more: Self) {
        let Self { count, user_errors, system_errors, bytes_in, bytes_out, bytes_out_incomplete } = more;
        self.count += count;
        self.user_errors += user_errors;
        self.system_errors += system_errors;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.bytes_out_incomplete += bytes_out_incomplete;
    }
}

/// One hour of a user on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSample {
    /// The node that counted.
    pub node: String,
    /// The start of the hour.
    pub start: Timestamp,
    /// Counts by operation.
    pub operations: BTreeMap<String, UsageCounts>,
}

/// The key of a usage row. Its name sorts by the hour first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct UsageRowKey {
    /// Hours since 1970.
    hour: u64,
    node: String,
    actor: ActorId,
    operation: String,
}

impl UsageRowKey {
    fn row_name(&self) -> Bytes {
        let mut name = self.hour.to_be_bytes().to_vec();
        put_ordered(&mut name, self.node.as_bytes());
        name.extend_from_slice(&self.actor.0.to_be_bytes());
        name.extend_from_slice(self.operation.as_bytes());
        name.into()
    }

    fn from_row_name(name: &[u8]) -> std::result::Result<Self, DecodeError> {
        let (hour, rest) = name.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let (node, rest) = take_ordered(rest)?;
        let (actor, operation) = rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| DecodeError::Invalid("usage row"));
        Ok(Self {
            hour: u64::from_be_bytes(*hour),
            node: text(node)?,
            actor: ActorId(u64::from_be_bytes(*actor)),
            operation: text(operation.to_vec())?,
        })
    }
}

/// The usage of the S3 interface: counts of requests, and the storage of users.
pub struct Usage {
    context: Arc<NodeContext>,
    issuer: Arc<ClockIssuer>,
    catalogue: Arc<CatalogueCopy>,
    log: UsageLog,
}

impl Usage {
    /// The usage in the store of `gateway`.
    pub(super) fn new(gateway: &Core) -> Self {
        let (context, issuer) = (Arc::clone(gateway.context()), Arc::clone(gateway.issuer()));
        Self { context, issuer, catalogue: Arc::clone(gateway.catalogue()), log: UsageLog::default() }
    }

    /// Counts one request of a user.
    pub fn count(&self, key_id: &str, operation: &'static str, counts: UsageCounts) {
        self.log.count(key_id, hour_begin(self.context.now()), operation, counts);
    }

    /// Writes the counts that changed since the last flush.
    ///
    /// # Errors
    /// Any error of the store; no count is lost.
    pub async fn flush(&self) -> Result<()> {
        let _one = self.log.flushing.lock().await;
        // Race: issued under the lock, so a flush with greater totals has the greater stamp.
        let stamp = self.issuer.issue().await?;
        for (key_id, unwritten) in self.log.unwritten() {
            for lines in unwritten.chunks(ROWS_MAX) {
                let rows = lines.iter().map(|(hour, operation, counts)| {
                    let name = self.row_key(*hour, operation).row_name();
                    Change::Put(Row { name, value: encode(counts), stamp, expires: None })
                });
                let batch = Batch::single(Partition::usage(&key_id), rows.collect());
                self.context.apply_at_quorum(batch).await?;
                // After the write: the next flush repeats a failed batch with the same or greater totals.
                self.log.mark_written(&key_id, lines);
            }
        }
        self.log.forget_before(hour_begin(self.context.now()).saturating_sub(1));
        Ok(())
    }

    /// The hours of a user from `from` to `to`.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn samples(&self, key_id: &str, from: Timestamp, to: Timestamp) -> Result<Vec<UsageSample>> {
        let hours = hour_begin(from)..=hour_begin(to);
        let mut counted = self.read(key_id, *hours.start(), *hours.end()).await?;
        // Own counts in memory are newer than their rows.
        let lines = self.log.lines_for(key_id);
        counted.extend(lines.iter().map(|(hour, operation, counts)| (self.row_key(*hour, operation), *counts)));
        let mut samples = BTreeMap::<(String, u64), BTreeMap<String, UsageCounts>>::new();
        for (UsageRowKey { hour, node, operation, .. }, counts) in counted {
            if hours.contains(&hour) {
                samples.entry((node, hour)).or_default().entry(operation).or_default().add(counts);
            }
        }
        let sample =
            |((node, hour), operations)| UsageSample { node, start: Timestamp(hour * HOUR_MICROS), operations };
        Ok(samples.into_iter().map(sample).collect())
    }

    /// Objects and bytes of each bucket of a user, counted over its entries.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn user_storage(&self, user_id: &str) -> Result<BTreeMap<String, Storage>> {
        let catalogue = self.catalogue.refreshed().await?;
        let mut all = BTreeMap::new();
        for bucket in S3Catalogue::within(&catalogue).buckets().filter(|bucket| bucket.owner == user_id) {
            all.insert(bucket.name.clone(), current_storage(&self.context, bucket.id).await?);
        }
        Ok(all)
    }

    /// The rows of a user from one hour to another, both included.
    async fn read(&self, key_id: &str, from: u64, to: u64) -> Result<HashMap<UsageRowKey, UsageCounts>> {
        let mut counted = HashMap::new();
        let mut next = Some(Bytes::copy_from_slice(&from.to_be_bytes()));
        let end = Some(Bytes::copy_from_slice(&to.saturating_add(1).to_be_bytes()));
        while let Some(begin) = next.take().filter(|begin| Some(begin) < end.as_ref()) {
            let range = Range { from: Some(begin), to: end.clone() };
            let query = ReadQuery { range, limit: LISTING_PAGE_ROWS, order: ReadOrder::Forward };
            let page = self.context.read_at_quorum(&Partition::usage(key_id), &query).await?;
            let more = page.rows.last().filter(|_| page.stopped == Stopped::Limit);
            next = more.map(|last| name_after(&last.name));
            for row in page.rows {
                counted.insert(UsageRowKey::from_row_name(&row.name)?, decode(&row.value)?);
            }
        }
        Ok(counted)
    }

    fn row_key(&self, hour: u64, operation: &str) -> UsageRowKey {
        let node = self.context.config.node.clone();
        UsageRowKey { hour, node, actor: self.context.ports.actor, operation: operation.to_owned() }
    }
}

/// The number of the hour since 1970.
fn hour_begin(time: Timestamp) -> u64 {
    time.0 / HOUR_MICROS
}

fn encode(counts: &UsageCounts) -> Bytes {
    // JSON can represent every number.
    [&[VERSION], &serde_json::to_vec(counts).unwrap_or_default()[..]].concat().into()
}

fn decode(value: &[u8]) -> std::result::Result<UsageCounts, DecodeError> {
    match value.split_first() {
        Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|_| DecodeError::Invalid("usage counts")),
        Some((&other, _)) => Err(DecodeError::UnknownVersion(other)),
        None => Err(DecodeError::Truncated),
    }
}
