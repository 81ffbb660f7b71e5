//! The `$key` view: a row per (key, slot), written and removed with the object's own rows. A listing merges its shards.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use larder_model::address::{Address, BucketAddress};
use larder_model::causality::{ANY_SLOT, Mode, Reading, Versions, Write};
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::props::Effective;
use larder_model::rows::{BucketRow, Change, Row, key_of_view_row, view_row_name, view_row_prefix};
use larder_store::{Level, Options, Partition, Range, ReadQuery, Stopped};
use tokio::time::Instant;

use super::Listing;
use crate::metrics::Op;
use crate::{Error, Gateway, Result, Rule};

/// Rows of one key that a deletion clears at most: one per slot, and slots are bounded by siblings.
const ROWS_OF_KEY_MAX: usize = 1000;

/// A bucket whose entries may outlive or precede their objects, so that a listing looks at each object: writes there name
/// no slots (`last_write_wins`, `write_once`) or cannot be one with their entry (`consistent`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    consistent: bool,
}

impl Checked {
    /// Whether and how listings of a bucket look at its objects.
    pub(super) fn of(props: &Effective) -> Option<Self> {
        let checked = props.consistent || props.last_write_wins || props.write_once;
        checked.then_some(Self { consistent: props.consistent })
    }
}

/// One shard of a listing in progress: the distinct keys of the page read last, and where it goes on.
struct Shard {
    partition: Partition,
    keys: VecDeque<Bytes>,
    next: Option<Bytes>,
}

impl Gateway {
    /// A page of the keys of a bucket, in order. A key is listed once, however many siblings it has; deleted keys are not.
    ///
    /// # Errors
    /// [`Error::UnknownType`], and what the store answers.
    pub async fn list_keys(
        &self,
        bucket: &BucketAddress,
        after: Option<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<Listing> {
        let work = async {
            let catalogue = self.knowing(&bucket.bucket_type).await?;
            let options = self.reading_for(timeout);
            let mut listing = self.merge_shards(bucket, after.clone(), &options).await?;
            if let Some(checked) = catalogue.effective(bucket).and_then(|props| Checked::of(&props)) {
                listing.names = self.only_existing(bucket, listing.names, checked, &options).await?;
            }
            Ok(listing)
        };
        self.measured(super::page_of(Op::ListKeys, after.as_ref()), work).await
    }

    pub(super) async fn merge_shards(
        &self,
        bucket: &BucketAddress,
        after: Option<Bytes>,
        options: &Options,
    ) -> Result<Listing> {
        let epochs = BucketRow::default();
        let start = after.map(|after| behind(&after));
        let copies = self.copies(bucket);
        let mut shards = Vec::new();
        for (epoch, shard) in epochs.shards() {
            let partition = Partition::keys(bucket, epoch, shard, copies);
            let mut shard = Shard { partition, keys: VecDeque::new(), next: Some(start.clone().unwrap_or_default()) };
            self.fill(&mut shard, options).await?;
            shards.push(shard);
        }
        let mut names: Vec<Bytes> = Vec::with_capacity(LISTING_PAGE_ROWS);
        while names.len() < LISTING_PAGE_ROWS {
            let first = shards.iter_mut().filter(|shard| !shard.keys.is_empty()).min_by_key(|one| one.keys[0].clone());
            let Some(shard) = first else {
                return Ok(Listing { names, next: None });
            };
            if let Some(key) = shard.keys.pop_front() {
                names.push(key);
            }
            self.fill(shard, options).await?;
        }
        let next = names.last().cloned();
        Ok(Listing { names, next })
    }

    /// Reads on until the shard has a key to offer or is at its end.
    async fn fill(&self, shard: &mut Shard, options: &Options) -> Result<()> {
        while shard.keys.is_empty() {
            let Some(from) = shard.next.take() else { return Ok(()) };
            let range = Range { from: Some(from), to: None };
            let query = ReadQuery { range, limit: LISTING_PAGE_ROWS, order: larder_store::Order::Forward };
            let page = self.ports.store.read(&shard.partition, &query, options).await?;
            for row in &page.rows {
                let key = key_of_view_row(&row.name).map_err(|error| damaged(&error))?;
                if shard.keys.back() != Some(&key) {
                    shard.keys.push_back(key);
                }
            }
            if page.stopped == Stopped::Limit {
                shard.next = shard.keys.back().map(|key| behind(key));
            }
        }
        Ok(())
    }

    /// The shard of the `$key` view that an object's rows are in.
    pub(crate) fn key_view(&self, address: &Address) -> Partition {
        let (epoch, shard) = BucketRow::default().shard_of(&address.key);
        Partition::keys(&address.bucket, epoch, shard, self.copies(&address.bucket))
    }

    /// The keys of `names` that have a live value.
    pub(super) async fn only_existing(
        &self,
        bucket: &BucketAddress,
        names: Vec<Bytes>,
        checked: Checked,
        options: &Options,
    ) -> Result<Vec<Bytes>> {
        let mut existing = Vec::with_capacity(names.len());
        for key in names {
            let address = Address { bucket: bucket.clone(), key };
            let partition = Partition::object(&address, checked.consistent, self.copies(bucket));
            let rows = self.read_rows(&partition, options).await?;
            let versions = Versions::of(rows, Reading::of(Mode::Newest)).map_err(|error| damaged(&error))?;
            if !versions.siblings.is_empty() {
                existing.push(address.key);
            }
        }
        Ok(existing)
    }

    /// Removals of all entries of a key that are not newer than `stamp`: for deletions that name no slots.
    pub(crate) async fn all_entries(&self, address: &Address, stamp: u64, options: &Options) -> Result<Vec<Change>> {
        let entries = self.entries(address, options).await?;
        Ok(entries.into_iter().map(|row| Change::Remove { name: row.name, stamp }).collect())
    }

    /// The changes to the key's shard of the `$key` view that come with a write.
    pub(crate) fn entry_changes(&self, address: &Address, write: &Write) -> Vec<Change> {
        let mut changes = write.key_view_changes(&address.key);
        if !self.rule(Rule::NameViewBySlot) {
            for change in &mut changes {
                let (Change::Put(Row { name, .. }) | Change::Remove { name, .. }) = change else { continue };
                *name = view_row_name(&address.key, &ANY_SLOT.row_name());
            }
            // One name has one change: the new entry, or the newest removal, which stands first.
            changes.drain(..changes.len().saturating_sub(1) * usize::from(!write.tombstone));
            changes.truncate(1);
        }
        changes
    }

    /// Removals of entries of a key that nobody remembers: their row is gone, and `write`, a deletion, does not name it. So
    /// it is with what a `last_write_wins` put cleared without looking, and with what more slots died than rows remember.
    /// Entries are read first, so a row that came meanwhile keeps its own. Nothing depends on it: what cannot be read stays.
    pub(crate) async fn stale_entries(&self, address: &Address, write: &Write, options: &Options) -> Vec<Change> {
        let found = self.find_stale(address, write, options).await;
        found.inspect_err(|error| tracing::debug!(%error, "stale entries of a key are left")).unwrap_or_default()
    }

    async fn find_stale(&self, address: &Address, write: &Write, options: &Options) -> Result<Vec<Change>> {
        let named: Vec<_> = self.entry_changes(address, write).into_iter().filter_map(removed_name).collect();
        let cleared = write.removed.iter().filter(|gone| gone.name == ANY_SLOT.row_name()).map(|gone| gone.clock).max();
        let now = self.now();
        // A row is there or never comes: a write that replaces everything came after it, or it has had all the time there is.
        let is_settled = |entry: &Row| {
            let cleared = cleared.is_some_and(|clock| entry.stamp < clock);
            cleared || self.slots.is_orphan(entry.stamp, now) || !self.rule(Rule::AwaitRows)
        };
        let mut entries = self.entries(address, options).await?;
        entries.retain(|entry| !named.contains(&entry.name) && is_settled(entry));
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let options = Options { level: options.level.max(Level::Quorum), ..*options };
        let rows = self.read_rows(&Partition::object(address, false, self.copies(&address.bucket)), &options).await?;
        let stands = |entry: &Row| rows.iter().any(|row| view_row_name(&address.key, &row.name) == entry.name);
        let stale = entries.into_iter().filter(|entry| !stands(entry));
        Ok(stale.map(|entry| Change::Remove { name: entry.name, stamp: entry.stamp }).collect())
    }

    async fn entries(&self, address: &Address, options: &Options) -> Result<Vec<Row>> {
        let query = ReadQuery::prefix(view_row_prefix(&address.key), ROWS_OF_KEY_MAX);
        Ok(self.ports.store.read(&self.key_view(address), &query, options).await?.rows)
    }

    /// Options of a listing's reads.
    pub(crate) fn reading_for(&self, timeout: Option<Duration>) -> Options {
        let deadline = Instant::now() + timeout.unwrap_or(self.config.timeout);
        Options { deadline, ..self.own(Level::Quorum) }
    }
}

fn removed_name(change: Change) -> Option<Bytes> {
    match change {
        Change::Remove { name, .. } => Some(name),
        _ => None,
    }
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(error.to_string())
}

/// The first row name behind all rows of `key`.
fn behind(key: &[u8]) -> Bytes {
    let mut name = view_row_prefix(key).to_vec();
    // The prefix ends in 00 01: no row of the key sorts behind 00 02.
    if let Some(last) = name.last_mut() {
        *last += 1;
    }
    name.into()
}
