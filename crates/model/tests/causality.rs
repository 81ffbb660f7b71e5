//! No acknowledged write is lost unless a later writer saw it: whatever the order, the delays, the repeats and the failures.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]

mod key;

use key::{Key, carried, delete, put, texts};
use larder_model::causality::{Context, Mode, Write};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What a client does next.
#[derive(Debug, Clone)]
enum Step {
    /// Reads and remembers the context.
    Read(usize),
    /// Sends a put, blind or with its context; it is applied `delay` steps later, or never, or twice.
    Put { client: usize, blind: bool, delay: usize, fate: Fate },
    /// Sends a delete with its context.
    Delete { client: usize, delay: usize },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Applied,
    Lost,
    Repeated,
}

const CLIENTS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![4 => Just(Fate::Applied), 1 => Just(Fate::Lost), 1 => Just(Fate::Repeated)];
    prop_oneof![
        2 => (0..CLIENTS).prop_map(Step::Read),
        4 => (0..CLIENTS, any::<bool>(), 0..6_usize, fate)
            .prop_map(|(client, blind, delay, fate)| Step::Put { client, blind, delay, fate }),
        1 => (0..CLIENTS, 0..6_usize).prop_map(|(client, delay)| Step::Delete { client, delay }),
    ]
}

/// A write on its way, and what it saw.
struct Sent {
    due: usize,
    write: Write,
    text: Option<String>,
    saw: BTreeSet<String>,
}

#[derive(Default)]
struct World {
    key: Key,
    sent: Vec<Sent>,
    live: BTreeSet<String>,
    contexts: Vec<(Context, BTreeSet<String>)>,
}

impl World {
    /// Applies what is due; the oracle says what must be there: what was applied, less what an applied write saw.
    fn arrive(&mut self, now: usize) {
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
        texts(&self.key.read(Mode::Siblings)).into_iter().collect()
    }

    fn step(&mut self, at: usize, step: &Step) {
        let clock = at as u64 + 1;
        match *step {
            Step::Read(client) => {
                let context = carried(&self.key.read(Mode::Siblings).context);
                self.contexts[client] = (context, self.shown());
            }
            Step::Put { client, blind, delay, fate } => {
                let (context, saw) = if blind { Default::default() } else { self.contexts[client].clone() };
                let text = format!("v{at}");
                let write = put(Mode::Siblings, client as u64 + 1, clock, &text, &context);
                let sent =
                    |delay| Sent { due: at + delay, write: write.clone(), text: Some(text.clone()), saw: saw.clone() };
                if fate != Fate::Lost {
                    self.sent.push(sent(delay));
                }
            }
            Step::Delete { client, delay } => {
                let (context, saw) = self.contexts[client].clone();
                let write = delete(Mode::Siblings, client as u64 + 1, clock, &context);
                self.sent.push(Sent { due: at + delay, write, text: None, saw });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_write_is_lost_unless_it_was_seen(steps in vec(step(), 1..60)) {
        let mut world = World { contexts: vec![Default::default(); CLIENTS], ..World::default() };
        for (at, step) in steps.iter().enumerate() {
            world.arrive(at);
            world.step(at, step);
        }
        world.arrive(usize::MAX);
        prop_assert_eq!(world.shown(), world.live);
    }

    #[test]
    fn applying_a_write_again_changes_nothing(steps in vec(step(), 1..40)) {
        let mut world = World { contexts: vec![Default::default(); CLIENTS], ..World::default() };
        for (at, step) in steps.iter().enumerate() {
            if let Step::Put { fate: Fate::Repeated, .. } = step {
                let before = world.shown();
                for sent in world.sent.iter().filter(|sent| sent.due <= at) {
                    let mut key = world.key.clone();
                    key.apply(&sent.write.object_changes());
                    let once: BTreeSet<_> = texts(&key.read(Mode::Siblings)).into_iter().collect();
                    key.apply(&sent.write.object_changes());
                    prop_assert_eq!(&once, &texts(&key.read(Mode::Siblings)).into_iter().collect());
                }
                prop_assert_eq!(before, world.shown());
            }
            world.arrive(at);
            world.step(at, step);
        }
    }

    /// Whoever writes last without `allow_mult` is what everyone reads, and no loser comes back.
    #[test]
    fn newest_shows_the_last_writer(texts_written in vec("[a-z]{1,3}", 1..20)) {
        let mut key = Key::default();
        for (at, text) in texts_written.iter().enumerate() {
            let context = key.read(Mode::Newest).context;
            let write = put(Mode::Newest, at as u64 % 3 + 1, at as u64 + 1, text, &context);
            key.apply(&write.object_changes());
            prop_assert_eq!(texts(&key.read(Mode::Newest)), vec![text.clone()]);
            prop_assert_eq!(texts(&key.read(Mode::Siblings)).len(), 1);
        }
    }
}
