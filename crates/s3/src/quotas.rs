//! Quotas of buckets and of users: most objects and bytes. A write is admitted before its body is read.
//!
//! ```text
//! measurement: what the rows say ──┐
//! writes that ended since then ────┼──> stored + this write <= quota ?   of the bucket, and of all buckets of its owner
//! admitted writes under way ───────┘
//! ```
//! A gateway measures a bucket before the first write that a quota limits, and again once in a while. Until then it counts its
//! own writes, but no removals and no writes of other gateways: so a refusal measures again before it is given, and gateways
//! of one cluster may together exceed a quota by what they admit between two measurements. A bucket without a quota costs a
//! lookup in memory.

mod measure;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::rules::catalogue_row::CatalogueKey;
use larder_core::types::CatalogueEdit;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::commit::{HeadStore, ObjectLocation};
use super::{Error, Result};
use crate::catalogue::S3Catalogue;
use crate::rules::{Bucket, BucketId, BucketState, Storage, StorageQuota, Versioning};
use measure::{Ledger, Measurer};

pub(super) use measure::current_storage;

/// Age of a measurement after which the next write starts another one.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Age of a measurement on which a write may be refused.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(1);

/// The holder of a quota.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaHolder {
    /// The bucket of this name.
    Bucket(String),
    /// The user of this canonical id: all its buckets together.
    User(String),
}

/// The quotas of the S3 interface.
pub struct Quotas {
    heads: Arc<HeadStore>,
    ledger: Arc<Mutex<Ledger>>,
    measurer: Arc<Measurer>,
    /// The running measurements.
    tasks: Mutex<JoinSet<()>>,
}

/// A quota that limits a write, and the buckets that count.
struct QuotaScope {
    quota: StorageQuota,
    buckets: Vec<Arc<Bucket>>,
    is_of_user: bool,
}

/// Room that a write was given. Dropped without [`Admission::written`], the room is free again.
#[must_use]
#[derive(Default)]
pub(super) struct Admission<'a> {
    opened: Option<(&'a Quotas, BucketId, Storage)>,
}

impl Admission<'_> {
    /// The write has ended well: its room stays taken.
    pub(super) fn written(mut self) {
        if let Some((quotas, bucket, room)) = self.opened.take() {
            quotas.ledger.lock().close(bucket, room, true);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some((quotas, bucket, room)) = self.opened.take() {
            quotas.ledger.lock().close(bucket, room, false);
        }
    }
}

impl Quotas {
    pub(super) fn new(heads: &Arc<HeadStore>) -> Self {
        let (heads, measurer) = (Arc::clone(heads), Arc::new(Measurer::new(heads)));
        Self { heads, ledger: Arc::default(), measurer, tasks: Mutex::default() }
    }

    /// Gives a write of `key` its room.
    ///
    /// # Errors
    /// `QuotaExceeded`; `Overloaded` when a bucket cannot be measured in the time of a request.
    pub(super) async fn admit(&self, bucket: &Arc<Bucket>, key: &Bytes, room: Storage) -> Result<Admission<'_>> {
        let scopes = self.scopes(bucket).await?;
        if scopes.is_empty() {
            return Ok(Admission::default());
        }
        self.measure(&scopes, Duration::MAX).await?;
        if let Ok(admission) = self.open(&scopes, bucket.id, room) {
            // The next writes find its result; this one does not wait.
            drop(self.start_due(&scopes, AGE_MAX));
            return Ok(admission);
        }
        // A full bucket still takes an object in the place of another one.
        let room = self.without_replaced(bucket, key, room).await?;
        if let Ok(admission) = self.open(&scopes, bucket.id, room) {
            return Ok(admission);
        }
        // Objects may have been removed since the last measurement.
        self.measure(&scopes, REFUSAL_AGE_MAX).await?;
        self.open(&scopes, bucket.id, room)
    }

    /// The admission of a body that has come: that of its announced length, or another one, of the room that it took.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(super) async fn admit_received<'a>(
        &'a self,
        admission: Admission<'a>,
        announced: Option<u64>,
        bucket: &Arc<Bucket>,
        key: &Bytes,
        room: Storage,
    ) -> Result<Admission<'a>> {
        if announced.is_some() {
            return Ok(admission);
        }
        drop(admission);
        self.admit(bucket, key, room).await
    }

    /// Sets the quota of a holder; one without limits removes it. When this returns, every live gateway applies it.
    ///
    /// # Errors
    /// `NoSuchBucket`, and any error of the store.
    pub async fn set(&self, holder: &QuotaHolder, quota: StorageQuota) -> Result<()> {
        let gateway = &self.heads.gateway;
        let change = gateway.catalogue().change::<Error>(|catalogue| match holder {
            QuotaHolder::Bucket(name) => {
                let bucket = super::buckets::active(catalogue, name);
                let before = bucket.ok_or_else(|| Error::NoSuchBucket(name.clone()))?;
                super::buckets::catalogue_edit(before, &Bucket { quota, ..Bucket::clone(before) })
            }
            QuotaHolder::User(id) if quota == StorageQuota::default() => {
                Ok(CatalogueEdit::Remove(CatalogueKey::S3UserQuota(id.clone())))
            }
            QuotaHolder::User(id) => Ok(CatalogueEdit::Write(CatalogueKey::S3UserQuota(id.clone()), quota.to_json())),
        });
        let number = change.await?;
        Ok(gateway.members().await_propagation(number).await?)
    }

    /// All quotas, by holder.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn all(&self) -> Result<BTreeMap<QuotaHolder, StorageQuota>> {
        let catalogue = self.heads.gateway.catalogue().refreshed().await?;
        let of_buckets = S3Catalogue::within(&catalogue)
            .buckets()
            .map(|bucket| (QuotaHolder::Bucket(bucket.name.clone()), bucket.quota));
        let of_users =
            S3Catalogue::within(&catalogue).quotas().map(|(id, quota)| (QuotaHolder::User(id.clone()), *quota));
        Ok(of_buckets.chain(of_users).filter(|(_, quota)| *quota != StorageQuota::default()).collect())
    }

    /// The quota of a holder, and what it stores now.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Overloaded` when a bucket cannot be measured in the time of a request.
    pub async fn stored(&self, holder: &QuotaHolder) -> Result<(StorageQuota, Storage)> {
        let catalogue = self.heads.gateway.catalogue().refreshed().await?;
        let scope = match holder {
            QuotaHolder::Bucket(name) => {
                let bucket = super::buckets::active(&catalogue, name);
                bucket_scope(bucket.ok_or_else(|| Error::NoSuchBucket(name.clone()))?)
            }
            QuotaHolder::User(id) => user_scope(&catalogue, id),
        };
        let scopes = [scope];
        self.measure(&scopes, Duration::ZERO).await?;
        let [QuotaScope { quota, buckets, .. }] = &scopes;
        Ok((*quota, self.ledger.lock().stored(buckets.iter().map(|bucket| bucket.id)).ok_or_else(not_measured)?))
    }

    /// What a bucket stores by its last measurement, for display: an older one than a minute is begun again, and awaited for
    /// `patience` at most. `None` where none has ended yet.
    pub async fn last_stored(&self, bucket: &Arc<Bucket>, patience: Duration) -> Option<Storage> {
        let deadline = Instant::now() + patience;
        for mut running in self.start_due(&[bucket_scope(bucket)], AGE_MAX) {
            // One that goes on serves later looks.
            let _ = timeout_at(deadline, running.changed()).await;
        }
        self.ledger.lock().stored(std::iter::once(bucket.id))
    }

    /// The quotas that limit a write into this bucket.
    async fn scopes(&self, bucket: &Arc<Bucket>) -> Result<Vec<QuotaScope>> {
        let catalogue = self.heads.gateway.catalogue().fresh().await?;
        let mut scopes = vec![bucket_scope(bucket)];
        if S3Catalogue::within(&catalogue).quota(&bucket.owner) != StorageQuota::default() {
            scopes.push(user_scope(&catalogue, &bucket.owner));
        }
        scopes.retain(|scope| scope.quota != StorageQuota::default());
        Ok(scopes)
    }

    /// Takes room in all scopes at once, or says which quota is used up.
    fn open(&self, scopes: &[QuotaScope], bucket: BucketId, room: Storage) -> Result<Admission<'_>> {
        let mut ledger = self.ledger.lock();
        for scope in scopes {
            let mut stored = ledger.stored(scope.buckets.iter().map(|bucket| bucket.id)).ok_or_else(not_measured)?;
            stored += room;
            if !scope.quota.holds(stored) {
                return Err(Error::QuotaExceeded(scope.refusal()));
            }
        }
        ledger.open(bucket, room);
        Ok(Admission { opened: Some((self, bucket, room)) })
    }

    /// The room without that of the current object, where a new one replaces it.
    async fn without_replaced(&self, bucket: &Bucket, key: &Bytes, room: Storage) -> Result<Storage> {
        if room.objects == 0 || bucket.versioning != Versioning::Off {
            return Ok(room);
        }
        let partition = ObjectLocation::new(bucket, key).partition();
        let current = self.heads.read_head(&partition, &self.heads.options()).await?.head.current;
        let replaced = current.and_then(|version| version.object).map(|object| Storage::object(object.length()));
        Ok(room.less(replaced.unwrap_or_default()))
    }

    /// Waits until each bucket has a measurement of at most this age.
    async fn measure(&self, scopes: &[QuotaScope], age_max: Duration) -> Result<()> {
        let deadline = Instant::now() + self.heads.gateway.context().config.timeout;
        for mut running in self.start_due(scopes, age_max) {
            // A measurement that goes on after the deadline serves later requests.
            let ended = timeout_at(deadline, running.changed()).await;
            drop(ended.map_err(|_| not_measured())?);
        }
        Ok(())
    }

    /// Starts a measurement of each bucket whose last one is older; those that run already are among the results.
    fn start_due(&self, scopes: &[QuotaScope], age_max: Duration) -> Vec<watch::Receiver<()>> {
        let (mut ledger, now) = (self.ledger.lock(), Instant::now());
        let mut due: Vec<_> = scopes.iter().flat_map(|scope| &scope.buckets).collect();
        due.retain(|bucket| ledger.is_due(bucket.id, now, age_max));
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let start = |bucket: &Arc<Bucket>| {
            ledger.running(bucket.id).unwrap_or_else(|| {
                let (ended, running) = watch::channel(());
                ledger.begin(bucket.id, running.clone());
                let (measurer, ledger, bucket) =
                    (Arc::clone(&self.measurer), Arc::clone(&self.ledger), Arc::clone(bucket));
                drop(tasks.spawn(async move {
                    measurer.measure(&bucket, &ledger).await;
                    drop(ended);
                }));
                running
            })
        };
        due.into_iter().map(start).collect()
    }
}

impl QuotaScope {
    fn refusal(&self) -> String {
        let name = self.buckets.first().map_or("", |bucket| &bucket.name);
        match self.is_of_user {
            true => format!("The quota of the bucket's owner is used up: {} in all its buckets.", self.quota),
            false => format!("The quota of the bucket {name} is used up: {}.", self.quota),
        }
    }
}

fn bucket_scope(bucket: &Arc<Bucket>) -> QuotaScope {
    QuotaScope { quota: bucket.quota, buckets: vec![Arc::clone(bucket)], is_of_user: false }
}

fn user_scope(catalogue: &larder_core::types::Catalogue, id: &str) -> QuotaScope {
    let is_counted = |bucket: &&Arc<Bucket>| bucket.owner == id && bucket.state == BucketState::Active;
    let buckets = S3Catalogue::within(catalogue).buckets().filter(is_counted).cloned().collect();
    QuotaScope { quota: S3Catalogue::within(catalogue).quota(id), buckets, is_of_user: true }
}

fn not_measured() -> Error {
    larder_core::Error::Overloaded { retry_after: 1 }.into()
}
