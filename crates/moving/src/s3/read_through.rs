//! Keys that requests here ask for before the pass has come to them.
//!
//! Any gateway brings a key, beside the one that passes over all: imports find out which of two is behind.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::Result;
use larder_rows::address::Address;
use larder_rows::codec::name_after;
use larder_rows::{MoveOrder, MoveWish, MovedRow, MovedState};
use larder_s3::Objects;
use larder_s3::object_source::{ObjectSource, RemoteKey, RemoteKeyPage, SourceAway};
use larder_s3_rules::{Etag, Versioning};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::bucket_move::{S3Side, moved_bucket};
use super::object_move::{ListedKey, shown_object};
use super::{S3Source, SourceVersion, SourceVersionMarker};
use crate::move_run::{KeyFailure, MoveRun, MoveStopped, SweepKind};
use crate::move_store::{MoveStore, MovedKeyPages};
use crate::progress::MoveCount;
use crate::rules::{S3Address, SourceAddress};
use crate::source_calls::SourceError;
use crate::source_http::SourceHttp;

/// Longest time that a request waits for the source.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the order of a move is believed.
const ORDER_AGE_MAX: Duration = Duration::from_secs(5);
/// Keys that are brought at a time, and those of one bucket.
const KEYS_AT_ONCE: usize = 64;
const KEYS_OF_A_BUCKET: usize = 8;
/// Keys that take longer than a request waits: so many go on.
const LONG_KEYS_AT_ONCE: usize = 4;
/// How often a key is listed that the source changes meanwhile.
const BRING_TRIES: usize = 3;

type AnswerOfSource<T> = std::result::Result<T, SourceAway>;
/// What became of a key; `None`: it is on its way.
type BringOutcome = Option<AnswerOfSource<()>>;

/// The keys that requests of this gateway ask the source for.
pub(crate) struct BroughtKeys {
    store: MoveStore,
    objects: Arc<Objects>,
    http: Arc<dyn SourceHttp>,
    run: Mutex<Option<NotedRun>>,
    /// The keys that are being brought, each with its outcome to come.
    under_way: Arc<Mutex<HashMap<Address, watch::Receiver<BringOutcome>>>>,
    places: Arc<Semaphore>,
    long_places: Arc<Semaphore>,
    /// The places of each bucket that asked.
    bucket_places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The places of a key that is brought, or of a page.
struct BringPlaces {
    _of_bucket: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The move that is under way.
#[derive(Clone)]
struct NotedRun {
    run: Arc<MoveRun<S3Side>>,
    /// When its order was read.
    read: Instant,
}

impl BroughtKeys {
    pub(crate) fn new(store: MoveStore, objects: Arc<Objects>, http: Arc<dyn SourceHttp>) -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        let (places, long_places) = (semaphore(KEYS_AT_ONCE), semaphore(LONG_KEYS_AT_ONCE));
        let (under_way, bucket_places) = (Arc::default(), Mutex::default());
        Self { store, objects, http, run: Mutex::new(None), under_way, places, long_places, bucket_places }
    }

    /// Asks through this run from now on, whose requests and counts are those of the move.
    pub(crate) fn adopt(&self, run: &Arc<MoveRun<S3Side>>) {
        *self.run.lock() = Some(NotedRun { run: Arc::clone(run), read: Instant::now() });
    }

    /// A run of this order.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(&self, address: S3Address, order: MoveOrder) -> Result<Arc<MoveRun<S3Side>>> {
        let secret = order.s3.as_ref().map(|terms| terms.secret.clone()).unwrap_or_default();
        let clock = Arc::clone(&self.store.gateway.context().ports.clock);
        let source = S3Source::new(Arc::clone(&self.http), clock, address, secret, order.rate);
        MoveRun::load(&self.store, S3Side { source, objects: Arc::clone(&self.objects) }, order).await
    }

    /// The move that is under way; `None`: there is none from an S3 store.
    async fn run(&self) -> Result<Option<Arc<MoveRun<S3Side>>>> {
        let noted = self.run.lock().clone();
        if let Some(noted) = noted.as_ref().filter(|noted| noted.read.elapsed() < ORDER_AGE_MAX) {
            return Ok(Some(Arc::clone(&noted.run)));
        }
        let order = self.store.order().await?;
        let order = order.filter(|order| !matches!(order.wish, MoveWish::Finish | MoveWish::Cancel));
        let same = |order: &MoveOrder| noted.map(|noted| noted.run).filter(|run| run.order.id == order.id);
        let run = match order.map(|order| (SourceAddress::parse(&order.source), order)) {
            Some((Ok(SourceAddress::S3(address)), order)) => match same(&order) {
                Some(run) => Some(run),
                None => Some(self.load(address, order).await?),
            },
            _ => None,
        };
        // That there is none is believed for no moment: a move may begin in the next one.
        *self.run.lock() = run.clone().map(|run| NotedRun { run, read: Instant::now() });
        Ok(run)
    }

    fn bucket_places(&self, bucket: &str) -> Arc<Semaphore> {
        let mut places = self.bucket_places.lock();
        // Bound: as many as the buckets that move; those of former moves have no holder.
        if places.len() > KEYS_AT_ONCE {
            places.retain(|_, places| Arc::strong_count(places) > 1);
        }
        Arc::clone(places.entry(bucket.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(KEYS_OF_A_BUCKET))))
    }
}

#[async_trait]
impl ObjectSource for BroughtKeys {
    async fn bring(&self, bucket: &str, key: &Bytes) -> AnswerOfSource<()> {
        let deadline = Instant::now() + WAIT_MAX;
        let Some(run) = self.run().await.map_err(|_| SourceAway)? else { return Ok(()) };
        // Most keys are here: no place is needed to see that.
        let address = Address { bucket: moved_bucket(bucket), key: key.clone() };
        if run.is_settled(bucket, &address).await.map_err(|_| SourceAway)? {
            return Ok(());
        }
        let begun = outcome_under_way(&self.under_way.lock(), &address);
        let mut outcome = match begun {
            Some(outcome) => outcome,
            None => {
                let places = timeout_at(deadline, self.take_places(bucket)).await.ok().flatten().ok_or(SourceAway)?;
                self.begin(run, bucket, address, places)
            }
        };
        let ended = timeout_at(deadline, outcome.wait_for(Option::is_some)).await;
        // A task that gave up says nothing.
        ended.ok().and_then(|ended| *ended.ok()?).unwrap_or(Err(SourceAway))
    }

    async fn keys(&self, bucket: &str, prefix: &Bytes, after: &Bytes) -> AnswerOfSource<RemoteKeyPage> {
        let Some(run) = self.run().await.map_err(|_| SourceAway)? else { return Ok(RemoteKeyPage::default()) };
        let page = async {
            let _places = self.take_places(bucket).await;
            run.source_keys(bucket, prefix, after).await
        };
        let page = timeout_at(Instant::now() + WAIT_MAX, page).await;
        page.map_err(|_| SourceAway)?.map_err(|MoveStopped(why)| {
            tracing::debug!(bucket, why, "the source of a move was not listed for a client");
            SourceAway
        })
    }
}

impl BroughtKeys {
    /// Waits for a place, first among the requests of the bucket.
    async fn take_places(&self, bucket: &str) -> Option<BringPlaces> {
        let of_bucket = self.bucket_places(bucket).acquire_owned().await.ok()?;
        Some(BringPlaces { _of_all: Arc::clone(&self.places).acquire_owned().await.ok()?, _of_bucket: of_bucket })
    }

    /// Begins to bring a key, unless another request has. A client that goes away does not end that: the next one would begin anew.
    fn begin(
        &self,
        run: Arc<MoveRun<S3Side>>,
        bucket: &str,
        address: Address,
        places: BringPlaces,
    ) -> watch::Receiver<BringOutcome> {
        let mut under_way = self.under_way.lock();
        // Race: another request has begun while this one waited for its place.
        if let Some(outcome) = outcome_under_way(&under_way, &address) {
            return outcome;
        }
        let (end, outcome) = watch::channel(None);
        under_way.insert(address.clone(), outcome.clone());
        drop(under_way);
        let (others, long, bucket) = (Arc::clone(&self.under_way), Arc::clone(&self.long_places), bucket.to_owned());
        tokio::spawn(async move {
            let brought = {
                let bringing = run.bring(&bucket, &address);
                tokio::pin!(bringing);
                match timeout(WAIT_MAX, &mut bringing).await {
                    Ok(brought) => Some(brought),
                    Err(_) => {
                        // Its requests have given up: a few large objects go on, beside the places of the others.
                        drop(places);
                        match long.try_acquire() {
                            Ok(_long) => Some(bringing.await),
                            Err(_) => None,
                        }
                    }
                }
            };
            others.lock().remove(&address);
            end.send_replace(brought);
        });
        outcome
    }
}

/// The outcome to come of a key that is being brought. A task that ended without one counts as none.
fn outcome_under_way(
    under_way: &HashMap<Address, watch::Receiver<BringOutcome>>,
    address: &Address,
) -> Option<watch::Receiver<BringOutcome>> {
    under_way.get(address).filter(|outcome| outcome.has_changed().is_ok()).cloned()
}

impl MoveRun<S3Side> {
    /// Whether a key is here as far as the source had it, or is left to clients.
    async fn is_settled(&self, bucket: &str, address: &Address) -> std::result::Result<bool, KeyFailure> {
        let unanswered = |error: larder_s3::Error| KeyFailure::Unanswered(error.to_string());
        let objects = &self.source.objects;
        let current = objects.current_version(bucket, &address.key).await.map_err(unanswered)?;
        if current.as_ref().is_some_and(|current| current.id.actor() != self.order.actor) {
            return Ok(true);
        }
        let keeps_versions = objects.buckets.find(bucket).await.map_err(unanswered)?.versioning != Versioning::Off;
        if current.is_some() && !keeps_versions {
            return Ok(true);
        }
        // Of a key with versions the older ones come first.
        let row = self.store.moved_row(address).await.map_err(|error| KeyFailure::Stopped(error.into()))?;
        Ok(row.is_some_and(|row| row.complete && row.state != MovedState::Deleted))
    }

    /// Imports a key that is not settled here.
    async fn bring(&self, bucket: &str, address: &Address) -> AnswerOfSource<()> {
        let why = match self.try_bring(bucket, address).await {
            Ok(true) => return Ok(()),
            Ok(false) => "the source changes it all the time".to_owned(),
            Err(KeyFailure::Aside(why) | KeyFailure::Unanswered(why)) => why,
            Err(KeyFailure::Stopped(MoveStopped(why))) => why,
        };
        tracing::debug!(key = shown_object(bucket, &address.key), why, "a key was not brought for a client");
        Err(SourceAway)
    }

    /// Whether the key is settled, or the source does not have it.
    async fn try_bring(&self, bucket: &str, address: &Address) -> std::result::Result<bool, KeyFailure> {
        // Race: a key may be overwritten at the source between its listing and its bytes.
        for _ in 0..BRING_TRIES {
            let listed = self.list_key(bucket, &address.key).await?;
            if listed.versions.is_empty() {
                return Ok(true);
            }
            let before = self.store.moved_row(address).await.map_err(|error| KeyFailure::Stopped(error.into()))?;
            self.try_object(bucket, &listed, before, SweepKind::Follow).await?;
            if self.is_settled(bucket, address).await? {
                self.count(MoveCount::Brought, 1);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A key as the source lists it.
    async fn list_key(&self, bucket: &str, key: &Bytes) -> std::result::Result<ListedKey, SourceError> {
        let mut listed = ListedKey { key: key.clone(), versions: Vec::new() };
        let mut after = None::<SourceVersionMarker>;
        loop {
            // It is the first of the keys that begin with it.
            let page = match self.source.source.list_prefix(bucket, key, after.as_ref()).await {
                Err(error) if error.is_absent_bucket() => return Ok(listed),
                page => page?,
            };
            let has_others = page.versions.iter().any(|version| version.key != *key);
            listed.versions.extend(page.versions.into_iter().filter(|version| version.key == *key));
            after = page.next.filter(|next| next.key <= *key && !has_others && !listed.is_full());
            if after.is_none() {
                return Ok(listed);
            }
        }
    }

    async fn source_keys(
        &self,
        bucket: &str,
        prefix: &Bytes,
        after: &Bytes,
    ) -> std::result::Result<RemoteKeyPage, MoveStopped> {
        let after = (!after.is_empty()).then(|| SourceVersionMarker { key: after.clone(), version: None });
        let page = match self.source.source.list_objects(bucket, prefix, after.as_ref()).await {
            Err(error) if error.is_absent_bucket() => return Ok(RemoteKeyPage::default()),
            page => page?,
        };
        let mut keys: Vec<RemoteKey> = page.versions.into_iter().map(remote_key).collect();
        if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
            let settled = self.settled_keys(bucket, first.key.clone(), name_after(&last.key)).await?;
            keys.iter_mut().for_each(|remote| remote.is_settled = settled.contains(&remote.key));
        }
        Ok(RemoteKeyPage { keys, next: page.next.map(|next| next.key) })
    }

    /// The keys of a range that the move has copied, or leaves to clients.
    async fn settled_keys(
        &self,
        bucket: &str,
        from: Bytes,
        until: Bytes,
    ) -> std::result::Result<BTreeSet<Bytes>, MoveStopped> {
        let (mut pages, mut settled) = (MovedKeyPages::new(moved_bucket(bucket), from, Some(until)), BTreeSet::new());
        while let Some(rows) = self.store.next_moved_keys(&mut pages).await? {
            let is_settled = |row: &MovedRow| row.complete && row.state != MovedState::Deleted;
            settled.extend(rows.into_iter().filter(|(_, row)| is_settled(row)).map(|(key, _)| key));
        }
        Ok(settled)
    }
}

fn remote_key(version: SourceVersion) -> RemoteKey {
    let SourceVersion { key, etag, length, modified, .. } = version;
    // Sources with other tags are few, and no client takes a tag of zeros for a digest of its bytes.
    let etag = Etag::parse(&etag).unwrap_or(Etag { md5: [0; 16], parts: None });
    RemoteKey { key, etag, length, modified, is_settled: false }
}
