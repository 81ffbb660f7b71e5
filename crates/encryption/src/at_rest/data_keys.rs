//! The data keys of a store: rows that a master key wraps.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use larder_rows::DataKeyRow;
use larder_store::{
    Batch, CallOptions, Change, ConsistencyLevel, Durability, Error, Kind, Partition, ReadQuery, Row, Stopped, Store,
    Timestamp,
};
use quick_cache::sync::Cache;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::sealed_value::{DataKey, DataKeyId, RowKeys, UnopenedKey, WRAPPED, WrappedDataKey};
use crate::key_ring::{KeyRing, KeyRingError};
use crate::secret_key::{MasterKeyId, SecretKey};

/// Rows of a page: each start of a server makes one row.
const PAGE_ROWS: usize = 1_000;
/// How long a key that was not found counts as absent: a client's body may look as if one had sealed it.
const ABSENT_FOR: Duration = Duration::from_secs(10);
/// Most keys that are known to be absent. A forgotten one costs a read of one row.
const ABSENT_MAX: usize = 1_000;

/// The data keys of a store.
pub struct DataKeys {
    store: Arc<dyn Store>,
    ring: Arc<KeyRing>,
    random: fn(&mut [u8]),
    /// Whether new values are sealed.
    seals: bool,
    known: ArcSwap<RowKeys>,
    /// The key of this run.
    current: ArcSwapOption<DataKey>,
    /// Held while keys are made or wrapped anew, so that calls beside each other do it once.
    busy: Mutex<()>,
    /// The keys that are not in the store, or do not open, and until when nobody looks again.
    absent: Cache<DataKeyId, Instant>,
}

/// Whether rows and bodies are sealed from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealWish {
    /// No.
    Nothing,
    /// Not by this server, but perhaps by another one over the same store.
    Open,
    /// Yes.
    Seal,
}

/// The data keys, as an operator sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataKeyStatus {
    /// Whether new values are sealed.
    pub seals: bool,
    /// Each master key that wraps data keys, and how many.
    pub wrapped_by: Vec<(MasterKeyId, usize)>,
}

/// Why the sealed rows of a store cannot be opened or made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AtRestError {
    /// The ring lacks a master key.
    #[error("rows are encrypted under the master key {0}, which is not in the ring of --encryption-keys")]
    MissingMasterKey(MasterKeyId),
    /// The row of a data key is damaged.
    #[error("the data key {0} is damaged: the rows under it cannot be read")]
    Damaged(String),
    /// No master key.
    #[error(transparent)]
    Ring(#[from] KeyRingError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl DataKeys {
    /// The data keys of the store; `None` where it has none, and none are to come from here or from another
    /// gateway.
    ///
    /// # Errors
    /// `MissingMasterKey`, `Damaged`; errors of the store.
    pub async fn open(
        store: Arc<dyn Store>,
        ring: Arc<KeyRing>,
        random: fn(&mut [u8]),
        wish: SealWish,
        deadline: Instant,
    ) -> Result<Option<Arc<Self>>, AtRestError> {
        let keys = Self {
            store,
            ring,
            random,
            seals: wish == SealWish::Seal,
            known: ArcSwap::default(),
            current: ArcSwapOption::empty(),
            busy: Mutex::default(),
            absent: Cache::new(ABSENT_MAX),
        };
        keys.read_all(deadline).await?;
        let is_needed = wish != SealWish::Nothing || !keys.known.load().0.is_empty();
        Ok(is_needed.then(|| Arc::new(keys)))
    }

    /// Whether new values are sealed.
    pub(super) fn seals(&self) -> bool {
        self.seals
    }

    /// The keys known now.
    pub(super) fn known(&self) -> Guard<Arc<RowKeys>> {
        self.known.load()
    }

    /// The key of this run. The first call makes it.
    ///
    /// # Errors
    /// Errors of the store, and of the ring as such.
    pub(super) async fn current(&self, deadline: Instant) -> Result<Arc<DataKey>, Error> {
        if let Some(key) = self.current.load_full() {
            return Ok(key);
        }
        let _busy = self.wait_for_turn(deadline).await?;
        match self.current.load_full() {
            Some(key) => Ok(key),
            None => self.make(deadline).await,
        }
    }

    /// A key that another gateway may have made since the start. One that does not open is `None`, too.
    ///
    /// Callers that look for an absent key read its row once in ten seconds, whatever their number.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn find(&self, id: DataKeyId, deadline: Instant) -> Result<Option<Arc<DataKey>>, Error> {
        let known = || self.known.load().0.get(&id).map(|found| Arc::clone(&found.key));
        if let Some(key) = known() {
            return Ok(Some(key));
        }
        self.absent.remove_if(&id, |until| *until <= Instant::now());
        let looked = timeout_at(deadline, self.absent.get_value_or_guard_async(&id)).await.map_err(|_| timed_out())?;
        let Err(turn) = looked else { return Ok(None) };
        // The caller before this one may have found it.
        if let Some(key) = known() {
            return Ok(Some(key));
        }
        let query = ReadQuery::one(Bytes::copy_from_slice(&id.0));
        let page = self.store.read(&Partition::data_keys(), &query, &read_options(deadline)).await?;
        let Some(found) = page.rows.first().and_then(|row| self.open_row(row).ok()) else {
            // Full of searches under way, it forgets this one.
            let _ = turn.insert(Instant::now() + ABSENT_FOR);
            return Ok(None);
        };
        let key = Arc::clone(&found.key);
        self.learn(&found);
        Ok(Some(key))
    }

    /// Wraps every data key with the newest master key. Returns how many were wrapped by another.
    ///
    /// # Errors
    /// As for [`Self::open`]. What is wrapped anew stays so.
    pub async fn rewrap(&self, deadline: Instant) -> Result<usize, AtRestError> {
        let _busy = self.wait_for_turn(deadline).await?;
        self.read_all(deadline).await?;
        let master = self.ring.current(self.random).await?;
        let known = self.known.load_full();
        let mut count = 0;
        for older in known.0.values().filter(|found| found.master != master.master_id()) {
            let stamp = older.stamp.saturating_add(1);
            self.write(&older.key, &master, stamp, deadline).await?;
            count += 1;
        }
        self.read_all(deadline).await?;
        Ok(count)
    }

    /// The keys, as an operator sees them.
    #[must_use]
    pub fn status(&self) -> DataKeyStatus {
        let mut wrapped_by: Vec<(MasterKeyId, usize)> = Vec::new();
        for found in self.known.load().0.values() {
            match wrapped_by.iter_mut().find(|(master, _)| *master == found.master) {
                Some((_, count)) => *count += 1,
                None => wrapped_by.push((found.master, 1)),
            }
        }
        wrapped_by.sort_by_key(|(master, _)| master.0);
        DataKeyStatus { seals: self.seals, wrapped_by }
    }

    async fn wait_for_turn(&self, deadline: Instant) -> Result<MutexGuard<'_, ()>, Error> {
        let turn = timeout_at(deadline, self.busy.lock()).await;
        turn.map_err(|_| timed_out())
    }

    /// Adds a key to those known. Race: one of the same id stays, as it may have been wrapped anew since this one was read.
    fn learn(&self, found: &WrappedDataKey) {
        self.known.rcu(|known| {
            let mut all = RowKeys::clone(known);
            all.0.entry(found.key.id).or_insert_with(|| found.clone());
            all
        });
    }

    async fn make(&self, deadline: Instant) -> Result<Arc<DataKey>, Error> {
        let master = self.ring.current(self.random).await.map_err(|error| as_store_error(error.into()))?;
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        (self.random)(&mut id);
        (self.random)(&mut secret);
        let key = Arc::new(DataKey::new(DataKeyId(id), SecretKey::new(secret))?);
        // Crash: a value whose data key is not on disk is lost, so the key goes first [invariant 185].
        let stamp = self.write(&key, &master, Timestamp(1), deadline).await.map_err(as_store_error)?;
        self.learn(&WrappedDataKey { master: master.master_id(), stamp, key: Arc::clone(&key) });
        self.current.store(Some(Arc::clone(&key)));
        Ok(key)
    }

    /// Writes the row of a key, with a stamp of at least `least`; returns the stamp.
    async fn write(
        &self,
        key: &DataKey,
        master: &SecretKey,
        least: Timestamp,
        deadline: Instant,
    ) -> Result<Timestamp, AtRestError> {
        let mut nonce = [0; 12];
        (self.random)(&mut nonce);
        let wrapped_key = master.wrap(WRAPPED, &key.secret, nonce).map_err(Error::from)?;
        let value = DataKeyRow { master_key: master.master_id().0, wrapped_key }.encode();
        // On a full disk deletes need the key, too.
        let options = CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Forced).reclaiming();
        let stamp = self.store.now(&options).await?.max(least);
        let row = Row { name: Bytes::copy_from_slice(&key.id.0), value, stamp, expires: None };
        self.store.apply(Batch::single(Partition::data_keys(), vec![Change::Put(row)]), &options).await?;
        Ok(stamp)
    }

    /// Opens all keys.
    async fn read_all(&self, deadline: Instant) -> Result<(), AtRestError> {
        let rows = self.rows(deadline).await?;
        let keys = rows.iter().map(|row| self.open_row(row).map(|found| (found.key.id, found)));
        self.known.store(Arc::new(RowKeys(keys.collect::<Result<_, _>>()?)));
        Ok(())
    }

    async fn rows(&self, deadline: Instant) -> Result<Vec<Row>, Error> {
        let options = read_options(deadline);
        let (mut query, mut rows) = (ReadQuery::all(PAGE_ROWS), Vec::new());
        loop {
            let page = self.store.read(&Partition::data_keys(), &query, &options).await?;
            rows.extend(page.rows);
            match (page.stopped, rows.last()) {
                (Stopped::Limit, Some(last)) => query.continue_after(&last.name),
                _ => return Ok(rows),
            }
        }
    }

    fn open_row(&self, row: &Row) -> Result<WrappedDataKey, AtRestError> {
        match WrappedDataKey::from_row(row, &self.ring) {
            Ok(found) => match self.current.load_full().filter(|current| current.id == found.key.id) {
                // The key of this run counts on.
                Some(key) => Ok(WrappedDataKey { key, ..found }),
                None => Ok(found),
            },
            Err(UnopenedKey::MissingMasterKey(master)) => Err(AtRestError::MissingMasterKey(master)),
            Err(UnopenedKey::Damaged) => Err(AtRestError::Damaged(hex::encode(&row.name))),
        }
    }
}

fn read_options(deadline: Instant) -> CallOptions {
    CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered)
}

fn timed_out() -> Error {
    Error::new(Kind::TimedOut, "waiting for the data keys")
}

fn as_store_error(error: AtRestError) -> Error {
    match error {
        AtRestError::Store(error) => error,
        AtRestError::Ring(KeyRingError::DiskFull) => Error::new(Kind::Full, "the key ring"),
        AtRestError::MissingMasterKey(_) | AtRestError::Damaged(_) => Error::new(Kind::Damaged, error.to_string()),
        AtRestError::Ring(_) => Error::new(Kind::Io, error.to_string()),
    }
}
