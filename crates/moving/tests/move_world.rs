//! A gateway over a store in memory, a source, and the job of a move between them, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::body::{GetBody, PutBody};
use larder_core::{Config, GatewayPorts};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_moving::rules::SourceAddress;
use larder_moving::{MovePhase, MoveStatus, Mover, NewMove, SourceHttp};
use larder_rows::ActorId;
use larder_rows::MoveWish;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvContent, Term};
use larder_s3::{Objects, ObjectsConfig, S3Catalogue};
use larder_store::Clock;
use larder_store::memory::MemoryStore;
use larder_testkit::{VirtualClock, unique_bytes};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The longest time of a phase, in virtual seconds.
const PHASE_SECONDS: u64 = 3600;

/// A gateway, the source, and the job.
pub(crate) struct MoveWorld<S> {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) source: Arc<S>,
    pub(crate) mover: Arc<Mover>,
    pub(crate) job: JoinHandle<()>,
}

pub(crate) fn new_move(source: &str, types: &[&'static str]) -> NewMove {
    let source = SourceAddress::parse(source).unwrap();
    NewMove {
        source,
        types: types.iter().map(|name| Bytes::from_static(name.as_bytes())).collect(),
        rate: 1000,
        queue: "larder".to_owned(),
        s3: None,
    }
}

/// The ports of a gateway over a memory store of its own.
pub(crate) fn ports(clock: Arc<dyn Clock>) -> GatewayPorts {
    let store = Arc::new(MemoryStore::new(clock.clone()));
    GatewayPorts {
        store: Arc::clone(&store) as _,
        blobs: store,
        clock,
        actor: ActorId(7),
        random: unique_bytes,
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        product: S3Catalogue::empty(),
        webhooks: None,
    }
}

impl<S: SourceHttp + 'static> MoveWorld<S> {
    pub(crate) async fn over(source: impl FnOnce(Arc<dyn Clock>) -> Arc<S>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::start());
        let ports = ports(clock.clone());
        let config = Config { single_process: true, ..Config::default() };
        let gateway = Gateway::start(ports, config).await.unwrap();
        let source = source(clock);
        let objects = Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default());
        let mover = Mover::new(gateway.clone(), objects.clone(), source.clone());
        let job = tokio::spawn(mover.clone().run());
        Self { gateway, objects, source, mover, job }
    }

    pub(crate) async fn start(&self, source: &str) {
        self.mover.start(new_move(source, &["default"])).await.unwrap();
    }

    /// Ends the job as a kill would, and starts another one.
    pub(crate) fn restart(&mut self) {
        self.job.abort();
        self.mover = Mover::new(self.gateway.clone(), self.objects.clone(), self.source.clone());
        self.job = tokio::spawn(self.mover.clone().run());
    }

    pub(crate) async fn await_status(&self, what: &str, holds: impl Fn(&MoveStatus) -> bool) -> MoveStatus {
        for _ in 0..PHASE_SECONDS {
            sleep(Duration::from_secs(1)).await;
            let status = self.mover.status().await.unwrap().unwrap();
            if holds(&status) {
                return status;
            }
        }
        panic!("not {what}: {:?}", self.mover.status().await)
    }

    pub(crate) async fn verify(&self) -> MoveStatus {
        let before = self.mover.wish(MoveWish::Verify, false).await.unwrap().order.number;
        self.await_status("verified", |status| {
            let is_over = matches!(status.progress.phase, MovePhase::Follow | MovePhase::Back);
            status.progress.handled >= before && is_over
        })
        .await
    }

    pub(crate) async fn delete(&self, bucket: &str, key: &str) {
        let delete = KvDelete {
            address: address(bucket, key),
            context: None,
            conditions: Conditions::default(),
            quorums: Quorums::default(),
            timeout: None,
        };
        self.gateway.kv.delete(delete).await.unwrap();
    }

    pub(crate) async fn get(&self, bucket: &str, key: &str) -> (Vec<String>, Option<Bytes>) {
        let request = KvGet { address: address(bucket, key), quorums: Quorums::default(), bodies: true, timeout: None };
        let object = self.gateway.kv.get(request).await.unwrap();
        let text = |body: GetBody| match body {
            GetBody::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        let mut texts: Vec<_> = object.bodies.into_iter().map(text).collect();
        texts.sort();
        (texts, object.context)
    }

    pub(crate) async fn put(&self, bucket: &str, key: &str, text: &str, context: Option<Bytes>) {
        self.put_at(address(bucket, key), text, context).await;
    }

    pub(crate) async fn put_at(&self, address: Address, text: &str, context: Option<Bytes>) {
        let put = KvPut {
            address,
            context,
            conditions: Conditions::default(),
            if_not_modified: None,
            // As the stand-ins show a value.
            content: KvContent {
                content_type: Some("text/plain".into()),
                terms: vec![Term { field: "f_bin".into(), value: text.to_owned().into() }],
                ..KvContent::default()
            },
            upload: PutBody::Bytes(text.to_owned().into()),
            quorums: Quorums::default(),
            return_body: false,
            timeout: None,
        };
        self.gateway.kv.put(put).await.unwrap();
    }
}

fn address(bucket: &str, key: &str) -> Address {
    let bucket = BucketAddress::new("default".into(), bucket.to_owned().into()).unwrap();
    Address::new(bucket, key.to_owned().into()).unwrap()
}
