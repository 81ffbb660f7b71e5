//! A gateway's copy of the catalogue, and how it is kept fresh.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use larder_model::address::BucketAddress;
use larder_model::objects::{Bucket, BucketState};
use larder_model::props::{Effective, Overrides, State, TypeRecord};
use larder_model::rows::{CatalogueKey, CatalogueRow, Row, Stamp};
use larder_store::{Level, Page, Partition, ReadQuery};

use crate::kv::step_down::read_own;
use crate::metrics::Event;
use crate::{Error, Gateway, Result, Rule};

/// Nothing is served from a catalogue that was not checked for this long.
const FRESH: Duration = Duration::from_secs(5);
const PAGE_ROWS: usize = 1000;
const READS_MAX: usize = 10;

/// One state of the catalogue.
#[derive(Debug, Clone)]
pub(crate) struct Catalogue {
    number: Stamp,
    types: BTreeMap<Bytes, Type>,
    buckets: HashMap<BucketAddress, Own>,
    s3_buckets: BTreeMap<String, Arc<Bucket>>,
    /// The number of the change that last wrote each of them.
    s3_numbers: HashMap<String, Stamp>,
    /// Those of them that are being deleted, each with the number of the change that closed it.
    s3_closing: BTreeMap<String, Stamp>,
    default: Effective,
}

/// A type, with the number of the change that last wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Type {
    pub(crate) record: Arc<TypeRecord>,
    pub(crate) number: Stamp,
    effective: Effective,
}

#[derive(Debug, Clone)]
struct Own {
    overrides: Arc<Overrides>,
    effective: Effective,
}

impl Catalogue {
    /// What a gateway knows before it has looked.
    pub(crate) fn empty() -> Self {
        Self {
            number: 0,
            types: BTreeMap::new(),
            buckets: HashMap::new(),
            s3_buckets: BTreeMap::new(),
            s3_numbers: HashMap::new(),
            s3_closing: BTreeMap::new(),
            default: TypeRecord::effective(None, &Overrides::EMPTY),
        }
    }

    /// Its number: the stamp of the head.
    pub(crate) fn number(&self) -> Stamp {
        self.number
    }

    /// The types, `default` not among them, by name.
    pub(crate) fn types(&self) -> &BTreeMap<Bytes, Type> {
        &self.types
    }

    /// The record of an active type; `Some(None)` for type `default`, `None` for one that serves no request.
    pub(crate) fn active(&self, bucket_type: &[u8]) -> Option<Option<&Arc<TypeRecord>>> {
        if bucket_type == larder_model::address::DEFAULT_TYPE {
            return Some(None);
        }
        let found = self.types.get(bucket_type)?;
        (found.record.state == State::Active).then_some(Some(&found.record))
    }

    /// What holds for a bucket; `None` when its type serves no request.
    pub(crate) fn effective(&self, bucket: &BucketAddress) -> Option<Effective> {
        let of_type = if bucket.is_default_type() {
            self.default
        } else {
            let found = self.types.get(&bucket.bucket_type)?;
            if found.record.state != State::Active {
                return None;
            }
            found.effective
        };
        if self.buckets.is_empty() {
            return Some(of_type);
        }
        Some(self.buckets.get(bucket).map_or(of_type, |own| own.effective))
    }

    /// Copies of what is in a type; of `default` if it is unknown.
    pub(crate) fn copies(&self, bucket_type: &[u8]) -> u8 {
        self.types.get(bucket_type).map_or(self.default.copies, |found| found.effective.copies)
    }

    /// The bucket's own properties.
    pub(crate) fn own(&self, bucket: &BucketAddress) -> Arc<Overrides> {
        self.buckets.get(bucket).map_or_else(|| Arc::new(Overrides::EMPTY), |own| Arc::clone(&own.overrides))
    }

    /// A bucket of the S3 interface, whatever its state.
    pub(crate) fn s3_bucket(&self, name: &str) -> Option<&Arc<Bucket>> {
        self.s3_buckets.get(name)
    }

    /// The buckets of the S3 interface, by name.
    pub(crate) fn s3_buckets(&self) -> &BTreeMap<String, Arc<Bucket>> {
        &self.s3_buckets
    }

    /// The buckets of the S3 interface that are being deleted, by name, each with the number of the change that closed it.
    pub(crate) fn s3_closing(&self) -> &BTreeMap<String, Stamp> {
        &self.s3_closing
    }

    /// The state that is in these rows. Buckets of the S3 interface that did not change since `before` are shared with it:
    /// there may be many, each with a policy and rules to be read.
    fn of(rows: Vec<Row>, before: &Self) -> Result<Self> {
        let mut catalogue = Self::empty();
        let mut buckets = Vec::new();
        for row in rows {
            if row.name.is_empty() {
                catalogue.number = row.stamp;
                continue;
            }
            match CatalogueKey::decode(&row.name).map_err(|error| damaged(&error))? {
                CatalogueKey::Type(name) => {
                    let record = TypeRecord::from_json(&json_of(row.value)?).map_err(|error| damaged(&error))?;
                    let effective = TypeRecord::effective(Some(&record), &Overrides::EMPTY);
                    let found = Type { record: Arc::new(record), number: row.stamp, effective };
                    catalogue.types.insert(name, found);
                }
                CatalogueKey::Bucket(bucket) => buckets.push((bucket, json_of(row.value)?)),
                CatalogueKey::S3Bucket(name) => {
                    let name = String::from_utf8(name.into()).map_err(|error| damaged(&error))?;
                    let bucket = match before.s3_unchanged(&name, row.stamp) {
                        Some(bucket) => Arc::clone(bucket),
                        None => Arc::new(s3_bucket_of(&name, row.value)?),
                    };
                    catalogue.add_s3_bucket(name, row.stamp, bucket);
                }
            }
        }
        for (bucket, json) in buckets {
            catalogue.add_bucket(bucket, &json)?;
        }
        Ok(catalogue)
    }

    /// The bucket, if the change of this number was the last that wrote it.
    fn s3_unchanged(&self, name: &str, number: Stamp) -> Option<&Arc<Bucket>> {
        self.s3_buckets.get(name).filter(|_| self.s3_numbers.get(name) == Some(&number))
    }

    fn add_s3_bucket(&mut self, name: String, number: Stamp, bucket: Arc<Bucket>) {
        if bucket.state == BucketState::Closing {
            self.s3_closing.insert(name.clone(), number);
        }
        self.s3_numbers.insert(name.clone(), number);
        self.s3_buckets.insert(name, bucket);
    }

    fn add_bucket(&mut self, bucket: BucketAddress, json: &serde_json::Value) -> Result<()> {
        let map = json.as_object().ok_or_else(|| damaged(&"bucket properties are no object"))?;
        let overrides = Overrides::from_json(map).map_err(|_| damaged(&"bucket properties do not hold"))?;
        let record = self.types.get(&bucket.bucket_type).map(|found| Arc::clone(&found.record));
        let effective = TypeRecord::effective(record.as_deref(), &overrides);
        self.buckets.insert(bucket, Own { overrides: Arc::new(overrides), effective });
        Ok(())
    }
}

fn number_of(page: &Page) -> Stamp {
    page.rows.first().filter(|row| row.name.is_empty()).map_or(0, |row| row.stamp)
}

fn s3_bucket_of(name: &str, value: Bytes) -> Result<Bucket> {
    Bucket::from_json(name, &json_of(value)?).map_err(|error| damaged(&error))
}

fn json_of(value: Bytes) -> Result<serde_json::Value> {
    CatalogueRow::decode(value).map(|CatalogueRow(json)| json).map_err(|error| damaged(&error))
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("the catalogue: {error}"))
}

impl Gateway {
    /// Copies of what is in a bucket. They never change, so any catalogue that knows the type will do.
    pub(crate) fn copies(&self, bucket: &BucketAddress) -> u8 {
        self.copies_of_type(&bucket.bucket_type)
    }

    /// Copies of what is in the buckets of a type.
    pub(crate) fn copies_of_type(&self, bucket_type: &[u8]) -> u8 {
        self.catalogue.load().copies(bucket_type)
    }

    /// The catalogue to serve from: checked within the last five seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it cannot be checked now.
    pub(crate) async fn fresh(&self) -> Result<Arc<Catalogue>> {
        let checked = Duration::from_micros(self.checked_at.load(Ordering::Acquire));
        if self.monotonic().saturating_sub(checked) < FRESH || !self.rule(Rule::FreshCatalogue) {
            return Ok(self.catalogue.load_full());
        }
        let stale = |error| Error::NotReady(format!("the catalogue of bucket types cannot be checked: {error}"));
        self.refresh().await.map_err(stale)?;
        Ok(self.catalogue.load_full())
    }

    /// Checks the catalogue's number and reads it anew if it changed. Never goes back to an older one.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let asked = self.micros();
        let _one = self.refreshing.lock().await;
        if self.checked_at.load(Ordering::Acquire) > asked {
            return Ok(()); // Somebody else began to look after we asked.
        }
        let checked = self.micros();
        let number = self.catalogue_number().await?;
        if number > self.catalogue.load().number {
            let rows = self.read_catalogue(number).await?;
            let read = Catalogue::of(rows, &self.catalogue.load())?;
            self.metrics.event(Event::CatalogueRefreshed);
            self.catalogue.store(Arc::new(read));
        }
        self.checked_at.store(checked, Ordering::Release);
        Ok(())
    }

    /// Monotonic time in microseconds, never 0.
    fn micros(&self) -> u64 {
        u64::try_from(self.monotonic().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// The number of the catalogue, by the replicas that are up: with most of them down that may be an older one.
    async fn catalogue_number(&self) -> Result<Stamp> {
        let page = read_own(self.ports.store.as_ref(), &Partition::catalogue(), &ReadQuery::all(1)).await?;
        Ok(number_of(&page))
    }

    /// All rows of one state: pages are not isolated from each other, so the number must be the same before and after. A
    /// quorum has to answer: a single replica may have the head of a change and lack a row of the one before.
    async fn read_catalogue(&self, mut number: Stamp) -> Result<Vec<Row>> {
        for _ in 0..READS_MAX {
            let mut rows: Vec<Row> = Vec::new();
            loop {
                let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
                let page = self.ports.store.read(&Partition::catalogue(), &query, &self.own(Level::Quorum)).await?;
                let ended = page.stopped == larder_store::Stopped::End;
                rows.extend(page.rows);
                if ended {
                    break;
                }
            }
            let options = self.own(Level::Quorum);
            let head = self.ports.store.read(&Partition::catalogue(), &ReadQuery::all(1), &options).await?;
            let after = number_of(&head);
            if after == number && rows.first().is_some_and(|head| head.stamp == number) {
                return Ok(rows);
            }
            number = after;
        }
        Err(Error::NotReady("the catalogue of bucket types changes faster than it can be read".into()))
    }
}
