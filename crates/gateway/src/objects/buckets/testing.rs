//! What tests of the S3 side stand on: gateways over one store in memory, under the runtime's own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_model::hash::id128;
use larder_model::keyspace::entry_shard;
use larder_model::objects::{Bucket, Entry, Etag, Head, Object, ObjectBody, User, Version, VersionId};
use larder_model::rows::{Change, Micros, Row, Stamp};
use larder_store::memory::MemoryStore;
use larder_store::{Clock, Level, Partition, Shadow};
use tokio::time::Instant;

use crate::objects::{Caller, Objects, ObjectsConfig};
use crate::{Config, Gateway, Ports, Rules};

/// When virtual time begins.
pub(in crate::objects) const BEGIN: Micros = 1_800_000_000_000_000;

/// The runtime's time as a clock.
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Micros {
        BEGIN + self.0.elapsed().as_micros() as u64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() + Duration::from_secs(1)
    }
}

/// Bytes that never come twice.
fn unique(bytes: &mut [u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    for chunk in bytes.chunks_mut(16) {
        let word = id128(&[&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes()]).to_be_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// A store, and when time began.
pub(in crate::objects) struct World {
    pub(in crate::objects) store: Arc<MemoryStore>,
    start: Instant,
    actors: AtomicU64,
}

impl World {
    /// An empty one.
    pub(in crate::objects) fn new() -> Self {
        let start = Instant::now();
        Self { store: Arc::new(MemoryStore::new(Arc::new(TestClock(start)))), start, actors: AtomicU64::new(1) }
    }

    /// One more gateway over the store.
    pub(in crate::objects) async fn gateway(&self, rules: Rules) -> Arc<Objects> {
        self.gateway_of(rules, ObjectsConfig { alone: false, ..ObjectsConfig::default() }).await
    }

    /// One more gateway with these settings.
    pub(in crate::objects) async fn gateway_of(&self, rules: Rules, settings: ObjectsConfig) -> Arc<Objects> {
        let actor = self.actors.fetch_add(1, Ordering::Relaxed);
        let ports = Ports {
            store: Arc::clone(&self.store) as _,
            blobs: Arc::clone(&self.store) as _,
            clock: Arc::new(TestClock(self.start)),
            actor,
            random: unique,
            engine: Arc::new("memory"),
            rules,
        };
        let config = Config { node: format!("g{actor}"), alone: false, ..Config::default() };
        Objects::new(Gateway::start(ports, config).await.unwrap(), settings)
    }
}

/// A caller who is this user.
pub(in crate::objects) fn caller(user: &Arc<User>) -> Caller {
    Caller { user: Some(Arc::clone(user)), ..Caller::default() }
}

/// A new user as caller.
pub(in crate::objects) async fn new_caller(objects: &Objects, name: &str) -> Caller {
    caller(&objects.create_user(&format!("{name}@example.com"), name, false, None).await.unwrap())
}

/// A version written at `stamp`: an object of `length` bytes, or a delete marker.
pub(in crate::objects) fn version(stamp: Stamp, null: bool, length: Option<usize>) -> Version {
    let object = length.map(|length| Object {
        body: ObjectBody::Inline(vec![b'x'; length].into()),
        etag: Etag { md5: [7; 16], parts: None },
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        upload: None,
    });
    Version { id: VersionId::new(stamp, 1), null, modified: stamp, owner: "owner".into(), object }
}

/// Writes the versions of a key, newest first, as a committed change would leave them.
pub(in crate::objects) async fn write_versions(objects: &Objects, bucket: &Bucket, key: &[u8], versions: &[Version]) {
    let (partition, options) = (Partition::head(bucket.id, key), objects.gateway.own(Level::Quorum));
    let query = larder_store::ReadQuery::all(1000);
    let page = objects.gateway.ports.store.read(&partition, &query, &options).await.unwrap();
    let expected = page.rows.first().map(|row| row.stamp);
    objects.gateway.clock.pass(expected.unwrap_or(0) + 1);
    let stamp = objects.gateway.issue().await.unwrap();
    let older = versions.get(1..).unwrap_or_default();
    let head = Head {
        current: versions.first().cloned(),
        null: older.iter().find(|version| version.null).map(|version| version.id),
        older: !older.is_empty(),
        shared: false,
        release: Vec::new(),
    };
    let shadow = Shadow {
        partition: Partition::entries(bucket.id, entry_shard(key)),
        name: Bytes::copy_from_slice(key),
        value: Entry::of(&head).map(|entry| entry.encode()),
    };
    let row = |name, value| Row { name, value, stamp, expires: None };
    let put = |version: &Version| Change::Put(row(version.row_name(), version.encode()));
    let gone = page.rows.iter().skip(1).filter(|old| older.iter().all(|version| version.row_name() != old.name));
    let gone = gone.map(|old| Change::Remove { name: old.name.clone(), stamp });
    let changes = older.iter().map(put).chain(gone).collect();
    let head = larder_store::Head { row: row(Bytes::new(), head.encode()), shadow: Some(shadow) };
    let swap = objects.gateway.ports.store.apply_if(&partition, expected, head, changes, &options).await.unwrap();
    assert_eq!(swap, larder_store::Swap::Applied);
}
