//! The simulated world of many machines: gateways on the sides of a network, over nodes that fail one by one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_gateway::body::Upload;
use larder_gateway::kv::{Deleted, PutObject, Quorums};
use larder_gateway::{Config, Error, Gateway, Ports, Rules};
use larder_model::causality::Conditions;
use larder_model::content::Content;
use larder_model::props::Quorum;
use larder_store::memory::MemoryStore;
use larder_store::replicas::{Replicas, Setup};
use tokio::time::Instant;

use crate::world::{Shown, SimClock, address, bucket, delete_of, get_of, padded, shown};

/// One gateway.
pub(crate) struct Gate {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) clock: Arc<SimClock>,
    side: usize,
}

/// Everything there is. Blobs never fail: what they are made of is another story.
pub(crate) struct Ring {
    pub(crate) gates: Vec<Gate>,
    pub(crate) replicas: Replicas,
    blobs: Arc<MemoryStore>,
    start: Instant,
    rules: Rules,
    actors: u64,
}

/// How a write is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// As the bucket says: at fewer replicas rather than not at all.
    Sloppy,
    /// At a quorum or not at all.
    Strict,
}

impl Ring {
    /// A gateway for each of `sides` over an empty cluster.
    pub(crate) async fn new(seed: u64, rules: Rules, setup: Setup, sides: &[usize]) -> Self {
        let start = Instant::now();
        let replicas = Replicas::new(SimClock::new(start), setup, seed);
        let blobs = Arc::new(MemoryStore::new(SimClock::new(start)));
        let mut ring = Self { gates: Vec::new(), replicas, blobs, start, rules, actors: 0 };
        for side in sides {
            let gate = ring.gate(ring.gates.len(), *side, 0, false).await;
            ring.gates.push(gate.expect("a gateway starts over a whole cluster"));
        }
        ring
    }

    async fn gate(&mut self, at: usize, side: usize, skew: i64, alone: bool) -> Result<Gate, Error> {
        self.actors += 1;
        let clock = SimClock::new(self.start);
        clock.set_skew(skew);
        let ports = Ports {
            random: |bytes| bytes.fill(7),
            store: Arc::new(self.replicas.seen_from(side)),
            blobs: Arc::new(self.blobs.apart()),
            clock: Arc::clone(&clock) as _,
            actor: self.actors,
            engine: Arc::new("replicas"),
            rules: self.rules,
        };
        let config = Config { node: format!("g{at}"), alone, ..Config::default() };
        Ok(Gate { gateway: Gateway::start(ports, config).await?, clock, side })
    }

    /// Kills a gateway and starts it again, if it can start now; `alone`: nothing else can be running.
    pub(crate) async fn restart(&mut self, at: usize, skew: i64, alone: bool) -> Result<(), Error> {
        let gate = self.gate(at, self.gates[at].side, skew, alone).await?;
        self.gates[at].gateway.abandon();
        self.gates[at] = gate;
        Ok(())
    }

    /// Gives a gateway a way to the cluster on which expiry is judged by the gateway's own clock.
    pub(crate) async fn judge_alone(&mut self, at: usize) {
        let whole = self.replicas.clone();
        self.replicas = whole.judged_by(Arc::clone(&self.gates[at].clock) as _);
        let skew = self.gates[at].clock.skew();
        self.restart(at, skew, false).await.expect("a gateway starts over a whole cluster");
        self.replicas = whole;
    }

    pub(crate) async fn pass(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    pub(crate) async fn add_type(&self, name: &'static str, props: &str) {
        let name = Bytes::from_static(name.as_bytes());
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let gateway = &self.gates[0].gateway;
        gateway.create_type(&name, props.as_object().unwrap()).await.unwrap();
        while gateway.activate_type(&name).await.is_err() {
            self.pass(100).await;
        }
    }

    pub(crate) async fn put(
        &self,
        (at, care): (usize, Care),
        kind: &'static str,
        key: &str,
        text: &str,
        context: Option<&Bytes>,
    ) -> Result<(), Error> {
        let request = PutObject {
            address: address(kind, key),
            context: context.cloned(),
            conditions: Conditions::default(),
            if_not_modified: None,
            content: Content::default(),
            upload: Upload::Bytes(padded(text).into()),
            quorums: Quorums { pw: (care == Care::Strict).then_some(Quorum::Quorum), ..Quorums::default() },
            return_body: false,
            timeout: None,
        };
        self.gates[at].gateway.put(request).await.map(|_| ())
    }

    pub(crate) async fn read(&self, at: usize, kind: &'static str, key: &str) -> Result<Shown, Error> {
        shown(self.gates[at].gateway.get(get_of(kind, key)).await?).await
    }

    /// Answers whether there was something to delete.
    pub(crate) async fn delete(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        context: Option<&Bytes>,
    ) -> Result<bool, Error> {
        Ok(matches!(self.gates[at].gateway.delete(delete_of(kind, key, context)).await?, Deleted::Done))
    }

    pub(crate) async fn keys(&self, at: usize, kind: &'static str) -> Result<Vec<Bytes>, Error> {
        Ok(self.gates[at].gateway.list_keys(&bucket(kind), None, None).await?.names)
    }
}
