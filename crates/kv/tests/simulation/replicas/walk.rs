//! Schedules drawn from seeds: clients of gateways on both sides of a network, over nodes that die, return, are cut off and
//! lose hints, and that are repaired before they purge tombstones.
//!
//! Promises under any faults: an acknowledged write is readable at the end unless a client that saw it wrote again; a value
//! that an acknowledged write replaced or deleted does not return; no value appears that was never sent; all gateways show the
//! same; keys with an acknowledged value are listed, and no key is listed that cannot have a value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_testkit::replicas::{ClusterSetup, NetworkFaults};
use larder_testkit::{SplitMix64, case_seeds};

use super::ring::{SimRing, WriteStrictness};
use crate::simulation::random::SOAK_SCHEDULES;
use crate::simulation::world::{ShownObject, run};

const KEYS: [&str; 3] = ["x", "y", "z"];
const CLIENTS: usize = 3;
const NODES: usize = 3;
const STEPS: usize = 50;
const SCHEDULES: u64 = 33;
/// Schedules within which a missing repair must be found.
const FINDS: u64 = 200;
/// Lifetime of tombstones here; no write is in flight for so long.
const GC_GRACE_MS: u64 = 90_000;

/// Writes to one key and their fates.
#[derive(Default)]
struct WalkRecord {
    sent: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// Values seen by a client that then sent a write.
    may_be_gone: BTreeSet<String>,
    /// Values seen by a client whose write was acknowledged.
    must_be_gone: BTreeSet<String>,
    /// Whether a write of unknown outcome was sent.
    has_unknown_outcome: bool,
}

/// Whether the operator repairs the nodes before they purge tombstones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkRepair {
    InTime,
    Never,
}

/// A running schedule.
struct ReplicaWalk {
    repair: WalkRepair,
    ring: SimRing,
    dice: SplitMix64,
    records: BTreeMap<&'static str, WalkRecord>,
    seen: Vec<BTreeMap<&'static str, ShownObject>>,
    log: Vec<String>,
}

#[test]
fn random_node_failures_lose_nothing_and_bring_nothing_back() {
    let (mut acknowledged, mut siblings) = (0, 0);
    for seed in case_seeds(SCHEDULES, SOAK_SCHEDULES) {
        let mut log = Vec::new();
        match run(schedule(seed, WalkRepair::InTime, &mut log)) {
            Ok((writes, several)) => {
                acknowledged += writes;
                siblings += several;
            }
            Err(wrong) => panic!("seed {seed}: {wrong}\n{}", log.join("\n")),
        }
    }
    assert!(acknowledged > 0 && siblings > 0, "{acknowledged} writes were acknowledged, {siblings} keys have siblings");
}

#[test]
fn without_repairs_purged_tombstones_bring_values_back() {
    let is_found = (0..FINDS).any(|seed| run(schedule(seed, WalkRepair::Never, &mut Vec::new())).is_err());
    assert!(is_found, "no schedule finds the missing repairs");
}

async fn schedule(seed: u64, repair: WalkRepair, log: &mut Vec<String>) -> Result<(usize, usize), String> {
    let mut dice = SplitMix64::new(seed);
    let sides: &[usize] = [&[0, 1][..], &[0, 0, 1], &[0, 1, 1]][dice.below(3)];
    let ring = SimRing::new(seed, ClusterSetup::default(), sides).await;
    ring.add_type("sib", "{}").await;
    for gate in &ring.members {
        gate.clock.set_skew(dice.below(480_000) as i64 - 240_000);
    }
    ring.replicas.set_network_faults(NetworkFaults {
        delay_ms_max: dice.below(40) as u64,
        lose_per_mille: [0, 10, 60][dice.below(3)],
        stop_per_mille: [0, 20][dice.below(2)],
        hints_lost_per_mille: [0, 300, 1000][dice.below(3)],
        hint_ms_max: dice.below(20_000) as u64,
        cas_torn_per_mille: 0,
    });
    let records = KEYS.map(|key| (key, WalkRecord::default())).into();
    let mut walk = ReplicaWalk { repair, ring, dice, records, seen: vec![BTreeMap::new(); CLIENTS], log: Vec::new() };
    for _ in 0..STEPS {
        walk.step().await;
    }
    walk.ring.replicas.set_network_faults(NetworkFaults::none());
    walk.repair_all().await;
    let end = walk.check().await;
    *log = walk.log;
    end?;
    let several = walk.records.values().filter(|record| record.acknowledged.len() > record.may_be_gone.len() + 1);
    Ok((walk.records.values().map(|record| record.acknowledged.len()).sum(), several.count()))
}

impl ReplicaWalk {
    /// One failure of nodes, or one operation of a client, or two at once.
    async fn step(&mut self) {
        match self.dice.below(12) {
            0 | 1 => self.inject_failure().await,
            2 if self.dice.below(5) == 0 => self.purge_tombstones().await,
            2 | 3 => self.read_key().await,
            4 => self.delete_key().await,
            5 => self.put_twice().await,
            _ => self.put_once().await,
        }
        let pause = [0, 0, 50, 3_000][self.dice.below(4)];
        self.ring.advance(pause).await;
    }

    async fn inject_failure(&mut self) {
        let (node, replicas) = (self.dice.below(NODES), self.ring.replicas.clone());
        let what = match self.dice.below(9) {
            0 | 1 => {
                replicas.kill(node);
                format!("node {node} dies")
            }
            2 | 3 => {
                replicas.revive(node);
                format!("node {node} is back")
            }
            4 | 5 => {
                let sides = [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0]][self.dice.below(4)];
                replicas.cut(&sides);
                format!("cut {sides:?}")
            }
            6 => {
                replicas.heal();
                "healed".into()
            }
            7 => {
                replicas.lose_hints();
                "hints are lost".into()
            }
            _ => {
                let (at, skew) = (self.dice.below(self.ring.members.len()), self.dice.below(480_000) as i64 - 240_000);
                let done = self.ring.restart(at, skew, false).await;
                format!("gateway {at} starts again: {}", done.is_ok())
            }
        };
        self.log.push(what);
    }

    /// The operator repairs in time, then nodes purge old tombstones.
    async fn purge_tombstones(&mut self) {
        if self.repair == WalkRepair::InTime {
            self.repair_all().await;
        }
        self.ring.advance(GC_GRACE_MS + 1_000).await;
        for node in 0..NODES {
            self.ring.replicas.purge(node, std::time::Duration::from_millis(GC_GRACE_MS));
        }
        self.log.push("tombstones are purged".into());
    }

    /// Restarts, reconnects and repairs all nodes.
    async fn repair_all(&mut self) {
        let replicas = &self.ring.replicas;
        (0..NODES).for_each(|node| replicas.revive(node));
        replicas.heal();
        self.ring.advance(60_000).await;
        replicas.deliver_hints();
        replicas.repair();
        self.log.push("repaired".into());
    }

    fn draw(&mut self) -> (usize, usize, &'static str) {
        (self.dice.below(CLIENTS), self.dice.below(self.ring.members.len()), KEYS[self.dice.below(KEYS.len())])
    }

    async fn read_key(&mut self) {
        let (client, at, key) = self.draw();
        let shown = self.ring.read(at, "sib", key).await;
        self.log.push(format!("client {client} reads {key} via {at}: {:?}", shown.as_ref().map(|shown| &shown.texts)));
        if let Ok(shown) = shown {
            self.seen[client].insert(key, shown);
        }
    }

    async fn delete_key(&mut self) {
        let (client, at, key) = self.draw();
        let known = self.seen[client].get(key).cloned().unwrap_or_default();
        let record = self.records.entry(key).or_default();
        match known.context {
            Some(_) => record.may_be_gone.extend(known.texts.iter().cloned()),
            // Without a context it deletes what it reads, which may be any value sent so far.
            None => record.may_be_gone.extend(record.sent.iter().cloned()),
        }
        let done = self.ring.delete(at, "sib", key, known.context.as_ref()).await;
        self.log.push(format!("client {client} deletes {key} via {at} after reading {:?}: {done:?}", known.texts));
        if done.is_ok() && known.context.is_some() {
            record.must_be_gone.extend(known.texts);
        }
        record.has_unknown_outcome |= done.is_err();
    }

    async fn put_once(&mut self) {
        let (client, at, key) = self.draw();
        let basis = self.basis(client, key);
        let strictness = if self.dice.below(3) == 0 { WriteStrictness::Strict } else { WriteStrictness::Sloppy };
        let text = self.text(key, &basis);
        let done = self.ring.put((at, strictness), "sib", key, &text, basis.context.as_ref()).await;
        self.note(key, &text, &basis, &format!("client {client} via {at}, {strictness:?}"), done);
    }

    /// Two clients put at once, through one gateway or two.
    async fn put_twice(&mut self) {
        let (client, at, key) = self.draw();
        let (other, there, _) = self.draw();
        let (a, b) = (self.basis(client, key), self.basis(other, key));
        let (one, two) = (self.text(key, &a), self.text(key, &b));
        let (done, did) = tokio::join!(
            self.ring.put((at, WriteStrictness::Sloppy), "sib", key, &one, a.context.as_ref()),
            self.ring.put((there, WriteStrictness::Sloppy), "sib", key, &two, b.context.as_ref())
        );
        self.note(key, &one, &a, &format!("client {client} via {at}, at once"), done);
        self.note(key, &two, &b, &format!("client {other} via {there}, at once"), did);
    }

    /// The version that a client bases a put on, or none.
    fn basis(&mut self, client: usize, key: &str) -> ShownObject {
        let blind = self.dice.below(3) == 0;
        if blind { ShownObject::default() } else { self.seen[client].get(key).cloned().unwrap_or_default() }
    }

    /// A new text, recorded as sent.
    fn text(&mut self, key: &'static str, basis: &ShownObject) -> String {
        let record = self.records.entry(key).or_default();
        let text = format!("v{}", record.sent.len());
        record.may_be_gone.extend(basis.texts.iter().cloned());
        record.sent.insert(text.clone());
        text
    }

    fn note(
        &mut self,
        key: &'static str,
        text: &str,
        basis: &ShownObject,
        who: &str,
        done: Result<(), larder_core::Error>,
    ) {
        self.log.push(format!("{key}: put {text} over {:?} by {who}: {done:?}", basis.texts));
        let record = self.records.entry(key).or_default();
        if done.is_ok() {
            record.acknowledged.insert(text.into());
            record.must_be_gone.extend(basis.texts.iter().cloned());
        } else {
            record.has_unknown_outcome = true;
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        let mut listed: Vec<Vec<Bytes>> = Vec::new();
        for at in 0..self.ring.members.len() {
            listed.push(self.ring.keys(at, "sib").await.map_err(|error| error.to_string())?);
        }
        self.log.push(format!("listed: {listed:?}"));
        for (key, record) in &self.records {
            let mut views = Vec::new();
            for at in 0..self.ring.members.len() {
                views.push(self.ring.read(at, "sib", key).await.map_err(|error| error.to_string())?.texts);
            }
            if views.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("{key}: gateways differ: {views:?}"));
            }
            let shown: BTreeSet<String> = views[0].iter().cloned().collect();
            if shown.len() < views[0].len() {
                return Err(format!("{key}: one write is there twice: {:?}", views[0]));
            }
            record.check(&shown).map_err(|wrong| format!("{key}: {wrong}; shown are {shown:?}"))?;
            for listed in &listed {
                let is_listed = listed.iter().any(|name| name == key.as_bytes());
                let must = shown.iter().any(|text| record.acknowledged.contains(text));
                let may = !shown.is_empty() || record.has_unknown_outcome;
                if (must && !is_listed) || (is_listed && !may) {
                    return Err(format!("{key}: shown are {shown:?}, listed {is_listed}"));
                }
            }
        }
        Ok(())
    }
}

impl WalkRecord {
    fn check(&self, shown: &BTreeSet<String>) -> Result<(), String> {
        if let Some(stranger) = shown.difference(&self.sent).next() {
            return Err(format!("{stranger} was never sent"));
        }
        if let Some(ghost) = shown.intersection(&self.must_be_gone).next() {
            return Err(format!("{ghost} was replaced and is back"));
        }
        let lost = self.acknowledged.iter().find(|text| !shown.contains(*text) && !self.may_be_gone.contains(*text));
        lost.map_or(Ok(()), |lost| Err(format!("{lost} was acknowledged and is gone")))
    }
}
