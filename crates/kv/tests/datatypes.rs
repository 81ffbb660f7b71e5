//! Laws of data types over every order of messages: several actors update one key, each over its own replica, and send their
//! changes to the others, which take them late and twice, a message after those that its sender had.
//!
//! After each step the value of a replica is that of a model which knows every update by its own tag: an update is gone exactly
//! if a client that saw it removed it. At the end all replicas have the same rows.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use bytes::Bytes;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, FieldEdit, FieldName, MapEdits, SetEdit,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "datatype/replica.rs"]
mod replica;

use replica::{Replica, ReplicaMessage, Seen};

const ACTORS: usize = 3;
const NAMES: [&str; 2] = ["a", "b"];

/// A step of a schedule; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    /// An update by an actor, with its freshest context, none, or an older one of any client.
    Update { by: usize, update: DatatypeUpdate, context: ContextChoice },
    /// The removal of the whole key.
    Delete { by: usize, large: bool },
    /// A client keeps what a read shows.
    Read { at: usize },
    /// The next message of a sender arrives, or an old one again.
    Deliver { from: usize, to: usize, again: bool },
}

#[derive(Debug, Clone, Copy)]
enum ContextChoice {
    None,
    Fresh { large: bool },
    Older(usize),
}

fn name() -> impl Strategy<Value = Bytes> {
    (0..NAMES.len()).prop_map(|at| NAMES[at].into())
}

fn set_edits() -> impl Strategy<Value = Vec<SetEdit>> {
    vec((any::<bool>(), name()), 0..3).prop_map(|edits| {
        edits.into_iter().map(|(add, name)| if add { SetEdit::Add(name) } else { SetEdit::Remove(name) }).collect()
    })
}

/// Maps with all types; counters only if wanted.
fn map_edits(counters: bool, depth: u32) -> BoxedStrategy<MapEdits> {
    let least = if counters { 0 } else { 1 };
    let field =
        (name(), least..EmbeddedType::ALL.len()).prop_map(|(name, at)| FieldName::new(name, EmbeddedType::ALL[at]));
    let counter = (-5..5_i64).prop_map(EmbeddedUpdate::Counter);
    let others = prop_oneof![
        set_edits().prop_map(EmbeddedUpdate::Set),
        name().prop_map(EmbeddedUpdate::Register),
        any::<bool>().prop_map(EmbeddedUpdate::Flag),
    ];
    let leaf = if counters { prop_oneof![counter, others].boxed() } else { others.boxed() };
    let update = match depth {
        0 => leaf,
        _ => prop_oneof![3 => leaf, 1 => map_edits(counters, depth - 1).prop_map(EmbeddedUpdate::Map)].boxed(),
    };
    let edit = (name(), update).prop_map(|(name, update)| FieldEdit { name, update });
    (vec(field, 0..2), vec(edit, 0..3)).prop_map(|(removes, updates)| MapEdits { removes, updates }).boxed()
}

fn steps(update: impl Strategy<Value = DatatypeUpdate>, stale: bool) -> impl Strategy<Value = Vec<Step>> {
    let context = prop_oneof![
        2 => Just(ContextChoice::None),
        2 => any::<bool>().prop_map(|large| ContextChoice::Fresh { large }),
        2 => any::<usize>().prop_map(move |at| if stale { ContextChoice::Older(at) } else { ContextChoice::None }),
    ];
    let step = prop_oneof![
        6 => (0..ACTORS, update, context).prop_map(|(by, update, context)| Step::Update { by, update, context }),
        1 => (0..ACTORS, any::<bool>()).prop_map(|(by, large)| Step::Delete { by, large }),
        2 => (0..ACTORS).prop_map(|at| Step::Read { at }),
        6 => (0..ACTORS, 0..ACTORS, proptest::bool::weighted(0.2))
            .prop_map(|(from, to, again)| Step::Deliver { from, to, again }),
    ];
    vec(step, 1..40)
}

/// A schedule as it runs.
struct Cluster {
    replicas: Vec<Replica>,
    /// The messages of each sender, with the messages of the others that it had taken by then.
    sent: Vec<Vec<(ReplicaMessage, Vec<usize>)>>,
    /// For each receiver and sender the messages taken.
    taken: Vec<Vec<usize>>,
    seen: Vec<Seen>,
    datatype: Datatype,
}

impl Cluster {
    fn new(datatype: Datatype, skews: &[u64]) -> Self {
        let replicas = (0..ACTORS).map(|at| Replica::new(at as u64 + 1, skews[at])).collect();
        let (sent, taken) = (vec![Vec::new(); ACTORS], vec![vec![0; ACTORS]; ACTORS]);
        Self { replicas, sent, taken, seen: Vec::new(), datatype }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Update { by, update, context } => {
                let fresh =
                    matches!(context, ContextChoice::Fresh { .. }).then(|| self.replicas[*by].read(self.datatype).1);
                let seen = match context {
                    ContextChoice::Older(at) if !self.seen.is_empty() => Some(&self.seen[at % self.seen.len()]),
                    _ => fresh.as_ref(),
                };
                let large = matches!(context, ContextChoice::Fresh { large: true });
                let message = self.replicas[*by].update(Some(update), seen, large);
                self.send(*by, message);
            }
            Step::Delete { by, large } => {
                let message = self.replicas[*by].update(None, None, *large);
                self.send(*by, message);
            }
            Step::Read { at } => self.seen.push(self.replicas[*at].read(self.datatype).1),
            Step::Deliver { from, to, again } if from != to => {
                self.deliver(*from, *to, *again);
            }
            Step::Deliver { .. } => {}
        }
    }

    fn send(&mut self, by: usize, message: Option<ReplicaMessage>) {
        let taken = self.taken[by].clone();
        self.sent[by].extend(message.map(|message| (message, taken)));
    }

    /// Delivers a message once the receiver has all that its sender had: what a quorum has read, a quorum has. Whether it did.
    fn deliver(&mut self, from: usize, to: usize, again: bool) -> bool {
        let taken = self.taken[to][from];
        let at = if again { taken / 2 } else { taken };
        let Some((message, before)) = self.sent[from].get(at) else { return false };
        let is_ready = (0..ACTORS)
            .filter(|other| *other != to)
            .all(|other| self.taken[to][other] >= before[other] || other == from);
        if is_ready {
            self.replicas[to].receive(message);
            self.taken[to][from] = taken.max(at + 1);
        }
        is_ready
    }

    fn settle(&mut self) {
        let pairs: Vec<_> =
            (0..ACTORS).flat_map(|from| (0..ACTORS).map(move |to| (from, to))).filter(|(a, b)| a != b).collect();
        let mut again = true;
        while again {
            again = false;
            for (from, to) in &pairs {
                again |= self.deliver(*from, *to, false);
            }
        }
    }

    /// A replica that takes every message in another order, whatever came before it.
    fn latecomer(&self) -> Replica {
        let mut replica = Replica::new(99, 0);
        self.sent.iter().rev().flat_map(|sent| sent.iter().rev()).for_each(|(message, _)| replica.receive(message));
        replica
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for replica in &self.replicas {
            prop_assert_eq!(replica.read(self.datatype).0, replica.expected(self.datatype));
        }
        Ok(())
    }
}

fn run(datatype: Datatype, skews: &[u64], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut cluster = Cluster::new(datatype, skews);
    for step in steps {
        cluster.step(step);
        cluster.check()?;
    }
    cluster.settle();
    cluster.check()?;
    prop_assert_eq!(cluster.replicas[0].rows(), cluster.replicas[1].rows());
    prop_assert_eq!(cluster.replicas[0].rows(), cluster.replicas[2].rows());
    let latecomer = cluster.latecomer();
    prop_assert_eq!(cluster.replicas[0].rows(), latecomer.rows());
    Ok(())
}

/// The steps that remove row by row. A marker takes a counter whole that one gateway writes; two at once may bring it back.
fn without_markers(steps: Vec<Step>) -> Vec<Step> {
    let by_marker = |step: &Step| {
        let removes = |context: &ContextChoice| matches!(context, ContextChoice::Fresh { large: true });
        matches!(step, Step::Delete { large: true, .. })
            || matches!(step, Step::Update { context, .. } if removes(context))
    };
    steps.into_iter().filter(|step| !by_marker(step)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn sets_keep_every_add_that_no_remover_saw(
        skews in vec(0..50_u64, ACTORS), steps in steps(set_edits().prop_map(DatatypeUpdate::Set), true),
    ) {
        run(Datatype::Set, &skews, &steps)?;
    }

    #[test]
    fn counters_lose_and_repeat_no_increment(
        skews in vec(0..50_u64, ACTORS), steps in steps((-9..9_i64).prop_map(DatatypeUpdate::Counter), true),
    ) {
        run(Datatype::Counter, &skews, &without_markers(steps))?;
    }

    #[test]
    fn maps_keep_the_content_of_every_concurrent_update(
        skews in vec(0..50_u64, ACTORS), steps in steps(map_edits(false, 2).prop_map(DatatypeUpdate::Map), true),
    ) {
        run(Datatype::Map, &skews, &steps)?;
    }

    #[test]
    fn counters_in_removed_fields_begin_at_zero(
        skews in vec(0..50_u64, ACTORS), steps in steps(map_edits(true, 1).prop_map(DatatypeUpdate::Map), false),
    ) {
        run(Datatype::Map, &skews, &without_markers(steps))?;
    }
}

/// An update whose batch reaches no replica that its sender reads: too few took it, and it is never sent again.
fn missed(sender: &Replica, update: &DatatypeUpdate) -> ReplicaMessage {
    sender.clone().update(Some(update), None, false).unwrap()
}

fn add(element: &'static str) -> DatatypeUpdate {
    DatatypeUpdate::Set(vec![SetEdit::Add(element.into())])
}

/// Why an engine with replicas is refused, first: two totals of one source with the same number of operations. A rule that is not
/// built excludes it: after a batch of unknown fate a counter begins a new birth, or the batch is sent again inside the next one.
#[test]
fn on_replicas_a_batch_that_missed_its_quorum_lets_a_reset_take_a_later_increment() {
    let (mut one, mut other) = (Replica::new(1, 0), Replica::new(2, 0));
    let first = one.update(Some(&DatatypeUpdate::Counter(1)), None, false).unwrap();
    other.receive(&first);
    other.receive(&missed(&one, &DatatypeUpdate::Counter(5)));
    let removal = other.update(None, None, false).unwrap();
    one.receive(&removal);
    // Acknowledged, and made after the removal.
    let last = one.update(Some(&DatatypeUpdate::Counter(7)), None, false).unwrap();
    other.receive(&last);
    assert_eq!(other.expected(Datatype::Counter), DatatypeValue::Counter(7));
    assert_eq!(
        other.read(Datatype::Counter).0,
        DatatypeValue::Counter(0),
        "the second operation is one that was reset"
    );
}

/// Why an engine with replicas is refused, second: a clock says that its reader has all older rows of the actor. Rules that are not
/// built exclude it: a clock row says also which clock is confirmed at a quorum, and a context names only that one.
#[test]
fn on_replicas_a_context_covers_a_batch_that_its_reader_missed() {
    let (mut one, mut other) = (Replica::new(1, 0), Replica::new(2, 0));
    let lost = missed(&one, &add("missed"));
    let next = one.update(Some(&add("next")), None, false).unwrap();
    let (shown, seen) = one.read(Datatype::Set);
    assert_eq!(shown, DatatypeValue::Set(vec!["next".into()]));
    // The replica that took the first batch answers again, and other clients see its element.
    other.receive(&lost);
    other.receive(&next);
    let removal = DatatypeUpdate::Set(vec![SetEdit::Remove("missed".into())]);
    other.update(Some(&removal), Some(&seen), false).unwrap();
    let both = DatatypeValue::Set(vec!["missed".into(), "next".into()]);
    assert_eq!(other.expected(Datatype::Set), both);
    assert_eq!(other.read(Datatype::Set).0, DatatypeValue::Set(vec!["next".into()]), "its remover never saw it");
}
