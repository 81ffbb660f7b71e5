//! Replica counts on a cluster whose nodes go down: what is asked of fewer replicas, and what is not. The numbers are rows of
//! the list of holes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_gateway::body::Upload;
use larder_gateway::kv::{Deleted, Found, GetObject, PutObject, Quorums};
use larder_gateway::{Config, Error, Gateway, Ports, Rule, Rules, Which};
use larder_model::causality::Conditions;
use larder_model::content::{Body, Content};
use larder_model::props::Quorum;
use larder_store::memory::MemoryStore;
use larder_store::replicas::{Replicas, Setup, Weather};
use tokio::time::{Instant, sleep};

use crate::world::{SimClock, address, delete_of, run};

type Outcome = Result<(), String>;

/// One gateway over three nodes.
struct Cluster {
    gateway: Arc<Gateway>,
    replicas: Replicas,
}

impl Cluster {
    async fn new(seed: u64, rules: Rules) -> Self {
        let clock = SimClock::new(Instant::now());
        let replicas = Replicas::new(clock.clone(), Setup::default(), seed);
        let ports = Ports {
            random: |bytes| bytes.fill(7),
            store: Arc::new(replicas.clone()),
            blobs: Arc::new(MemoryStore::new(clock.clone())),
            clock,
            actor: seed + 1,
            engine: Arc::new("replicas"),
            rules,
        };
        let config = Config { alone: false, ..Config::default() };
        Self { gateway: Gateway::start(ports, config).await.unwrap(), replicas }
    }

    async fn add_type(&self, name: &'static str, props: &str) {
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let name = Bytes::from_static(name.as_bytes());
        self.gateway.create_type(&name, props.as_object().unwrap()).await.unwrap();
        self.gateway.activate_type(&name).await.unwrap();
    }

    async fn put(&self, kind: &'static str, text: &str, quorums: Quorums) -> Result<Option<Found>, Error> {
        let request = PutObject {
            address: address(kind, "k"),
            context: None,
            conditions: Conditions::default(),
            if_not_modified: None,
            content: Content::default(),
            upload: Upload::Bytes(Bytes::copy_from_slice(text.as_bytes())),
            quorums,
            return_body: true,
            timeout: None,
        };
        Ok(self.gateway.put(request).await?.found)
    }

    async fn get(&self, kind: &'static str, quorums: Quorums) -> Result<Vec<String>, Error> {
        let request = GetObject { address: address(kind, "k"), quorums, bodies: false, timeout: None };
        Ok(texts(&self.gateway.get(request).await?))
    }

    async fn delete(&self, kind: &'static str) -> Result<bool, Error> {
        Ok(matches!(self.gateway.delete(delete_of(kind, "k", None)).await?, Deleted::Done))
    }

    fn stat(&self, name: &str) -> u64 {
        let stats = self.gateway.stats();
        stats.iter().find(|(one, _)| *one == name).and_then(|(_, value)| value.as_u64()).unwrap()
    }
}

fn texts(found: &Found) -> Vec<String> {
    let text = |body: &Body| match body {
        Body::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::Blob(_) => "a blob".into(),
    };
    let mut texts: Vec<_> = found.versions.siblings.iter().map(|one| text(&one.content.body)).collect();
    texts.sort_unstable();
    texts
}

/// Holds with every rule, and breaks without this one for some seed.
fn proves(rule: Rule, schedule: impl AsyncFn(Cluster) -> Outcome) {
    let attempt = |rules, seed| run(async { schedule(Cluster::new(seed, rules).await).await });
    for seed in 0..20 {
        assert_eq!(attempt(Rules::default(), seed), Ok(()), "with every rule, seed {seed}");
    }
    assert!(
        (0..20).any(|seed| attempt(Rules::without(rule), seed).is_err()),
        "{rule:?} is not needed by this schedule"
    );
}

fn expect(found: Result<Vec<String>, Error>, wanted: &[&str]) -> Outcome {
    match found {
        Ok(found) if found == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {wanted:?}")),
    }
}

fn one() -> Quorums {
    let one = Some(Quorum::One);
    Quorums { r: one, w: one, dw: one, ..Quorums::default() }
}

#[test]
fn row_14_a_delete_that_cannot_see_a_quorum_deletes_nothing() {
    proves(Rule::DeleteAtQuorum, async |cluster| {
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
        // Not found would be a lie, too.
        if deleted.is_ok() { expect(cluster.get("sib", Quorums::default()).await, &[]) } else { Ok(()) }
    });
}

#[test]
fn row_16_returnbody_shows_what_was_written_whoever_answers() {
    proves(Rule::MergeOwnRow, async |cluster| {
        cluster.add_type("sib", r#"{"r":1,"w":1,"dw":1}"#).await;
        cluster.replicas.set_weather(Weather { delay_ms_max: 200, ..Weather::calm() });
        let found = cluster.put("sib", "a", one()).await.map_err(|error| error.to_string())?;
        expect(Ok(texts(&found.expect("returnbody"))), &["a"])
    });
}

#[test]
fn row_23_a_write_sent_again_to_fewer_replicas_is_one_write() {
    proves(Rule::SameStampStepDown, async |cluster| {
        cluster.add_type("sib", "{}").await;
        cluster.replicas.set_weather(Weather { stop_per_mille: 500, ..Weather::calm() });
        let put = cluster.put("sib", "a", Quorums::default()).await;
        cluster.replicas.set_weather(Weather::calm());
        cluster.replicas.repair();
        let shown = cluster.get("sib", Quorums::default()).await;
        if put.is_ok() { expect(shown, &["a"]) } else { Ok(()) }
    });
}

#[test]
fn row_23_with_two_of_three_down_the_sloppy_are_served_and_the_strict_are_told() {
    run(async {
        let cluster = Cluster::new(1, Rules::default()).await;
        cluster.add_type("sib", "{}").await;
        cluster.add_type("cas", r#"{"consistent":true}"#).await;
        cluster.put("cas", "head", Quorums::default()).await.unwrap();
        cluster.replicas.kill(0);
        cluster.replicas.kill(1);
        let strict = Quorums { pr: Some(Quorum::Quorum), pw: Some(Quorum::Quorum), ..Quorums::default() };
        let confirmed = Quorums { node_confirms: Some(Quorum::Count(2)), ..Quorums::default() };
        // Far longer than a catalogue may go unchecked.
        for round in 0..30 {
            let begun = Instant::now();
            cluster.put("sib", "a", Quorums::default()).await.unwrap();
            assert!(cluster.get("sib", Quorums::default()).await.unwrap().len() == round + 1);
            let unmet = |result: Result<(), Error>, wanted| match result {
                Err(Error::Unsatisfied { which, got: 1, wanted: 2 }) => assert_eq!(which, wanted),
                other => panic!("{other:?}"),
            };
            unmet(cluster.put("sib", "b", strict).await.map(drop), Which::Pw);
            unmet(cluster.get("sib", strict).await.map(drop), Which::Pr);
            let error = cluster.put("sib", "b", confirmed).await.unwrap_err();
            assert!(matches!(error, Error::NodeConfirms { got: 1, wanted: 2, reading: false }), "{error:?}");
            let error = cluster.get("sib", confirmed).await.unwrap_err();
            assert!(matches!(error, Error::NodeConfirms { got: 1, wanted: 2, reading: true }), "{error:?}");
            assert!(cluster.get("cas", Quorums::default()).await.is_err(), "a head is known at a quorum or not at all");
            assert!(begun.elapsed() < Duration::from_millis(100), "at once");
            sleep(Duration::from_secs(2)).await;
        }
        assert!(cluster.stat("larder_writes_stepped_down_total") >= 30);
        assert!(cluster.stat("larder_reads_stepped_down_total") >= 30);
        assert_eq!(cluster.stat("larder_writes_at_any_total"), 0);
        cluster.replicas.revive(0);
        cluster.replicas.revive(1);
        cluster.replicas.deliver_hints();
        assert_eq!(cluster.get("sib", strict).await.unwrap(), ["a"; 30]);
        assert_eq!(cluster.get("cas", Quorums::default()).await.unwrap(), ["head"]);
    });
}

#[test]
fn row_24_not_found_is_asked_of_all_that_are_up() {
    proves(Rule::AllThatAreUp, async |cluster| {
        let sure = Quorums { notfound_ok: Some(false), ..one() };
        cluster.add_type("sib", "{}").await;
        expect(cluster.get("sib", sure).await, &[])?;
        // One replica has it.
        cluster.replicas.kill(0);
        cluster.replicas.kill(1);
        cluster.put("sib", "a", one()).await.map_err(|error| error.to_string())?;
        cluster.replicas.lose_hints();
        cluster.replicas.revive(1);
        expect(cluster.get("sib", sure).await, &["a"])?;
        cluster.replicas.kill(2);
        cluster.replicas.revive(0);
        let missing = GetObject { address: address("sib", "none"), quorums: sure, bodies: false, timeout: None };
        expect(cluster.gateway.get(missing).await.map(|found| texts(&found)), &[])
    });
}

#[test]
fn row_26_another_n_val_moves_nothing() {
    proves(Rule::PlaceByCreation, async |cluster| {
        cluster.add_type("sib", r#"{"n_val":3}"#).await;
        cluster.put("sib", "a", Quorums::default()).await.map_err(|error| error.to_string())?;
        for n_val in [1, 2, 7] {
            let props = serde_json::json!({ "n_val": n_val });
            let name = Bytes::from_static(b"sib");
            cluster.gateway.update_type(&name, props.as_object().unwrap()).await.map_err(|error| error.to_string())?;
            expect(cluster.get("sib", Quorums::default()).await, &["a"])?;
            expect(cluster.get("sib", one()).await, &["a"])?;
        }
        Ok(())
    });
}

#[test]
fn a_new_type_has_no_more_copies_than_there_are_nodes() {
    run(async {
        let cluster = Cluster::new(1, Rules::default()).await;
        let many = serde_json::json!({ "n_val": 4 });
        let name = Bytes::from_static(b"many");
        let refused = cluster.gateway.create_type(&name, many.as_object().unwrap()).await.unwrap_err();
        assert_eq!(refused.to_string(), "n_val cannot be greater than the number of nodes that hold data, which is 3");
        cluster.add_type("few", r#"{"n_val":2}"#).await;
        let shown = async |name| {
            let status = cluster.gateway.type_status(&Bytes::from_static(name)).await.unwrap();
            status.props.iter().find(|(name, _)| *name == "copies").map(|(_, copies)| copies.console())
        };
        assert_eq!((shown(b"few").await, shown(b"default").await), (None, None));
        cluster.gateway.update_type(&Bytes::from_static(b"few"), many.as_object().unwrap()).await.unwrap();
        assert_eq!(shown(b"few").await.as_deref(), Some("2"));
    });
}
