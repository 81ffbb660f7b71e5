//! What replicas add to data types: batches that some of them took, clocks apart from their rows, replicas that return. Each
//! schedule runs with many seeds, which lose other messages.

use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::datatypes::{
    DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldName, MapEdits, SetEdit,
};
use larder_testkit::replicas::{ClusterSetup, NetworkFaults};

use super::client::{KINDS, adds, change_of, fetch_of, field, remove_field, removes};
use crate::simulation::replicas::ring::SimRing;
use crate::simulation::world::run;

const SEEDS: u64 = 60;
/// For updates that read first: most losses end them before their batch.
const MANY_SEEDS: u64 = 400;
const LOSSY: NetworkFaults = NetworkFaults {
    delay_ms_max: 20,
    lose_per_mille: 600,
    stop_per_mille: 0,
    hints_lost_per_mille: 1000,
    hint_ms_max: 0,
    cas_torn_per_mille: 0,
};

/// Two gateways over three replicas that never repair what a read finds, unless they are asked to.
async fn ring(seed: u64, read_repair: bool) -> SimRing {
    let ring = SimRing::new(seed, ClusterSetup { read_repair, ..ClusterSetup::default() }, &[0, 0]).await;
    for kind in KINDS {
        ring.add_type(kind, &format!("{{\"datatype\":\"{kind}\"}}")).await;
    }
    ring
}

impl SimRing {
    async fn change(&self, at: usize, change: DatatypeChange) -> Result<(), Error> {
        self.members[at].gateway.kv.update_datatype(change).await
    }

    async fn update_with(
        &self,
        at: usize,
        kind: &'static str,
        update: DatatypeUpdate,
        context: Option<&Bytes>,
    ) -> Result<(), Error> {
        self.change(at, DatatypeChange { context: context.cloned(), ..change_of(kind, "k", update) }).await
    }

    /// An update whose messages may be lost, by a client that waits for a second; whether it was acknowledged.
    async fn lossy(&self, at: usize, kind: &'static str, update: DatatypeUpdate) -> bool {
        // What an update reads may be lost, too.
        let reads_first = matches!(kind, "counter" | "hll");
        let lose_per_mille = if reads_first { 350 } else { LOSSY.lose_per_mille };
        self.replicas.set_network_faults(NetworkFaults { lose_per_mille, ..LOSSY });
        let timeout = Some(Duration::from_secs(1));
        let answer = self.change(at, DatatypeChange { timeout, ..change_of(kind, "k", update) }).await;
        self.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, ..NetworkFaults::none() });
        answer.is_ok()
    }

    async fn value(&self, at: usize, kind: &'static str) -> (Option<DatatypeValue>, Option<Bytes>) {
        match self.members[at].gateway.kv.fetch_datatype(fetch_of(kind, "k")).await.unwrap() {
            Some(reader) => {
                let (value, context) = reader.whole(usize::MAX).await.unwrap();
                (Some(value), context)
            }
            None => (None, None),
        }
    }

    async fn shown_elements(&self, at: usize) -> (Vec<Bytes>, Option<Bytes>) {
        match self.value(at, "set").await {
            (Some(DatatypeValue::Set(elements)), context) => (elements, context),
            (other, context) => {
                assert_eq!(other, None, "a set or nothing");
                (Vec::new(), context)
            }
        }
    }

    async fn shown_total(&self, at: usize) -> i128 {
        match self.value(at, "counter").await.0 {
            Some(DatatypeValue::Counter(total)) => total,
            other => {
                assert_eq!(other, None, "a counter or nothing");
                0
            }
        }
    }
}

/// An increment that a minority took is reset by another gateway; the next one has to be a later operation, or the reset takes it,
/// too.
async fn reset_after_a_lost_answer(seed: u64) {
    let ring = ring(seed, false).await;
    ring.update_with(0, "counter", DatatypeUpdate::Counter(1), None).await.unwrap();
    let acknowledged = ring.lossy(0, "counter", DatatypeUpdate::Counter(50)).await;
    let _ = ring.delete(1, "counter", "k", None).await;
    ring.update_with(0, "counter", DatatypeUpdate::Counter(700), None).await.unwrap();
    let total = ring.shown_total(1).await;
    assert!(total == 700 || total == 750 && !acknowledged, "seed {seed}: {total}");
    ring.advance(60_000).await;
    assert_eq!(ring.shown_total(0).await, ring.shown_total(1).await, "seed {seed}");
}

#[test]
fn totals_go_on_from_a_batch_that_a_minority_took() {
    for seed in 0..MANY_SEEDS {
        run(reset_after_a_lost_answer(seed));
    }
}

/// The answer of an add is lost, and the next one is acknowledged: from then on every reader sees both, and no context covers the
/// first without showing it.
async fn add_after_a_lost_answer(seed: u64) {
    let ring = ring(seed, false).await;
    ring.lossy(0, "set", adds(&["missed"])).await;
    ring.update_with(0, "set", adds(&["next"]), None).await.unwrap();
    for at in [0, 1, 0, 1] {
        assert_eq!(ring.shown_elements(at).await.0, ["missed", "next"], "seed {seed}");
    }
}

#[test]
fn a_batch_without_an_answer_is_inside_the_next_one() {
    for seed in 0..SEEDS {
        run(add_after_a_lost_answer(seed));
    }
}

/// A reader of one element repairs the clocks of a batch that a minority took, and not its rows. Another reader sees the clock
/// alone; its context must not cover the rows.
async fn clocks_apart_from_their_rows(seed: u64) {
    let ring = ring(seed, true).await;
    ring.update_with(1, "set", adds(&["first"]), None).await.unwrap();
    let many: Vec<String> = (0..30).map(|at| format!("missed{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    ring.lossy(0, "set", adds(&many)).await;
    for _ in 0..3 {
        let _ = ring.members[1].gateway.kv.has_element(fetch_of("set", "k"), &"first".into()).await;
    }
    let (shown, context) = ring.shown_elements(1).await;
    // The gateway sends the batch again, and then every element is there.
    ring.advance(120_000).await;
    ring.update_with(1, "set", removes(&many), context.as_ref()).await.unwrap();
    let left = ring.shown_elements(0).await.0;
    let unseen: Vec<Bytes> = many.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    for name in unseen.iter().filter(|name| !shown.contains(name)) {
        assert!(left.contains(name), "seed {seed}: {name:?} was removed, and its remover never saw it");
    }
}

#[test]
fn a_context_covers_no_clock_that_a_quorum_is_not_known_to_have() {
    for seed in 0..SEEDS {
        run(clocks_apart_from_their_rows(seed));
    }
}

#[test]
fn a_large_batch_is_confirmed_so_that_contexts_cover_it() {
    run(async {
        let ring = ring(1, true).await;
        let many: Vec<String> = (0..300).map(|at| format!("e{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        ring.update_with(0, "set", adds(&many), None).await.unwrap();
        ring.advance(5_000).await;
        let (shown, context) = ring.shown_elements(1).await;
        assert_eq!(shown.len(), 300);
        ring.update_with(1, "set", removes(&many), context.as_ref()).await.unwrap();
        assert_eq!(
            ring.shown_elements(0).await.0,
            [""; 0],
            "a context names a hundred rows, and covers the others by their clock"
        );
    });
}

#[test]
fn a_deleted_key_is_not_brought_back_by_the_confirmation_of_its_last_batch() {
    run(async {
        let ring = ring(1, true).await;
        let many: Vec<String> = (0..300).map(|at| format!("e{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        ring.update_with(0, "set", adds(&many), None).await.unwrap();
        assert!(ring.delete(1, "set", "k", None).await.unwrap());
        ring.advance(60_000).await;
        assert_eq!(ring.value(0, "set").await.0, None);
        assert_eq!(ring.keys(0, "set").await.unwrap(), [""; 0]);
    });
}

#[test]
fn a_delete_with_a_context_hides_no_row_that_its_client_did_not_see() {
    run(async {
        let ring = ring(1, true).await;
        let many: Vec<String> = (0..300).map(|at| format!("e{at:03}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        ring.update_with(0, "set", adds(&many), None).await.unwrap();
        // At once: the clock of the batch is not confirmed, and the context has no room for the names of all its rows.
        let (shown, context) = ring.shown_elements(1).await;
        assert_eq!(shown.len(), 300);
        assert!(ring.delete(1, "set", "k", context.as_ref()).await.unwrap());
        let left = ring.shown_elements(0).await.0;
        assert_eq!(left.len(), 201, "what the context did not name is still there to be seen");
    });
}

#[test]
fn a_row_that_a_context_names_was_once_left_by_the_delete_of_a_large_set() {
    run(async {
        let ring = ring(1, true).await;
        // More pages of names than a removal takes one by one: the others it leaves to a marker.
        let many: Vec<String> = (0..160).map(|at| format!("{at:03}{}", "x".repeat(8000))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for part in many.chunks(80) {
            ring.update_with(0, "set", adds(part), None).await.unwrap();
        }
        ring.advance(5_000).await;
        ring.update_with(0, "set", adds(&["w"]), None).await.unwrap();
        // At once: the context names the row, as its clock is not confirmed.
        let (shown, context) = ring.shown_elements(1).await;
        assert_eq!(shown.len(), 161);
        // The next batch says that a quorum has the one before.
        ring.update_with(0, "set", adds(&["v"]), None).await.unwrap();
        assert!(ring.delete(1, "set", "k", context.as_ref()).await.unwrap());
        let left = ring.shown_elements(0).await.0;
        assert_eq!(left.len(), 1, "what the context did not show is still there, and nothing else: {:?}", left.last());
    });
}

/// A gateway adds an element whose batch had no answer and was removed meanwhile: what its own batch says may not be there.
async fn element_added_again_after_a_lost_answer(seed: u64) {
    let ring = ring(seed, true).await;
    let hash = |name: &'static str| DatatypeUpdate::Hll(vec![name.into()]);
    ring.update_with(1, "hll", hash("other"), None).await.unwrap();
    ring.lossy(0, "hll", hash("again")).await;
    ring.delete(1, "hll", "k", None).await.unwrap();
    ring.update_with(0, "hll", hash("again"), None).await.unwrap();
    ring.advance(60_000).await;
    assert_eq!(ring.value(1, "hll").await.0, Some(DatatypeValue::Hll(1)), "seed {seed}");
}

#[test]
fn an_element_that_was_hashed_without_an_answer_is_hashed_anew() {
    for seed in 0..MANY_SEEDS {
        run(element_added_again_after_a_lost_answer(seed));
    }
}

/// An increment that its client repeats until it is answered.
fn named(id: &'static str, by: i64) -> DatatypeChange {
    DatatypeChange {
        request_id: Some(id.into()),
        timeout: Some(Duration::from_secs(1)),
        ..change_of("counter", "k", DatatypeUpdate::Counter(by))
    }
}

/// One increment with an id through both gateways at once, some answers lost, and then again.
async fn increments_with_one_id(seed: u64) {
    let ring = ring(seed, true).await;
    // Most losses end one of the two before its batch.
    let lose_per_mille = if seed.is_multiple_of(2) { 0 } else { 200 };
    ring.replicas.set_network_faults(NetworkFaults { lose_per_mille, ..LOSSY });
    let _ = tokio::join!(ring.change(0, named("a", 3)), ring.change(1, named("a", 3)), ring.change(1, named("b", 40)));
    ring.replicas.set_network_faults(NetworkFaults::none());
    for at in [0, 1, 0] {
        ring.change(at, named("a", 3)).await.unwrap();
        ring.change(at, named("b", 40)).await.unwrap();
    }
    ring.advance(60_000).await;
    for at in [0, 1] {
        assert_eq!(ring.shown_total(at).await, 43, "seed {seed}");
    }
}

#[test]
fn an_increment_with_an_id_through_two_gateways_at_once_counts_once() {
    for seed in 0..SEEDS {
        run(increments_with_one_id(seed));
    }
}

/// An increment that a minority took is repeated through another gateway, which reads the replica that has it.
async fn increment_found_at_a_minority(seed: u64) {
    let ring = ring(seed, false).await;
    ring.replicas.set_network_faults(NetworkFaults { lose_per_mille: 350, ..LOSSY });
    let _ = ring.change(0, named("a", 3)).await;
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 20, ..NetworkFaults::none() });
    ring.change(1, named("a", 3)).await.unwrap();
    for at in [0, 1, 0, 1, 0, 1] {
        assert_eq!(ring.shown_total(at).await, 3, "seed {seed}");
    }
}

#[test]
fn an_increment_found_at_a_minority_was_once_answered_and_missing_in_the_next_read() {
    for seed in 0..MANY_SEEDS {
        run(increment_found_at_a_minority(seed));
    }
}

/// A counter of a part that is removed by a marker, while its gateway adds to it.
async fn increment_under_a_marker(seed: u64) {
    let ring = ring(seed, true).await;
    // Names of so many bytes that no batch has room for them.
    let names = (0..80).map(|at| SetEdit::Add(format!("{at:0>8000}").into()));
    let large = FieldEdit { name: "s".into(), update: EmbeddedUpdate::Set(names.collect()) };
    let count = |by| FieldEdit { name: "n".into(), update: EmbeddedUpdate::Counter(by) };
    let within = |updates| {
        let edits = MapEdits { removes: Vec::new(), updates };
        field("m", EmbeddedUpdate::Map(edits))
    };
    ring.update_with(0, "map", within(vec![count(10)]), None).await.unwrap();
    ring.update_with(1, "map", within(vec![large]), None).await.unwrap();
    ring.replicas.set_network_faults(NetworkFaults { delay_ms_max: 40, ..NetworkFaults::none() });
    let removal = remove_field(FieldName::new("m", EmbeddedType::Map));
    let increment = async {
        ring.advance(seed % 40).await;
        ring.update_with(0, "map", within(vec![count(1)]), None).await.unwrap();
    };
    let (removed, ()) = tokio::join!(ring.update_with(1, "map", removal, None), increment);
    removed.unwrap();
    ring.advance(120_000).await;
    let total = match ring.value(1, "map").await.0 {
        Some(DatatypeValue::Map(fields)) => match fields.first().map(|field| field.value.clone()) {
            Some(EmbeddedValue::Map(inner)) => match inner.first().map(|field| field.value.clone()) {
                Some(EmbeddedValue::Counter(total)) => total,
                other => panic!("seed {seed}: {other:?}"),
            },
            None => 0,
            other => panic!("seed {seed}: {other:?}"),
        },
        other => panic!("seed {seed}: {other:?}"),
    };
    assert!([0, 1].contains(&total), "seed {seed}: {total}: the removed ten are back");
}

#[test]
fn a_counter_below_a_marker_keeps_only_what_its_remover_did_not_see() {
    for seed in 0..SEEDS {
        run(increment_under_a_marker(seed));
    }
}

/// A replica that was down while a large value was deleted and its rows cleaned comes back without the hints for it.
#[test]
fn a_replica_that_missed_a_large_delete_brings_nothing_back() {
    run(async {
        for down in 0..3 {
            let ring = ring(down as u64, true).await;
            let names = (0..80).map(|at| SetEdit::Add(format!("{at:0>8000}").into()));
            ring.update_with(0, "set", DatatypeUpdate::Set(names.collect()), None).await.unwrap();
            ring.advance(3_000).await;
            ring.replicas.kill(down);
            assert!(ring.delete(1, "set", "k", None).await.unwrap());
            // The marker and the rows that it hid are gone.
            ring.advance(120_000).await;
            ring.replicas.lose_hints();
            ring.replicas.revive(down);
            for at in [0, 1, 0, 1, 0, 1] {
                assert_eq!(ring.value(at, "set").await.0, None, "replica {down}");
            }
            ring.update_with(0, "set", adds(&["new"]), None).await.unwrap();
            for at in [1, 0, 1, 0] {
                assert_eq!(ring.shown_elements(at).await.0, ["new"], "replica {down}");
            }
        }
    });
}
