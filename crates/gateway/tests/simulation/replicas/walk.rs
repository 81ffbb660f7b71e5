//! Schedules drawn from seeds: clients of gateways on both sides of a network, over nodes that die, come back, are cut off and
//! lose hints, and that are repaired before they forget what was deleted.
//!
//! Promised, whatever happens: an acknowledged write is there at the end unless somebody who saw it went on to write; what an
//! acknowledged writer replaced or deleted does not come back; nothing appears that was never sent; all gateways show the same;
//! what an acknowledged write left is listed, and nothing is listed that nobody may have left.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_gateway::{Rule, Rules};
use larder_store::replicas::{Setup, Weather};

use super::ring::{Care, Ring};
use crate::random::{Dice, first, schedules};
use crate::world::{Shown, run};

const KEYS: [&str; 3] = ["x", "y", "z"];
const CLIENTS: usize = 3;
const NODES: usize = 3;
const STEPS: usize = 50;
const SCHEDULES: u64 = 100;
/// Schedules in which the lack of a rule must show.
const FINDS: u64 = 200;
/// How long tombstones are kept here; a write is not under way for so long.
const GC_GRACE_MS: u64 = 90_000;

/// What happened to one key.
#[derive(Default)]
struct Record {
    sent: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// Seen by somebody who then sent a write.
    may_be_gone: BTreeSet<String>,
    /// Seen by somebody whose write was acknowledged.
    must_be_gone: BTreeSet<String>,
    /// Whether a write was sent of which nobody knows what became of it.
    unsure: bool,
}

/// What is not as it should be.
#[derive(Debug, Clone, Copy, Default)]
struct Laws {
    rules: Rules,
    /// Nodes forget what was deleted though nobody repairs.
    careless: bool,
}

/// One schedule under way.
struct Walk {
    laws: Laws,
    ring: Ring,
    dice: Dice,
    records: BTreeMap<&'static str, Record>,
    seen: Vec<BTreeMap<&'static str, Shown>>,
    log: Vec<String>,
}

#[test]
fn whatever_nodes_do_nothing_is_lost_and_nothing_comes_back() {
    let (mut acknowledged, mut siblings) = (0, 0);
    for seed in first()..first() + schedules(SCHEDULES) {
        let mut log = Vec::new();
        match run(schedule(seed, Laws::default(), &mut log)) {
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
fn a_write_that_a_hint_alone_kept_was_once_acknowledged_and_lost() {
    assert!(run(schedule(5_743, Laws::default(), &mut Vec::new())).is_ok());
}

#[test]
fn a_walk_finds_what_lacks_a_rule() {
    let careless = Laws { careless: true, ..Laws::default() };
    let without = [Rule::IssueBeforeSend, Rule::SameStampStepDown];
    let all = without.map(|rule| Laws { rules: Rules::without(rule), ..Laws::default() });
    for laws in all.into_iter().chain([careless]) {
        let is_found = (0..FINDS).any(|seed| run(schedule(seed, laws, &mut Vec::new())).is_err());
        assert!(is_found, "{laws:?} seems to be as good");
    }
}

async fn schedule(seed: u64, laws: Laws, log: &mut Vec<String>) -> Result<(usize, usize), String> {
    let mut dice = Dice(seed);
    let sides: &[usize] = [&[0, 1][..], &[0, 0, 1], &[0, 1, 1]][dice.below(3)];
    let ring = Ring::new(seed, laws.rules, Setup::default(), sides).await;
    ring.add_type("sib", "{}").await;
    for gate in &ring.gates {
        gate.clock.set_skew(dice.below(480_000) as i64 - 240_000);
    }
    ring.replicas.set_weather(Weather {
        delay_ms_max: dice.below(40) as u64,
        lose_per_mille: [0, 10, 60][dice.below(3)],
        stop_per_mille: [0, 20][dice.below(2)],
        hints_lost_per_mille: [0, 300, 1000][dice.below(3)],
        hint_ms_max: dice.below(20_000) as u64,
        swaps_torn_per_mille: 0,
    });
    let records = KEYS.map(|key| (key, Record::default())).into();
    let mut walk = Walk { laws, ring, dice, records, seen: vec![BTreeMap::new(); CLIENTS], log: Vec::new() };
    for _ in 0..STEPS {
        walk.step().await;
    }
    walk.ring.replicas.set_weather(Weather::calm());
    walk.mend().await;
    let end = walk.check().await;
    *log = walk.log;
    end?;
    let several = walk.records.values().filter(|record| record.acknowledged.len() > record.may_be_gone.len() + 1);
    Ok((walk.records.values().map(|record| record.acknowledged.len()).sum(), several.count()))
}

impl Walk {
    /// Something happens to the nodes, or a client does something, or two do at once.
    async fn step(&mut self) {
        match self.dice.below(12) {
            0 | 1 => self.disturb().await,
            2 if self.dice.below(5) == 0 => self.forget().await,
            2 | 3 => self.look().await,
            4 => self.remove().await,
            5 => self.two().await,
            _ => self.one().await,
        }
        let pause = [0, 0, 50, 3_000][self.dice.below(4)];
        self.ring.pass(pause).await;
    }

    async fn disturb(&mut self) {
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
                let (at, skew) = (self.dice.below(self.ring.gates.len()), self.dice.below(480_000) as i64 - 240_000);
                let done = self.ring.restart(at, skew, false).await;
                format!("gateway {at} starts again: {}", done.is_ok())
            }
        };
        self.log.push(what);
    }

    /// An operator repairs in time, and nodes forget what was deleted long ago.
    async fn forget(&mut self) {
        if !self.laws.careless {
            self.mend().await;
        }
        self.ring.pass(GC_GRACE_MS + 1_000).await;
        for node in 0..NODES {
            self.ring.replicas.purge(node, std::time::Duration::from_millis(GC_GRACE_MS));
        }
        self.log.push("tombstones are forgotten".into());
    }

    /// All nodes are up, reach each other and know the same.
    async fn mend(&mut self) {
        let replicas = &self.ring.replicas;
        (0..NODES).for_each(|node| replicas.revive(node));
        replicas.heal();
        self.ring.pass(60_000).await;
        replicas.deliver_hints();
        replicas.repair();
        self.log.push("mended".into());
    }

    fn draw(&mut self) -> (usize, usize, &'static str) {
        (self.dice.below(CLIENTS), self.dice.below(self.ring.gates.len()), KEYS[self.dice.below(KEYS.len())])
    }

    async fn look(&mut self) {
        let (client, at, key) = self.draw();
        let shown = self.ring.read(at, "sib", key).await;
        self.log.push(format!("client {client} reads {key} via {at}: {:?}", shown.as_ref().map(|shown| &shown.texts)));
        if let Ok(shown) = shown {
            self.seen[client].insert(key, shown);
        }
    }

    async fn remove(&mut self) {
        let (client, at, key) = self.draw();
        let known = self.seen[client].get(key).cloned().unwrap_or_default();
        let record = self.records.entry(key).or_default();
        match known.context {
            Some(_) => record.may_be_gone.extend(known.texts.iter().cloned()),
            // Without a context it deletes what it reads, which may be anything sent so far.
            None => record.may_be_gone.extend(record.sent.iter().cloned()),
        }
        let done = self.ring.delete(at, "sib", key, known.context.as_ref()).await;
        self.log.push(format!("client {client} deletes {key} via {at} knowing {:?}: {done:?}", known.texts));
        if done.is_ok() && known.context.is_some() {
            record.must_be_gone.extend(known.texts);
        }
        record.unsure |= done.is_err();
    }

    async fn one(&mut self) {
        let (client, at, key) = self.draw();
        let basis = self.basis(client, key);
        let care = if self.dice.below(3) == 0 { Care::Strict } else { Care::Sloppy };
        let text = self.text(key, &basis);
        let done = self.ring.put((at, care), "sib", key, &text, basis.context.as_ref()).await;
        self.note(key, &text, &basis, &format!("client {client} via {at}, {care:?}"), done);
    }

    /// Two clients put at once, through one gateway or two.
    async fn two(&mut self) {
        let (client, at, key) = self.draw();
        let (other, there, _) = self.draw();
        let (a, b) = (self.basis(client, key), self.basis(other, key));
        let (one, two) = (self.text(key, &a), self.text(key, &b));
        let (done, did) = tokio::join!(
            self.ring.put((at, Care::Sloppy), "sib", key, &one, a.context.as_ref()),
            self.ring.put((there, Care::Sloppy), "sib", key, &two, b.context.as_ref())
        );
        self.note(key, &one, &a, &format!("client {client} via {at}, at once"), done);
        self.note(key, &two, &b, &format!("client {other} via {there}, at once"), did);
    }

    /// What a client knows, or nothing.
    fn basis(&mut self, client: usize, key: &str) -> Shown {
        let blind = self.dice.below(3) == 0;
        if blind { Shown::default() } else { self.seen[client].get(key).cloned().unwrap_or_default() }
    }

    /// A text that nobody has sent, which is about to be.
    fn text(&mut self, key: &'static str, basis: &Shown) -> String {
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
        basis: &Shown,
        who: &str,
        done: Result<(), larder_gateway::Error>,
    ) {
        self.log.push(format!("{key}: put {text} over {:?} by {who}: {done:?}", basis.texts));
        let record = self.records.entry(key).or_default();
        if done.is_ok() {
            record.acknowledged.insert(text.into());
            record.must_be_gone.extend(basis.texts.iter().cloned());
        } else {
            record.unsure = true;
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        let mut listed: Vec<Vec<Bytes>> = Vec::new();
        for at in 0..self.ring.gates.len() {
            listed.push(self.ring.keys(at, "sib").await.map_err(|error| error.to_string())?);
        }
        self.log.push(format!("listed: {listed:?}"));
        for (key, record) in &self.records {
            let mut views = Vec::new();
            for at in 0..self.ring.gates.len() {
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
                let may = !shown.is_empty() || record.unsure;
                if (must && !is_listed) || (is_listed && !may) {
                    return Err(format!("{key}: shown are {shown:?}, listed {is_listed}"));
                }
            }
        }
        Ok(())
    }
}

impl Record {
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
