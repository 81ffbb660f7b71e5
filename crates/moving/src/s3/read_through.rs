//! Keys that requests here ask for before the pass has come to them.
//!
//! Any gateway brings a key, beside the one that passes over all: imports find out which of two is behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::Result;
use larder_rows::address::Address;
use larder_rows::codec::name_after;
use larder_rows::limits::MOVED_SHARDS;
use larder_rows::{MoveOrder, MoveWish, MovedState};
use larder_s3::Objects;
use larder_s3::object_source::{ObjectSource, RemoteKey, RemoteKeyPage, SourceAway};
use larder_s3::rules::Etag;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::bucket_move::{S3Side, moved_bucket};
use super::object_move::{ListedKey, shown_object};
use super::{S3Source, SourceVersion, SourceVersionMarker};
use crate::key_turns::KeyTurns;
use crate::move_run::{KeyFailure, MoveRun, MoveStopped, SweepKind};
use crate::move_store::MoveStore;
use crate::progress::MoveCount;
use crate::rules::SourceAddress;
use crate::source_calls::SourceError;
use crate::source_http::SourceHttp;

/// Longest time that a request waits for the source.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the order of a move is believed.
const ORDER_AGE_MAX: Duration = Duration::from_secs(5);
/// Keys that are brought at a time, and those of one bucket. A large object takes its place until it is here.
const KEYS_AT_ONCE: usize = 64;
const KEYS_OF_A_BUCKET: usize = 8;

/// The keys that requests of this gateway ask the source for.
pub(crate) struct BroughtKeys {
    store: MoveStore,
    objects: Arc<Objects>,
    http: Arc<dyn SourceHttp>,
    run: Mutex<Option<NotedRun>>,
    turns: Arc<KeyTurns>,
    places: Arc<Semaphore>,
    /// The places of each bucket that asked.
    bucket_places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The move that is under way; `None`: there is none from an S3 store.
#[derive(Clone)]
struct NotedRun {
    run: Option<Arc<MoveRun<S3Side>>>,
    /// When its order was read.
    read: Instant,
}

impl BroughtKeys {
    pub(crate) fn new(store: MoveStore, objects: Arc<Objects>, http: Arc<dyn SourceHttp>) -> Self {
        let places = Arc::new(Semaphore::new(KEYS_AT_ONCE));
        let (turns, bucket_places) = (Arc::default(), Mutex::default());
        Self { store, objects, http, run: Mutex::new(None), turns, places, bucket_places }
    }

    /// Asks through this run from now on, whose requests and counts are those of the move.
    pub(crate) fn adopt(&self, run: &Arc<MoveRun<S3Side>>) {
        *self.run.lock() = Some(NotedRun { run: Some(Arc::clone(run)), read: Instant::now() });
    }

    /// A run of this order.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(
        &self,
        address: crate::rules::S3Address,
        order: MoveOrder,
    ) -> Result<Arc<MoveRun<S3Side>>> {
        let secret = order.s3.as_ref().map(|terms| terms.secret.clone()).unwrap_or_default();
        let clock = Arc::clone(&self.store.gateway.context().ports.clock);
        let source = S3Source::new(Arc::clone(&self.http), clock, address, secret, order.rate);
        MoveRun::load(&self.store, S3Side { source, objects: Arc::clone(&self.objects) }, order).await
    }

    /// The move that is under way.
    async fn run(&self) -> Result<Option<Arc<MoveRun<S3Side>>>> {
        let noted = self.run.lock().clone();
        if let Some(noted) = noted.as_ref().filter(|noted| noted.read.elapsed() < ORDER_AGE_MAX) {
            return Ok(noted.run.clone());
        }
        let order = self.store.order().await?;
        let order = order.filter(|order| !matches!(order.wish, MoveWish::Finish | MoveWish::Cancel));
        let same = |order: &MoveOrder| noted?.run.filter(|run| run.order.id == order.id);
        let run = match order.map(|order| (SourceAddress::parse(&order.source), order)) {
            Some((Ok(SourceAddress::S3(address)), order)) => match same(&order) {
                Some(run) => Some(run),
                None => Some(self.load(address, order).await?),
            },
            _ => None,
        };
        *self.run.lock() = Some(NotedRun { run: run.clone(), read: Instant::now() });
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
    async fn bring(&self, bucket: &str, key: &Bytes) -> std::result::Result<(), SourceAway> {
        let deadline = Instant::now() + WAIT_MAX;
        let Some(run) = self.run().await.map_err(|_| SourceAway)? else { return Ok(()) };
        let places = async {
            let of_bucket = self.bucket_places(bucket).acquire_owned().await;
            Some((of_bucket.ok()?, Arc::clone(&self.places).acquire_owned().await.ok()?))
        };
        let places = timeout_at(deadline, places).await.ok().flatten().ok_or(SourceAway)?;
        let (turns, bucket, key) = (Arc::clone(&self.turns), bucket.to_owned(), key.clone());
        // A client that goes away does not end the copy, which the next one would begin anew.
        let task = tokio::spawn(async move {
            let brought = run.bring(&turns, &bucket, &key).await;
            drop(places);
            brought
        });
        match timeout_at(deadline, task).await {
            Ok(Ok(brought)) => brought,
            _ => Err(SourceAway),
        }
    }

    async fn keys(
        &self,
        bucket: &str,
        prefix: &Bytes,
        after: &Bytes,
    ) -> std::result::Result<RemoteKeyPage, SourceAway> {
        let deadline = Instant::now() + WAIT_MAX;
        let Some(run) = self.run().await.map_err(|_| SourceAway)? else { return Ok(RemoteKeyPage::default()) };
        let page = timeout_at(deadline, run.source_keys(bucket, prefix, after)).await;
        page.map_err(|_| SourceAway)?.map_err(|MoveStopped(why)| {
            tracing::debug!(bucket, why, "the source of a move was not listed for a client");
            SourceAway
        })
    }
}

impl MoveRun<S3Side> {
    /// Imports a key that has no version here.
    async fn bring(&self, turns: &KeyTurns, bucket: &str, key: &Bytes) -> std::result::Result<(), SourceAway> {
        let address = Address { bucket: moved_bucket(bucket), key: key.clone() };
        let _turn = turns.wait(&address).await;
        let why = match self.try_bring(bucket, &address).await {
            Ok(()) => return Ok(()),
            Err(KeyFailure::Aside(why) | KeyFailure::Unanswered(why)) => why,
            Err(KeyFailure::Stopped(MoveStopped(why))) => why,
        };
        tracing::debug!(key = shown_object(bucket, key), why, "a key was not brought for a client");
        Err(SourceAway)
    }

    async fn try_bring(&self, bucket: &str, address: &Address) -> std::result::Result<(), KeyFailure> {
        let key = &address.key;
        let here = self.source.objects.current_version(bucket, key).await;
        if here.map_err(|error| KeyFailure::Unanswered(error.to_string()))?.is_some() {
            return Ok(());
        }
        let listed = self.list_key(bucket, key).await?;
        // What is deleted there waits for the pass.
        if listed.versions.first().is_none_or(|newest| newest.is_marker) {
            return Ok(());
        }
        let before = self.store.moved_row(address).await.map_err(|error| KeyFailure::Stopped(error.into()))?;
        self.try_object(bucket, &listed, before, SweepKind::Follow).await?;
        self.count(MoveCount::Brought, 1);
        Ok(())
    }

    /// A key as the source lists it.
    async fn list_key(&self, bucket: &str, key: &Bytes) -> std::result::Result<ListedKey, SourceError> {
        let mut listed = ListedKey { key: key.clone(), versions: Vec::new() };
        let mut after = None::<SourceVersionMarker>;
        loop {
            // It is the first of the keys that begin with it.
            let page = match self.source.source.list_prefix(bucket, key, after.as_ref()).await {
                Err(SourceError::Refused { status: 404, .. }) => return Ok(listed),
                page => page?,
            };
            let count = page.versions.len();
            listed.versions.extend(page.versions.into_iter().filter(|version| version.key == *key));
            let has_others = listed.versions.len() < count;
            after = page.next.filter(|next| next.key == *key && !has_others && !listed.is_full());
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
            Err(SourceError::Refused { status: 404, .. }) => return Ok(RemoteKeyPage::default()),
            page => page?,
        };
        let mut keys: Vec<RemoteKey> = page.versions.into_iter().map(source_key).collect();
        if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
            let kept = self.kept_keys(bucket, first.key.clone(), name_after(&last.key)).await?;
            keys.retain(|listed| !kept.contains(&listed.key));
        }
        Ok(RemoteKeyPage { keys, next: page.next.map(|next| next.key) })
    }

    /// The keys of a range that the move leaves to clients.
    async fn kept_keys(&self, bucket: &str, from: Bytes, until: Bytes) -> std::result::Result<Vec<Bytes>, MoveStopped> {
        let (bucket, mut kept) = (moved_bucket(bucket), Vec::new());
        for shard in 0..MOVED_SHARDS {
            let mut from = from.clone();
            loop {
                let (rows, has_more) = self.store.moved_keys_between(&bucket, shard, from, Some(until.clone())).await?;
                let last = rows.last().map(|(key, _)| key.clone());
                kept.extend(rows.into_iter().filter(|(_, row)| row.state == MovedState::Kept).map(|(key, _)| key));
                match last.filter(|_| has_more) {
                    Some(last) => from = name_after(&last),
                    None => break,
                }
            }
        }
        Ok(kept)
    }
}

fn source_key(version: SourceVersion) -> RemoteKey {
    let SourceVersion { key, etag, length, modified, .. } = version;
    // Sources with other tags are few, and no client takes a tag of zeros for a digest of its bytes.
    let etag = Etag::parse(&etag).unwrap_or(Etag { md5: [0; 16], parts: None });
    RemoteKey { key, etag, length, modified }
}
