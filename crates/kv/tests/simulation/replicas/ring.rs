//! The simulated cluster of many machines: gateways on the sides of a network, over nodes that fail one by one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::rules::props::Quorum;
use larder_core::{Config, Error, GatewayPorts, IndexSplitting};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvDeleteOutcome, KvPut, Quorums};
use larder_rows::ActorId;
use larder_rows::content::KvContent;
use larder_store::memory::MemoryStore;
use larder_testkit::replicas::{ClusterSetup, Replicas};
use tokio::time::Instant;

use crate::simulation::world::{
    ShownObject, SimClock, address, bucket, delete_of, get_of, let_pass, padded, shown, split_above,
};

/// One gateway.
pub(crate) struct RingGateway {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) clock: Arc<SimClock>,
    side: usize,
}

/// Gateways over replicated nodes. Blobs never fail here.
pub(crate) struct SimRing {
    pub(crate) members: Vec<RingGateway>,
    pub(crate) replicas: Replicas,
    blobs: Arc<MemoryStore>,
    start: Instant,
    actors: u64,
    splitting: IndexSplitting,
}

/// Replica counts of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteStrictness {
    /// The bucket's: downgraded when replicas are down.
    Sloppy,
    /// A quorum of primaries, never downgraded.
    Strict,
}

impl SimRing {
    /// A gateway for each of `sides` over an empty cluster.
    pub(crate) async fn new(seed: u64, setup: ClusterSetup, sides: &[usize]) -> Self {
        Self::splitting(seed, setup, sides, 0).await
    }

    /// The same, with indexes that are split above so many rows of a shard; 0: never.
    pub(crate) async fn splitting(seed: u64, setup: ClusterSetup, sides: &[usize], rows: u64) -> Self {
        let start = Instant::now();
        let replicas = Replicas::new(SimClock::new(start), setup, seed);
        let blobs = Arc::new(MemoryStore::new(SimClock::new(start)));
        let splitting = split_above(rows);
        let mut ring = Self { members: Vec::new(), replicas, blobs, start, actors: 0, splitting };
        for side in sides {
            let gate = ring.gate(ring.members.len(), *side, 0, false).await;
            ring.members.push(gate.expect("a gateway starts over a healthy cluster"));
        }
        ring
    }

    async fn gate(&mut self, at: usize, side: usize, skew: i64, single_process: bool) -> Result<RingGateway, Error> {
        self.actors += 1;
        let clock = SimClock::new(self.start);
        clock.set_skew(skew);
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: Arc::new(self.replicas.from_side(side)),
            blobs: Arc::new(self.blobs.as_other_process()),
            clock: Arc::clone(&clock) as _,
            actor: ActorId(self.actors),
            engine: Arc::new("replicas"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let index_splitting = self.splitting;
        let config = Config { node: format!("g{at}"), single_process, index_splitting, ..Config::default() };
        Ok(RingGateway { gateway: Gateway::start(ports, config).await?, clock, side })
    }

    /// Kills a gateway and starts it again, if it can start now; `alone`: nothing else can be running.
    pub(crate) async fn restart(&mut self, at: usize, skew: i64, single_process: bool) -> Result<(), Error> {
        let gate = self.gate(at, self.members[at].side, skew, single_process).await?;
        self.members[at].gateway.abandon();
        self.members[at] = gate;
        Ok(())
    }

    /// Restarts a gateway so that its own clock, not the cluster's, decides expiry.
    pub(crate) async fn expire_by_own_clock(&mut self, at: usize) {
        let whole = self.replicas.clone();
        self.replicas = whole.with_clock(Arc::clone(&self.members[at].clock) as _);
        let skew = self.members[at].clock.skew();
        self.restart(at, skew, false).await.expect("a gateway starts over a healthy cluster");
        self.replicas = whole;
    }

    pub(crate) async fn advance(&self, ms: u64) {
        let_pass(Duration::from_millis(ms)).await;
    }

    pub(crate) async fn add_type(&self, name: &'static str, props: &str) {
        let name = Bytes::from_static(name.as_bytes());
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let gateway = &self.members[0].gateway;
        gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        while gateway.types().activate(&name).await.is_err() {
            self.advance(100).await;
        }
    }

    pub(crate) async fn put(
        &self,
        (at, strictness): (usize, WriteStrictness),
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
    ) -> Result<(), Error> {
        let request = KvPut {
            address: address(kind, key),
            context: context.cloned(),
            conditions: Conditions::default(),
            if_not_modified: None,
            content: KvContent::default(),
            upload: PutBody::Bytes(padded(text).into()),
            quorums: Quorums {
                pw: (strictness == WriteStrictness::Strict).then_some(Quorum::Quorum),
                ..Quorums::default()
            },
            return_body: false,
            timeout: None,
        };
        self.members[at].gateway.kv.put(request).await.map(|_| ())
    }

    pub(crate) async fn read(&self, at: usize, kind: &'static str, key: &str) -> Result<ShownObject, Error> {
        shown(self.members[at].gateway.kv.get(get_of(kind, key)).await?).await
    }

    /// Answers whether there was something to delete.
    pub(crate) async fn delete(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        context: Option<&Bytes>,
    ) -> Result<bool, Error> {
        Ok(matches!(self.members[at].gateway.kv.delete(delete_of(kind, key, context)).await?, KvDeleteOutcome::Done))
    }

    pub(crate) async fn keys(&self, at: usize, kind: &'static str) -> Result<Vec<Bytes>, Error> {
        Ok(self.members[at].gateway.kv.list_keys(&bucket(kind), None, None).await?.names)
    }
}
