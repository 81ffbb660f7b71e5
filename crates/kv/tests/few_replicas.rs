//! Stores with too few replicas: an answer that is lost and cannot be looked up, and heartbeats that one replica alone takes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream, PutBody};
use larder_core::{Config, Error};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_s3::acl::AclChoice;
use larder_s3::{Caller, Error as ObjectsError, Objects, ObjectsConfig};
use larder_s3_rules::S3Action;
use larder_store::memory::MemoryStore;
use larder_store::{
    CallOptions, Clock, ConsistencyLevel, EngineLimits, Error as StoreError, Kind, Result, Store, Table,
};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};

use crate::ports::ports_over;

/// All replicas are up.
const UP: u8 = 0;
/// The next compare-and-set of a `consistent` value is carried out, and its answer is lost.
const LOSES_ANSWER: u8 = 1;
/// After that answer: too few replicas for a read.
const LOST_ANSWER: u8 = 2;
/// One replica of the members is up.
const ONE_MEMBER_REPLICA: u8 = 3;

/// A store in memory that answers like one of several replicas.
struct FewReplicas {
    inner: MemoryStore,
    state: AtomicU8,
}

impl StoreHook for FewReplicas {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn limits(&self) -> EngineLimits {
        EngineLimits { replicated: true, nodes: 3, ..self.inner.limits() }
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let unavailable = || Err(StoreError::new(Kind::Unavailable { alive: 1, required: 2 }, "too few are up"));
        match (self.state.load(Ordering::SeqCst), call) {
            (LOSES_ANSWER, StoreCall::ApplyIf(partition, _)) if partition.table == Table::Consistent => {
                make(options).await?;
                self.state.store(LOST_ANSWER, Ordering::SeqCst);
                Err(StoreError::new(Kind::TimedOut, "the answer is lost"))
            }
            (LOST_ANSWER, StoreCall::Read(partition)) if partition.table == Table::Consistent => unavailable(),
            (ONE_MEMBER_REPLICA, StoreCall::Apply(batch))
                if options.level > ConsistencyLevel::One
                    && batch.partitions.iter().any(|one| one.partition.table == Table::Members) =>
            {
                unavailable()
            }
            _ => make(options).await,
        }
    }
}

async fn gateway() -> (Arc<Gateway>, Arc<FewReplicas>) {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
    let store = Arc::new(FewReplicas { inner: MemoryStore::new(clock.clone()), state: AtomicU8::new(UP) });
    let config = Config { single_process: false, ..Config::default() };
    (Gateway::start(ports_over(Arc::new(Hooked(store.clone())), clock), config).await.unwrap(), store)
}

#[tokio::test(start_paused = true)]
async fn a_consistent_write_whose_answer_is_lost_is_not_reported_as_refused() {
    let (gateway, store) = gateway().await;
    let (name, props) = (Bytes::from("strong"), serde_json::json!({ "consistent": true }));
    gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
    gateway.types().activate(&name).await.unwrap();
    let put = KvPut {
        address: Address::new(BucketAddress::new(name, "b".into()).unwrap(), "k".into()).unwrap(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent::default(),
        upload: PutBody::Bytes("v".into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    store.state.store(LOSES_ANSWER, Ordering::SeqCst);
    let refused = gateway.kv.put(put).await.unwrap_err();
    assert_eq!(store.state.load(Ordering::SeqCst), LOST_ANSWER, "the write was carried out");
    assert!(matches!(refused, Error::TimedOut), "the write may be stored, so its outcome is unknown: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_one_replica_took_lets_no_gateway_write_to_buckets() {
    let (gateway, store) = gateway().await;
    let objects = Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default());
    let user = objects.users.create("a@example.com", "a", false, None).await.unwrap();
    let caller = Caller { user: Some(user), ..Caller::default() }.with_action(S3Action::CreateBucket);
    objects.buckets.create(&caller, "before", AclChoice::default(), None).await.unwrap();
    let caller = caller.with_action(S3Action::PutObject);
    put_object(&objects, &caller).await.unwrap();
    // The others read the members at a quorum, which may lack this heartbeat: they delete buckets without this gateway.
    store.state.store(ONE_MEMBER_REPLICA, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let refused = put_object(&objects, &caller).await.unwrap_err();
    assert!(matches!(refused, ObjectsError::Gateway(Error::NotReady(_))), "{refused:?}");
}

/// The body of an empty object.
struct NoBytes;

#[async_trait]
impl ByteStream for NoBytes {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        None
    }
}

async fn put_object(objects: &Objects, caller: &Caller) -> larder_s3::Result<()> {
    use larder_s3::put::{ChecksumWanted, ObjectMetadata, PutObject, UploadBody, WriteConditions};
    let stream = Box::new(NoBytes);
    let body = UploadBody { stream, length: Some(0), md5: None, checksum: ChecksumWanted::Default };
    let request = PutObject {
        bucket: "before".into(),
        key: "k".into(),
        metadata: ObjectMetadata::default(),
        upload_body: body,
        conditions: WriteConditions::default(),
    };
    objects.put(caller, request).await.map(drop)
}
