//! What users did and what they store, for the usage reports of Riak CS.
//!
//! A row holds what one process counted of one operation in one hour, whole: writing it again changes nothing, and nobody else
//! writes it. Reading adds them up.

mod log;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use larder_model::codec::{DecodeError, put_ordered, take_ordered};
use larder_model::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS};
use larder_model::objects::{Bucket, Entry};
use larder_model::rows::{Batch, Change, Micros, Row};
use larder_store::{Level, Order, Partition, Range, ReadQuery, Stopped};
use serde::{Deserialize, Serialize};

use super::{Objects, Result};

pub use log::UsageLog;

/// Version of the rows.
const VERSION: u8 = 1;
/// Length of a slice of time.
const HOUR: Micros = 3_600_000_000;
/// Rows written at once.
const ROWS_MAX: usize = 1000;

/// Counts of one operation in one hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were carried out.
    pub count: u64,
    /// Requests refused for what the client did.
    pub user_errors: u64,
    /// Requests that failed.
    pub system_errors: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes sent of answers that broke off.
    pub bytes_out_incomplete: u64,
}

impl Counts {
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

/// An hour of a user on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Where it was counted.
    pub node: String,
    /// When the hour began.
    pub start: Micros,
    /// Counts by operation.
    pub operations: BTreeMap<String, Counts>,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a row counts. Its name sorts by the hour first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Counted {
    /// Since 1970.
    hour: u64,
    node: String,
    actor: u64,
    operation: String,
}

impl Counted {
    fn row_name(&self) -> Bytes {
        let mut name = self.hour.to_be_bytes().to_vec();
        put_ordered(&mut name, self.node.as_bytes());
        name.extend_from_slice(&self.actor.to_be_bytes());
        name.extend_from_slice(self.operation.as_bytes());
        name.into()
    }

    fn of_row_name(name: &[u8]) -> std::result::Result<Self, DecodeError> {
        let (hour, rest) = name.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let (node, rest) = take_ordered(rest)?;
        let (actor, operation) = rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| DecodeError::Invalid("usage row"));
        Ok(Self {
            hour: u64::from_be_bytes(*hour),
            node: text(node)?,
            actor: u64::from_be_bytes(*actor),
            operation: text(operation.to_vec())?,
        })
    }
}

impl Objects {
    /// Counts one request of a user.
    pub fn count_usage(&self, key_id: &str, operation: &'static str, counts: Counts) {
        self.usage.count(key_id, self.gateway.now() / HOUR, operation, counts);
    }

    /// Writes what was counted since the last time.
    ///
    /// # Errors
    /// What the store answers; nothing is forgotten then.
    pub async fn flush_usage(&self) -> Result<()> {
        let _one = self.usage.flushing.lock().await;
        let stamp = self.gateway.issue().await?;
        for (key_id, unwritten) in self.usage.unwritten() {
            for lines in unwritten.chunks(ROWS_MAX) {
                let rows = lines.iter().map(|(hour, operation, counts)| {
                    let name = self.counted(*hour, operation).row_name();
                    Change::Put(Row { name, value: encode(counts), stamp, expires: None })
                });
                let batch = Batch::of(Partition::usage(&key_id), rows.collect());
                self.gateway.ports.store.apply(batch, &self.gateway.own(Level::Quorum)).await?;
                self.usage.written(&key_id, lines);
            }
        }
        self.usage.forget_before((self.gateway.now() / HOUR).saturating_sub(1));
        Ok(())
    }

    /// The hours of a user from `from` to `to`.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn usage(&self, key_id: &str, from: Micros, to: Micros) -> Result<Vec<Sample>> {
        let hours = from / HOUR..=to / HOUR;
        let mut counted = self.written_usage(key_id, from / HOUR, to / HOUR).await?;
        // What this process counted itself it knows best.
        let own = self.usage.of(key_id);
        counted.extend(own.iter().map(|(hour, operation, counts)| (self.counted(*hour, operation), *counts)));
        let mut samples = BTreeMap::<(String, u64), BTreeMap<String, Counts>>::new();
        for (Counted { hour, node, operation, .. }, counts) in counted {
            if hours.contains(&hour) {
                samples.entry((node, hour)).or_default().entry(operation).or_default().add(counts);
            }
        }
        let sample = |((node, hour), operations)| Sample { node, start: hour * HOUR, operations };
        Ok(samples.into_iter().map(sample).collect())
    }

    /// What each bucket of a user holds now: counted over its entries.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn storage_of(&self, user_id: &str) -> Result<BTreeMap<String, Storage>> {
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let mut all = BTreeMap::new();
        for bucket in catalogue.s3_buckets().filter(|bucket| bucket.owner == user_id) {
            all.insert(bucket.name.clone(), self.storage_in(bucket).await?);
        }
        Ok(all)
    }

    async fn storage_in(&self, bucket: &Bucket) -> Result<Storage> {
        let mut storage = Storage::default();
        for shard in 0..KEY_VIEW_SHARDS {
            let mut last = None;
            loop {
                let query = ReadQuery::after(last.as_ref(), LISTING_PAGE_ROWS);
                let (partition, options) = (Partition::entries(bucket.id, shard), self.gateway.own(Level::Quorum));
                let page = self.gateway.ports.store.read(&partition, &query, &options).await?;
                last = page.rows.last().map(|row| row.name.clone());
                for row in page.rows {
                    if let Some(object) = Entry::decode(row.value)?.object {
                        storage.objects += 1;
                        storage.bytes += object.length;
                    }
                }
                if page.stopped == Stopped::End {
                    break;
                }
                tokio::task::yield_now().await; // Other requests have their turn.
            }
        }
        Ok(storage)
    }

    /// The rows of a user from one hour to another, both included.
    async fn written_usage(&self, key_id: &str, from: u64, to: u64) -> Result<HashMap<Counted, Counts>> {
        let mut counted = HashMap::new();
        let mut next = Some(Bytes::copy_from_slice(&from.to_be_bytes()));
        let end = Some(Bytes::copy_from_slice(&to.saturating_add(1).to_be_bytes()));
        while let Some(begin) = next.take().filter(|begin| Some(begin) < end.as_ref()) {
            let range = Range { from: Some(begin), to: end.clone() };
            let query = ReadQuery { range, limit: LISTING_PAGE_ROWS, order: Order::Forward };
            let options = self.gateway.own(Level::Quorum);
            let page = self.gateway.ports.store.read(&Partition::usage(key_id), &query, &options).await?;
            let more = page.rows.last().filter(|_| page.stopped == Stopped::Limit);
            next = more.map(|last| [&last.name[..], &[0]].concat().into());
            for row in page.rows {
                counted.insert(Counted::of_row_name(&row.name)?, decode(&row.value)?);
            }
        }
        Ok(counted)
    }

    fn counted(&self, hour: u64, operation: &str) -> Counted {
        let node = self.gateway.config.node.clone();
        Counted { hour, node, actor: self.gateway.actor, operation: operation.to_owned() }
    }
}

fn encode(counts: &Counts) -> Bytes {
    // Numbers only: nothing that JSON could not hold.
    [&[VERSION], &serde_json::to_vec(counts).unwrap_or_default()[..]].concat().into()
}

fn decode(value: &[u8]) -> std::result::Result<Counts, DecodeError> {
    match value.split_first() {
        Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|_| DecodeError::Invalid("usage counts")),
        Some((&other, _)) => Err(DecodeError::UnknownVersion(other)),
        None => Err(DecodeError::Truncated),
    }
}
