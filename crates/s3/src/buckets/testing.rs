//! Test support of the S3 side: gateways over one memory store, under the runtime's virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_core::node_context::internal_options;
use larder_core::{Config, Core, GatewayPorts};
use larder_rows::keyspace::entry_shard;
use larder_rows::{ActorId, Change, Row, Timestamp};
use larder_store::memory::MemoryStore;
use larder_store::{Blobs, ConsistencyLevel, DerivedRow, Partition, Store};
use larder_testkit::{VirtualClock, unique_bytes};
use tokio::time::Instant;

use crate::rules::{
    Bucket, Etag, ListingEntry, Object, ObjectBody, ObjectHead, ObjectLock, S3Action, User, Version, VersionId,
};
use crate::{Caller, Objects, ObjectsConfig, S3Catalogue};

/// Start of virtual time.
pub(crate) const BEGIN: Timestamp = VirtualClock::BEGIN;

/// The ports of a gateway over these, in its run as this actor.
pub(crate) fn ports_over(
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    clock: Arc<VirtualClock>,
    actor: u64,
) -> GatewayPorts {
    GatewayPorts {
        store,
        blobs,
        clock,
        actor: ActorId(actor),
        random: unique_bytes,
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        product: S3Catalogue::empty(),
        webhooks: None,
    }
}

/// A memory store and the start of virtual time.
pub(crate) struct S3TestStore {
    pub(crate) store: Arc<MemoryStore>,
    start: Instant,
    actors: AtomicU64,
}

impl S3TestStore {
    /// An empty store.
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self { store: Arc::new(MemoryStore::new(Arc::new(VirtualClock(start)))), start, actors: AtomicU64::new(1) }
    }

    /// Starts one more gateway over the store.
    pub(crate) async fn gateway(&self) -> Arc<Objects> {
        self.gateway_with(ObjectsConfig { single_process: false, ..ObjectsConfig::default() }).await
    }

    /// Starts one more gateway with these settings.
    pub(crate) async fn gateway_with(&self, settings: ObjectsConfig) -> Arc<Objects> {
        let actor = self.actors.fetch_add(1, Ordering::Relaxed);
        let clock = Arc::new(VirtualClock(self.start));
        let ports = ports_over(Arc::clone(&self.store) as _, Arc::clone(&self.store) as _, clock, actor);
        let config = Config { node: format!("g{actor}"), single_process: false, ..Config::default() };
        Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), settings)
    }
}

/// The caller for this user, for a put. Another action counts only in buckets of others: an owner may do anything.
pub(crate) fn caller(user: &Arc<User>) -> Caller {
    Caller { user: Some(Arc::clone(user)), ..anonymous(S3Action::PutObject) }
}

/// The anonymous caller, for this action.
pub(crate) fn anonymous(action: S3Action) -> Caller {
    Caller::default().with_action(action)
}

/// Creates a user and returns its caller.
pub(crate) async fn new_caller(objects: &Objects, name: &str) -> Caller {
    caller(&objects.users.create(&format!("{name}@example.com"), name, false, None).await.unwrap())
}

/// A version of `stamp`: an object of `length` bytes, or a delete marker.
pub(crate) fn version(stamp: Timestamp, null: bool, length: Option<usize>) -> Version {
    let object = length.map(|length| Object {
        body: ObjectBody::Inline(vec![b'x'; length].into()),
        etag: Etag { md5: [7; 16], parts: None },
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        upload: None,
        encryption: None,
        lock: ObjectLock::default(),
    });
    Version { id: VersionId::new(stamp, ActorId(1)), null, modified: stamp, owner: "owner".into(), object }
}

/// Writes the versions of a key, newest first, as a committed change leaves them.
pub(crate) async fn write_versions(objects: &Objects, bucket: &Bucket, key: &[u8], versions: &[Version]) {
    let (partition, options) = (Partition::head(bucket.id, key), internal_options(ConsistencyLevel::Quorum));
    let query = larder_store::ReadQuery::all(1000);
    let page = objects.gateway.context().ports.store.read(&partition, &query, &options).await.unwrap();
    let expected = page.rows.first().map(|row| row.stamp);
    objects.gateway.issuer().clock.observe(expected.unwrap_or(Timestamp::ZERO) + 1);
    let stamp = objects.gateway.issuer().issue().await.unwrap();
    let older = versions.get(1..).unwrap_or_default();
    let head = ObjectHead {
        current: versions.first().cloned(),
        null: older.iter().find(|version| version.null).map(|version| version.id),
        older: !older.is_empty(),
        shared: false,
        release: Vec::new(),
    };
    let derived = DerivedRow {
        partition: Partition::entries(bucket.id, entry_shard(key)),
        name: Bytes::copy_from_slice(key),
        value: ListingEntry::from_head(&head).map(|entry| entry.encode()),
    };
    let row = |name, value| Row { name, value, stamp, expires: None };
    let put = |version: &Version| Change::Put(row(version.row_name(), version.encode()));
    let gone = page.rows.iter().skip(1).filter(|old| older.iter().all(|version| version.row_name() != old.name));
    let gone = gone.map(|old| Change::Remove { name: old.name.clone(), stamp });
    let changes = older.iter().map(put).chain(gone).collect();
    let head = larder_store::HeadWrite { row: row(Bytes::new(), head.encode()), derived: Some(derived), beside: None };
    let swap =
        objects.gateway.context().ports.store.apply_if(&partition, expected, head, changes, &options).await.unwrap();
    assert_eq!(swap, larder_store::CasResult::Applied);
}
