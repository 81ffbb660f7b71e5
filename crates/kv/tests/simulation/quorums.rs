//! Replica counts on a cluster whose nodes go down: which calls are downgraded, and which are refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::rules::props::Quorum;
use larder_core::{Config, Error, GatewayPorts, QuorumParam};
use larder_kv::rules::causality::Conditions;
use larder_kv::{FetchedObject, Gateway, KvDeleteOutcome, KvGet, KvPut, Quorums};
use larder_rows::ActorId;
use larder_rows::content::{KvBody, KvContent};
use larder_store::memory::MemoryStore;
use larder_testkit::replicas::{ClusterSetup, NetworkFaults, Replicas};
use tokio::time::{Instant, sleep};

use crate::simulation::world::{ScheduleResult, SimClock, address, delete_of, run};

const SEEDS: u64 = 20;

/// One gateway over three nodes.
struct ReplicaCluster {
    gateway: Arc<Gateway>,
    replicas: Replicas,
}

impl ReplicaCluster {
    async fn new(seed: u64) -> Self {
        let clock = SimClock::new(Instant::now());
        let replicas = Replicas::new(clock.clone(), ClusterSetup::default(), seed);
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: Arc::new(replicas.clone()),
            blobs: Arc::new(MemoryStore::new(clock.clone())),
            clock,
            actor: ActorId(seed + 1),
            engine: Arc::new("replicas"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let config = Config { single_process: false, ..Config::default() };
        Self { gateway: Gateway::start(ports, config).await.unwrap(), replicas }
    }

    async fn add_type(&self, name: &'static str, props: &str) {
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let name = Bytes::from_static(name.as_bytes());
        self.gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        self.gateway.types().activate(&name).await.unwrap();
    }

    async fn put(&self, kind: &'static str, text: &str, quorums: Quorums) -> Result<Option<FetchedObject>, Error> {
        let request = KvPut {
            address: address(kind, "k"),
            context: None,
            conditions: Conditions::default(),
            if_not_modified: None,
            content: KvContent::default(),
            upload: PutBody::Bytes(Bytes::copy_from_slice(text.as_bytes())),
            quorums,
            return_body: true,
            timeout: None,
        };
        self.gateway.kv.put(request).await
    }

    async fn get(&self, kind: &'static str, quorums: Quorums) -> Result<Vec<String>, Error> {
        let request = KvGet { address: address(kind, "k"), quorums, bodies: false, timeout: None };
        Ok(texts(&self.gateway.kv.get(request).await?))
    }

    async fn delete(&self, kind: &'static str) -> Result<bool, Error> {
        Ok(matches!(self.gateway.kv.delete(delete_of(kind, "k", None)).await?, KvDeleteOutcome::Done))
    }

    fn stat(&self, name: &str) -> u64 {
        let stats = self.gateway.stats();
        stats.iter().find(|(one, _)| *one == name).and_then(|(_, value)| value.as_u64()).unwrap()
    }
}

fn texts(found: &FetchedObject) -> Vec<String> {
    let text = |body: &KvBody| match body {
        KvBody::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        KvBody::Blob(_) => "a blob".into(),
    };
    let mut texts: Vec<_> = found.versions.siblings.iter().map(|one| text(&one.content.body)).collect();
    texts.sort_unstable();
    texts
}

/// Runs a schedule; it must hold with every seed.
#[track_caller]
fn holds(schedule: impl AsyncFn(ReplicaCluster) -> ScheduleResult) {
    for seed in 0..SEEDS {
        assert_eq!(run(async { schedule(ReplicaCluster::new(seed).await).await }), Ok(()), "seed {seed}");
    }
}

fn expect(found: Result<Vec<String>, Error>, wanted: &[&str]) -> ScheduleResult {
    match found {
        Ok(found) if found == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {wanted:?}")),
    }
}

fn one() -> Quorums {
    let one = Some(Quorum::One);
    Quorums { r: one, w: one, dw: one, ..Quorums::default() }
}

/// The only live replica lacks the value; a delete that trusts it is answered, and the value returns [invariant 14].
#[test]
fn a_delete_without_a_quorum_deletes_nothing() {
    holds(async |cluster| {
        cluster.add_type("sib", "{}").await;
        cluster.replicas.kill(2);
        cluster.put("sib", "a", Quorums::default()).await.map_err(|error| error.to_string())?;
        cluster.replicas.lose_hints();
        cluster.replicas.revive(2);
        cluster.replicas.kill(0);
        cluster.replicas.kill(1);
        let deleted = cluster.delete("sib").await;
        cluster.replicas.revive(0);
        cluster.replicas.revive(1);
        cluster.replicas.repair();
        // A delete that succeeded must have deleted the value.
        if deleted.is_ok() { expect(cluster.get("sib", Quorums::default()).await, &[]) } else { Ok(()) }
    });
}

/// The read after the write may be answered by a replica that has not got it yet [invariant 16].
#[test]
fn returnbody_shows_the_write_even_from_a_replica_that_lacks_it() {
    holds(async |cluster| {
        cluster.add_type("sib", r#"{"r":1,"w":1,"dw":1}"#).await;
        cluster.replicas.set_network_faults(NetworkFaults { delay_ms_max: 200, ..NetworkFaults::none() });
        let found = cluster.put("sib", "a", one()).await.map_err(|error| error.to_string())?;
        expect(Ok(texts(&found.expect("returnbody"))), &["a"])
    });
}

/// Some replicas took the first try; a repeat with a new name or stamp would be a second write [invariant 23].
#[test]
fn a_write_repeated_at_fewer_replicas_makes_no_sibling() {
    holds(async |cluster| {
        cluster.add_type("sib", "{}").await;
        cluster.replicas.set_network_faults(NetworkFaults { stop_per_mille: 500, ..NetworkFaults::none() });
        let put = cluster.put("sib", "a", Quorums::default()).await;
        cluster.replicas.set_network_faults(NetworkFaults::none());
        cluster.replicas.repair();
        let shown = cluster.get("sib", Quorums::default()).await;
        if put.is_ok() { expect(shown, &["a"]) } else { Ok(()) }
    });
}

/// Riak's defaults keep serving with one replica; pr, pw and node_confirms refuse [invariant 23].
#[test]
fn with_two_of_three_nodes_down_sloppy_requests_succeed_and_strict_ones_name_the_unmet_value() {
    run(async {
        let cluster = ReplicaCluster::new(1).await;
        cluster.add_type("sib", "{}").await;
        cluster.add_type("cas", r#"{"consistent":true}"#).await;
        cluster.put("cas", "head", Quorums::default()).await.unwrap();
        cluster.replicas.kill(0);
        cluster.replicas.kill(1);
        let strict = Quorums { pr: Some(Quorum::Quorum), pw: Some(Quorum::Quorum), ..Quorums::default() };
        let confirmed = Quorums { node_confirms: Some(Quorum::Count(2)), ..Quorums::default() };
        let primaries_alone = Quorums { sloppy_quorum: Some(false), ..Quorums::default() };
        // Much longer than a catalogue may go unchecked.
        for round in 0..30 {
            let begun = Instant::now();
            cluster.put("sib", "a", Quorums::default()).await.unwrap();
            assert!(cluster.get("sib", Quorums::default()).await.unwrap().len() == round + 1);
            let unmet = |result: Result<(), Error>, wanted| match result {
                Err(Error::Unsatisfied { which, got: 1, wanted: 2 }) => assert_eq!(which, wanted),
                other => panic!("{other:?}"),
            };
            unmet(cluster.put("sib", "b", strict).await.map(drop), QuorumParam::Pw);
            unmet(cluster.get("sib", strict).await.map(drop), QuorumParam::Pr);
            unmet(cluster.put("sib", "b", primaries_alone).await.map(drop), QuorumParam::W);
            unmet(cluster.get("sib", primaries_alone).await.map(drop), QuorumParam::R);
            let error = cluster.put("sib", "b", confirmed).await.unwrap_err();
            assert!(matches!(error, Error::NodeConfirms { got: 1, wanted: 2, reading: false }), "{error:?}");
            let error = cluster.get("sib", confirmed).await.unwrap_err();
            assert!(matches!(error, Error::NodeConfirms { got: 1, wanted: 2, reading: true }), "{error:?}");
            assert!(cluster.get("cas", Quorums::default()).await.is_err(), "a head is current only at a quorum");
            assert!(begun.elapsed() < Duration::from_millis(100), "strict requests fail at once");
            sleep(Duration::from_secs(2)).await;
        }
        assert!(cluster.stat("larder_writes_downgraded_total") >= 30);
        assert!(cluster.stat("larder_reads_downgraded_total") >= 30);
        assert_eq!(cluster.stat("larder_writes_at_any_total"), 0);
        cluster.replicas.revive(0);
        cluster.replicas.revive(1);
        cluster.replicas.deliver_hints();
        assert_eq!(cluster.get("sib", strict).await.unwrap(), ["a"; 30]);
        assert_eq!(cluster.get("cas", Quorums::default()).await.unwrap(), ["head"]);
    });
}

/// With `notfound_ok` false, one live replica has the value and the first answer is not found [invariant 24].
#[test]
fn a_not_found_read_asks_all_live_replicas() {
    holds(async |cluster| {
        let sure = Quorums { notfound_ok: Some(false), ..one() };
        cluster.add_type("sib", "{}").await;
        expect(cluster.get("sib", sure).await, &[])?;
        // One replica has the value.
        cluster.replicas.kill(0);
        cluster.replicas.kill(1);
        cluster.put("sib", "a", one()).await.map_err(|error| error.to_string())?;
        cluster.replicas.lose_hints();
        cluster.replicas.revive(1);
        expect(cluster.get("sib", sure).await, &["a"])?;
        cluster.replicas.kill(2);
        cluster.replicas.revive(0);
        let missing = KvGet { address: address("sib", "none"), quorums: sure, bodies: false, timeout: None };
        expect(cluster.gateway.kv.get(missing).await.map(|found| texts(&found)), &[])
    });
}

/// If placement followed n_val, a change would move the data from under its readers [invariant 26].
#[test]
fn a_changed_n_val_loses_no_data() {
    holds(async |cluster| {
        cluster.add_type("sib", r#"{"n_val":3}"#).await;
        cluster.put("sib", "a", Quorums::default()).await.map_err(|error| error.to_string())?;
        for n_val in [1, 2, 7] {
            let props = serde_json::json!({ "n_val": n_val });
            let name = Bytes::from_static(b"sib");
            cluster
                .gateway
                .types()
                .update(&name, props.as_object().unwrap())
                .await
                .map_err(|error| error.to_string())?;
            expect(cluster.get("sib", Quorums::default()).await, &["a"])?;
            expect(cluster.get("sib", one()).await, &["a"])?;
        }
        Ok(())
    });
}

#[test]
fn a_new_type_has_no_more_copies_than_there_are_nodes() {
    run(async {
        let cluster = ReplicaCluster::new(1).await;
        let many = serde_json::json!({ "n_val": 4 });
        let name = Bytes::from_static(b"many");
        let refused = cluster.gateway.types().create(&name, many.as_object().unwrap()).await.unwrap_err();
        assert_eq!(refused.to_string(), "n_val cannot be greater than the number of nodes that hold data, which is 3");
        cluster.add_type("few", r#"{"n_val":2}"#).await;
        let shown = async |name| {
            let status = cluster.gateway.types().status(&Bytes::from_static(name)).await.unwrap();
            status.props.iter().find(|(name, _)| *name == "copies").map(|(_, copies)| copies.console())
        };
        assert_eq!((shown(b"few").await, shown(b"default").await), (None, None));
        cluster.gateway.types().update(&Bytes::from_static(b"few"), many.as_object().unwrap()).await.unwrap();
        assert_eq!(shown(b"few").await.as_deref(), Some("2"));
    });
}
