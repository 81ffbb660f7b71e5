//! A write disappears only when a later writer saw it, in every order of arrival, with delays, repeats and losses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where an expectation does not hold")]

use std::collections::BTreeSet;

use larder_kv::rules::causality::{ConflictPolicy, Context, KeyWrite};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::key::{KeyRows, delete, put, texts, via_client};

/// The next step of a client.
#[derive(Debug, Clone)]
enum ClientStep {
    /// Reads and keeps the context.
    Read(usize),
    /// Sends a put, blind or with its context; the store applies it `delay` steps later, or never, or twice.
    Put { client: usize, blind: bool, delay: usize, fate: PutDelivery },
    /// Sends a delete with its context.
    Delete { client: usize, delay: usize },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum PutDelivery {
    Applied,
    Lost,
    Repeated,
}

const CLIENTS: usize = 4;

fn step() -> impl Strategy<Value = ClientStep> {
    let fate =
        prop_oneof![4 => Just(PutDelivery::Applied), 1 => Just(PutDelivery::Lost), 1 => Just(PutDelivery::Repeated)];
    prop_oneof![
        2 => (0..CLIENTS).prop_map(ClientStep::Read),
        4 => (0..CLIENTS, any::<bool>(), 0..6_usize, fate)
            .prop_map(|(client, blind, delay, fate)| ClientStep::Put { client, blind, delay, fate }),
        1 => (0..CLIENTS, 0..6_usize).prop_map(|(client, delay)| ClientStep::Delete { client, delay }),
    ]
}

/// A write on its way to the store, and the values that its writer saw.
struct InFlightWrite {
    due: usize,
    write: KeyWrite,
    text: Option<String>,
    saw: BTreeSet<String>,
}

#[derive(Default)]
struct KeySimulation {
    key: KeyRows,
    sent: Vec<InFlightWrite>,
    live: BTreeSet<String>,
    contexts: Vec<(Context, BTreeSet<String>)>,
}

impl KeySimulation {
    /// Applies the writes that are due. `live` is the oracle: the applied values, less those that the writer of an applied
    /// write saw.
    fn apply_due(&mut self, now: usize) {
        let (due, later): (Vec<_>, Vec<_>) = self.sent.drain(..).partition(|sent| sent.due <= now);
        self.sent = later;
        for sent in due {
            self.key.apply(&sent.write.object_changes());
            for gone in &sent.saw {
                self.live.remove(gone);
            }
            self.live.extend(sent.text);
        }
    }

    fn shown(&self) -> BTreeSet<String> {
        texts(&self.key.read(ConflictPolicy::Siblings)).into_iter().collect()
    }

    fn step(&mut self, at: usize, step: &ClientStep) {
        let clock = at as u64 + 1;
        match *step {
            ClientStep::Read(client) => {
                let context = via_client(&self.key.read(ConflictPolicy::Siblings).context);
                self.contexts[client] = (context, self.shown());
            }
            ClientStep::Put { client, blind, delay, fate } => {
                let (context, saw) = if blind { Default::default() } else { self.contexts[client].clone() };
                let text = format!("v{at}");
                let write = put(ConflictPolicy::Siblings, client as u64 + 1, clock, &text, &context);
                let sent = |delay| InFlightWrite {
                    due: at + delay,
                    write: write.clone(),
                    text: Some(text.clone()),
                    saw: saw.clone(),
                };
                if fate != PutDelivery::Lost {
                    self.sent.push(sent(delay));
                }
            }
            ClientStep::Delete { client, delay } => {
                let (context, saw) = self.contexts[client].clone();
                let write = delete(ConflictPolicy::Siblings, client as u64 + 1, clock, &context);
                self.sent.push(InFlightWrite { due: at + delay, write, text: None, saw });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_write_disappears_only_when_a_later_writer_saw_it(steps in vec(step(), 1..60)) {
        let mut world = KeySimulation { contexts: vec![Default::default(); CLIENTS], ..KeySimulation::default() };
        for (at, step) in steps.iter().enumerate() {
            world.apply_due(at);
            world.step(at, step);
        }
        world.apply_due(usize::MAX);
        prop_assert_eq!(world.shown(), world.live);
    }

    #[test]
    fn applying_a_write_again_changes_nothing(steps in vec(step(), 1..40)) {
        let mut world = KeySimulation { contexts: vec![Default::default(); CLIENTS], ..KeySimulation::default() };
        for (at, step) in steps.iter().enumerate() {
            if let ClientStep::Put { fate: PutDelivery::Repeated, .. } = step {
                let before = world.shown();
                for sent in world.sent.iter().filter(|sent| sent.due <= at) {
                    let mut key = world.key.clone();
                    key.apply(&sent.write.object_changes());
                    let once: BTreeSet<_> = texts(&key.read(ConflictPolicy::Siblings)).into_iter().collect();
                    key.apply(&sent.write.object_changes());
                    prop_assert_eq!(&once, &texts(&key.read(ConflictPolicy::Siblings)).into_iter().collect());
                }
                prop_assert_eq!(before, world.shown());
            }
            world.apply_due(at);
            world.step(at, step);
        }
    }

    /// Without `allow_mult` every reader gets the last write, and no overwritten value comes back.
    #[test]
    fn newest_shows_the_last_write(texts_written in vec("[a-z]{1,3}", 1..20)) {
        let mut key = KeyRows::default();
        for (at, text) in texts_written.iter().enumerate() {
            let context = key.read(ConflictPolicy::Newest).context;
            let write = put(ConflictPolicy::Newest, at as u64 % 3 + 1, at as u64 + 1, text, &context);
            key.apply(&write.object_changes());
            prop_assert_eq!(texts(&key.read(ConflictPolicy::Newest)), vec![text.clone()]);
            prop_assert_eq!(texts(&key.read(ConflictPolicy::Siblings)).len(), 1);
        }
    }
}
