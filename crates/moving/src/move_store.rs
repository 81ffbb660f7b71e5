//! The rows about a move: its order, its progress, its buckets, the keys that were set aside, and the moved keys.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_kv::Gateway;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, name_after};
use larder_rows::keyspace::moved_shard;
use larder_rows::limits::MOVED_SHARDS;
use larder_rows::{Batch, Change, MoveOrder, MovedRow, Row};
use larder_store::{Partition, Range, ReadQuery, Stopped};
use serde_json::{Value, json};

use crate::progress::MoveProgress;
use crate::rules::VectorClock;

/// Rows of one page.
const PAGE_ROWS: usize = 500;
const ORDER: &[u8] = b"order";
const PROGRESS: &[u8] = b"progress";
/// Before the name of a moved bucket.
const BUCKET: &[u8] = b"bucket/";
/// Before the name of a bucket that is being made.
const MAKING: &[u8] = b"making/";
/// The version of the row of a moved bucket.
const BUCKET_VERSION: u8 = 1;

/// A list of keys with what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyList {
    /// Keys that could not be copied.
    Asides,
    /// Keys that differ.
    Differences,
}

impl KeyList {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Asides => b"asides",
            Self::Differences => b"differences",
        }
    }
}

/// A way through the moved keys of a bucket from one on and before another, one shard after the other.
pub(crate) struct MovedKeyPages {
    bucket: BucketAddress,
    from: Bytes,
    until: Option<Bytes>,
    shard: u8,
    /// Where the next page of the shard begins.
    next: Bytes,
}

impl MovedKeyPages {
    pub(crate) fn new(bucket: BucketAddress, from: Bytes, until: Option<Bytes>) -> Self {
        Self { bucket, next: from.clone(), from, until, shard: 0 }
    }
}

/// The rows of the move of a gateway.
#[derive(Clone)]
pub(crate) struct MoveStore {
    pub(crate) gateway: Arc<Gateway>,
}

impl MoveStore {
    pub(crate) async fn order(&self) -> Result<Option<MoveOrder>> {
        let row = self.row(Partition::moving(), ORDER).await?;
        row.map(|row| MoveOrder::decode(row).map_err(damaged)).transpose()
    }

    pub(crate) async fn write_order(&self, order: &MoveOrder) -> Result<()> {
        self.put(Partition::moving(), ORDER, order.encode()).await
    }

    /// The progress of an order; `None`: it has none yet.
    pub(crate) async fn progress(&self, id: &str) -> Result<Option<MoveProgress>> {
        let Some(row) = self.row(Partition::moving(), PROGRESS).await? else { return Ok(None) };
        let json = serde_json::from_slice(&row).ok();
        let progress = json.as_ref().and_then(MoveProgress::from_json);
        let progress = progress.ok_or_else(|| Error::Damaged("the progress of the move".into()))?;
        Ok(Some(progress).filter(|progress| progress.id == id))
    }

    pub(crate) async fn write_progress(&self, progress: &MoveProgress) -> Result<()> {
        self.put(Partition::moving(), PROGRESS, Value::Object(progress.to_json()).to_string().into()).await
    }

    pub(crate) async fn key_list(&self, list: KeyList) -> Result<Vec<String>> {
        let row = self.row(Partition::moving(), list.name()).await?;
        let json: Option<Value> = row.and_then(|row| serde_json::from_slice(&row).ok());
        let lines = json.as_ref().and_then(|json| json.get("lines")).and_then(Value::as_array);
        Ok(lines.into_iter().flatten().filter_map(|line| line.as_str().map(str::to_owned)).collect())
    }

    pub(crate) async fn write_key_list(&self, list: KeyList, lines: &[String]) -> Result<()> {
        self.put(Partition::moving(), list.name(), json!({ "version": 1, "lines": lines }).to_string().into()).await
    }

    /// Notes a bucket, so that its moved keys are found when the source lists it no more.
    pub(crate) async fn note_bucket(&self, bucket: &BucketAddress) -> Result<()> {
        let value = FieldEncoder::versioned(BUCKET_VERSION, 1).finish();
        self.put(Partition::moving(), &bucket_name(BUCKET, bucket), value).await
    }

    /// Notes that a bucket is being made, before it is.
    pub(crate) async fn note_making(&self, bucket: &BucketAddress) -> Result<()> {
        let value = FieldEncoder::versioned(BUCKET_VERSION, 1).finish();
        self.put(Partition::moving(), &bucket_name(MAKING, bucket), value).await
    }

    /// Whether this move began to make the bucket.
    pub(crate) async fn is_making(&self, bucket: &BucketAddress) -> Result<bool> {
        Ok(self.row(Partition::moving(), &bucket_name(MAKING, bucket)).await?.is_some())
    }

    /// The buckets that were noted.
    pub(crate) async fn buckets(&self) -> Result<Vec<BucketAddress>> {
        let mut buckets = Vec::new();
        let mut query = ReadQuery::prefix(Bytes::from_static(BUCKET), PAGE_ROWS);
        loop {
            let page = self.gateway.context().read_at_quorum(&Partition::moving(), &query).await?;
            for row in &page.rows {
                buckets.push(bucket_from_name(&row.name).map_err(damaged)?);
            }
            match page.rows.last() {
                Some(last) if page.stopped == Stopped::Limit => query.continue_after(&last.name),
                _ => return Ok(buckets),
            }
        }
    }

    pub(crate) async fn moved_row(&self, address: &Address) -> Result<Option<MovedRow>> {
        let row = self.row(Partition::moved(&address.bucket, moved_shard(&address.key)), &address.key).await?;
        row.map(|row| MovedRow::decode(row).map_err(damaged)).transpose()
    }

    /// Writes the row of a moved key, without a change of the key.
    pub(crate) async fn write_moved_row(&self, address: &Address, row: &MovedRow) -> Result<()> {
        self.put(Partition::moved(&address.bucket, moved_shard(&address.key)), &address.key, row.encode()).await
    }

    /// A page of the moved keys in a shard of a bucket, from the one behind `after`.
    pub(crate) async fn moved_keys(
        &self,
        bucket: &BucketAddress,
        shard: u8,
        after: Option<&Bytes>,
    ) -> Result<(Vec<(Bytes, MovedRow)>, bool)> {
        self.moved_page(bucket, shard, &ReadQuery::after(after, PAGE_ROWS)).await
    }

    /// Whether the source sent contexts of a Larder: the first clock that is stored tells.
    pub(crate) async fn is_from_larder(&self) -> Result<bool> {
        for bucket in self.buckets().await? {
            for shard in 0..MOVED_SHARDS {
                let (rows, _) = self.moved_keys(&bucket, shard, None).await?;
                if let Some((_, row)) = rows.iter().find(|(_, row)| !row.clock.is_empty()) {
                    return Ok(VectorClock::from_moved(&row.clock).is_err());
                }
            }
        }
        Ok(false)
    }

    /// The next page of moved keys; `None` at the end.
    pub(crate) async fn next_moved_keys(&self, pages: &mut MovedKeyPages) -> Result<Option<Vec<(Bytes, MovedRow)>>> {
        if pages.shard >= MOVED_SHARDS {
            return Ok(None);
        }
        let range = Range { from: Some(pages.next.clone()), to: pages.until.clone() };
        let query = ReadQuery { range, ..ReadQuery::all(PAGE_ROWS) };
        let (rows, has_more) = self.moved_page(&pages.bucket, pages.shard, &query).await?;
        match rows.last().filter(|_| has_more) {
            Some((last, _)) => pages.next = name_after(last),
            None => (pages.shard, pages.next) = (pages.shard + 1, pages.from.clone()),
        }
        Ok(Some(rows))
    }

    async fn moved_page(
        &self,
        bucket: &BucketAddress,
        shard: u8,
        query: &ReadQuery,
    ) -> Result<(Vec<(Bytes, MovedRow)>, bool)> {
        let page = self.gateway.context().read_at_quorum(&Partition::moved(bucket, shard), query).await?;
        let decode = |row: Row| MovedRow::decode(row.value).map(|moved| (row.name, moved)).map_err(damaged);
        let rows = page.rows.into_iter().map(decode).collect::<Result<Vec<_>>>()?;
        Ok((rows, page.stopped == Stopped::Limit))
    }

    /// Removes all that is known of moved keys, then the buckets and the lists. The order and the progress stay.
    pub(crate) async fn clear(&self) -> Result<()> {
        for bucket in self.buckets().await? {
            for shard in 0..MOVED_SHARDS {
                self.clear_partition(Partition::moved(&bucket, shard), ReadQuery::all(PAGE_ROWS)).await?;
            }
        }
        let lists = [KeyList::Asides, KeyList::Differences];
        for name in [BUCKET, MAKING].into_iter().chain(lists.map(KeyList::name)) {
            let query = ReadQuery::prefix(Bytes::copy_from_slice(name), PAGE_ROWS);
            self.clear_partition(Partition::moving(), query).await?;
        }
        Ok(())
    }

    async fn clear_partition(&self, partition: Partition, query: ReadQuery) -> Result<()> {
        let context = self.gateway.context();
        let mut query = query;
        loop {
            let page = context.read_at_quorum(&partition, &query).await?;
            let Some(last) = page.rows.last().map(|row| row.name.clone()) else { return Ok(()) };
            let remove = |row: Row| Change::Remove { name: row.name, stamp: row.stamp };
            let changes = page.rows.into_iter().map(remove).collect();
            context.apply_at_quorum(Batch::single(partition.clone(), changes)).await?;
            if page.stopped == Stopped::End {
                return Ok(());
            }
            query.continue_after(&last);
        }
    }

    async fn row(&self, partition: Partition, name: &[u8]) -> Result<Option<Bytes>> {
        let query = ReadQuery::one(Bytes::copy_from_slice(name));
        let page = self.gateway.context().read_at_quorum(&partition, &query).await?;
        Ok(page.rows.into_iter().next().map(|row| row.value))
    }

    async fn put(&self, partition: Partition, name: &[u8], value: Bytes) -> Result<()> {
        let stamp = self.gateway.issuer().issue().await?;
        let row = Row { name: Bytes::copy_from_slice(name), value, stamp, expires: None };
        self.gateway.context().apply_at_quorum(Batch::single(partition, vec![Change::Put(row)])).await
    }
}

fn bucket_name(prefix: &[u8], bucket: &BucketAddress) -> Bytes {
    let mut name = FieldEncoder::with_capacity(prefix.len() + bucket.bucket_type.len() + bucket.bucket.len() + 4);
    name.raw(prefix);
    name.bytes(&bucket.bucket_type);
    name.bytes(&bucket.bucket);
    name.finish()
}

fn bucket_from_name(name: &Bytes) -> std::result::Result<BucketAddress, DecodeError> {
    let mut rest = FieldDecoder::new(name.slice(BUCKET.len()..));
    let bucket = BucketAddress { bucket_type: rest.bytes()?, bucket: rest.bytes()? };
    rest.finish()?;
    Ok(bucket)
}

fn damaged(error: DecodeError) -> Error {
    Error::Damaged(format!("a row of the move: {error}"))
}
