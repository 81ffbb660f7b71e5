use tokio::time::Instant;

use super::*;
use crate::SplitMix64;
use crate::conformance::{ManualClock, conformance};
use larder_store::cas_history::{CasHistory, CasOutcome};
use larder_store::derived_rows::DerivedRowStore;
use larder_store::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, Durability, HeadWrite, Kind, PartitionChanges, Result,
    Row, Store, Table, Timestamp,
};

const DAY: Duration = Duration::from_secs(86_400);

fn cluster(setup: ClusterSetup, seed: u64) -> (Replicas, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Replicas::new(clock.clone(), setup, seed), clock)
}

fn three_nodes(seed: u64) -> Replicas {
    cluster(ClusterSetup::default(), seed).0
}

fn options(level: ConsistencyLevel) -> CallOptions {
    CallOptions::new(level, Instant::now() + Duration::from_secs(30), Durability::Disk)
}

fn partition() -> Partition {
    Partition::new(Table::Objects, "p")
}

fn row(name: &str, value: &str, stamp: Timestamp) -> Row {
    let copy = |text: &str| bytes::Bytes::copy_from_slice(text.as_bytes());
    Row { name: copy(name), value: copy(value), stamp, expires: None }
}

async fn put(store: &Replicas, stamp: Timestamp, level: ConsistencyLevel) -> Result<()> {
    store.apply(Batch::single(partition(), vec![Change::Put(row("a", "v", stamp))]), &options(level)).await
}

async fn remove(store: &Replicas, stamp: Timestamp, level: ConsistencyLevel) -> Result<()> {
    let gone = Change::Remove { name: "a".into(), stamp };
    store.apply(Batch::single(partition(), vec![gone]), &options(level)).await
}

/// The stamp of the row; 0 when absent.
async fn read_stamp(store: &Replicas, level: ConsistencyLevel) -> Result<Timestamp> {
    let page = store.read(&partition(), &ReadQuery::all(9), &options(level)).await?;
    Ok(page.rows.first().map_or(Timestamp::ZERO, |row| row.stamp))
}

fn kind<T>(answer: Result<T>) -> Option<Kind> {
    answer.err().map(|error| error.kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_with_all_nodes_up_conforms() {
    let (store, clock) = cluster(ClusterSetup::default(), 1);
    conformance(Arc::new(DerivedRowStore::new(Arc::new(store))), clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_of_two_datacentres_conforms() {
    let (store, clock) = cluster(ClusterSetup { nodes: 6, datacentres: 2, ..ClusterSetup::default() }, 1);
    conformance(Arc::new(DerivedRowStore::new(Arc::new(store))), clock).await;
}

#[tokio::test(start_paused = true)]
async fn a_level_fails_with_fewer_nodes_than_it_requires() {
    for down in 0..3 {
        let store = three_nodes(down);
        (0..down as usize).for_each(|node| store.kill(node));
        let alive = 3 - down as u32;
        let levels = [
            ConsistencyLevel::Any,
            ConsistencyLevel::One,
            ConsistencyLevel::Two,
            ConsistencyLevel::Three,
            ConsistencyLevel::Quorum,
            ConsistencyLevel::All,
        ];
        for (level, required) in levels.into_iter().zip([1, 1, 2, 3, 2, 3]) {
            let unavailable = (required > alive).then_some(Kind::Unavailable { alive, required });
            assert_eq!(kind(put(&store, Timestamp(5), level).await), unavailable, "{level:?} with {down} down");
            assert_eq!(kind(read_stamp(&store, level).await), unavailable, "{level:?} with {down} down");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_on_no_node() {
    let store = three_nodes(1);
    store.kill(0);
    store.kill(1);
    assert!(put(&store, Timestamp(5), ConsistencyLevel::Quorum).await.is_err());
    store.revive(0);
    store.revive(1);
    store.deliver_hints();
    assert_eq!(read_stamp(&store, ConsistencyLevel::All).await.unwrap(), Timestamp::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_quorum_read_sees_every_quorum_write_whatever_fails() {
    for seed in 0..50 {
        let store = three_nodes(seed);
        store.set_network_faults(NetworkFaults {
            delay_ms_max: 50,
            lose_per_mille: 150,
            hints_lost_per_mille: 1000,
            ..NetworkFaults::none()
        });
        let (mut written, mut tried) = (0, 0);
        for stamp in 1..40 {
            store.kill(stamp as usize % 3);
            tried = stamp;
            if put(&store, Timestamp(stamp), ConsistencyLevel::Quorum).await.is_ok() {
                written = stamp;
            }
            if let Ok(seen) = read_stamp(&store, ConsistencyLevel::Quorum).await {
                assert!((written..=tried).contains(&seen.0), "seed {seed}: {seen} is seen, {written} was answered");
            }
            store.revive(stamp as usize % 3);
        }
        assert!(written > 10, "seed {seed}: {written} of {tried}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missed_write_arrives_by_hint_by_read_repair_or_by_repair() {
    for way in ["hint", "read", "repair", "none"] {
        let store = three_nodes(1);
        store.kill(0);
        put(&store, Timestamp(5), ConsistencyLevel::Quorum).await.unwrap();
        if way != "hint" {
            store.lose_hints();
        }
        store.revive(0);
        match way {
            "hint" => store.deliver_hints(),
            "read" => assert_eq!(read_stamp(&store, ConsistencyLevel::All).await.unwrap(), Timestamp(5)),
            "repair" => store.repair(),
            _ => {}
        }
        assert_eq!(store.stored_counts(0, &partition()).rows, usize::from(way != "none"), "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_delivered_after_its_node_is_back() {
    let store = three_nodes(1);
    store.set_network_faults(NetworkFaults { hint_ms_max: 10_000, ..NetworkFaults::none() });
    store.kill(0);
    put(&store, Timestamp(5), ConsistencyLevel::Any).await.unwrap();
    store.revive(0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(store.stored_counts(0, &partition()).rows, 1);
}

#[tokio::test(start_paused = true)]
async fn each_side_of_a_cut_reaches_only_its_own_nodes() {
    let store = three_nodes(1);
    let other = store.from_side(1);
    store.cut(&[0, 0, 1]);
    put(&store, Timestamp(5), ConsistencyLevel::Quorum).await.unwrap();
    assert_eq!(
        kind(put(&other, Timestamp(6), ConsistencyLevel::Quorum).await),
        Some(Kind::Unavailable { alive: 1, required: 2 })
    );
    put(&other, Timestamp(4), ConsistencyLevel::One).await.unwrap();
    assert_eq!(
        (
            read_stamp(&store, ConsistencyLevel::One).await.unwrap(),
            read_stamp(&other, ConsistencyLevel::One).await.unwrap()
        ),
        (Timestamp(5), Timestamp(4))
    );
    store.heal();
    store.deliver_hints();
    assert_eq!(read_stamp(&other, ConsistencyLevel::One).await.unwrap(), Timestamp(5));
}

/// Writes a batch of two partitions whose coordinator dies. Answers how many of its six writes are applied: at once,
/// and in the end.
async fn batch_of_dead_coordinator(seed: u64, removes: bool) -> (usize, usize) {
    let store = three_nodes(seed);
    let elsewhere = Partition::new(Table::Keys, "elsewhere");
    store
        .apply(
            Batch::single(elsewhere.clone(), vec![Change::Put(row("old", "v", Timestamp(1)))]),
            &options(ConsistencyLevel::All),
        )
        .await
        .unwrap();
    let change = if removes {
        Change::Remove { name: "old".into(), stamp: Timestamp(2) }
    } else {
        Change::Put(row("old", "w", Timestamp(2)))
    };
    let mut batch = Batch::single(partition(), vec![Change::Put(row("a", "v", Timestamp(2)))]);
    batch.add(elsewhere.clone(), vec![change]);
    store.set_network_faults(NetworkFaults { stop_per_mille: 1000, ..NetworkFaults::none() });
    let _ = store.apply(batch, &options(ConsistencyLevel::Quorum)).await;
    store.set_network_faults(NetworkFaults::none());
    let there = async || {
        let mut done = 0;
        for node in 0..3 {
            done += usize::from(store.stored_counts(node, &partition()).rows == 1);
            let page = store.state.lock().nodes[node].cells(&elsewhere).rows(store.clock.now());
            done += usize::from(page.get(&b"old"[..]).is_none_or(|row| row.stamp == Timestamp(2)));
        }
        done
    };
    let first = there().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let _ = read_stamp(&store, ConsistencyLevel::One).await;
    (first, there().await)
}

#[tokio::test(start_paused = true)]
async fn a_logged_batch_is_always_finished_and_an_unlogged_one_may_stay_half() {
    let mut half_applied = 0;
    for seed in 0..20 {
        let (first, last) = batch_of_dead_coordinator(seed, true).await;
        assert!(first < 6 && last == 6, "seed {seed}: {first}, then {last}");
        let (first, last) = batch_of_dead_coordinator(seed, false).await;
        assert_eq!(first, last, "seed {seed}: no node finishes an unlogged batch");
        half_applied += usize::from((1..6).contains(&last));
    }
    assert!(half_applied > 5, "{half_applied}");
}

/// [invariant 13] A node is down during a delete, the others purge the tombstone after gc_grace, and then the node
/// comes back: its old row reappears.
async fn deleted_row_after_purge(repaired_in_time: bool) -> Timestamp {
    let (store, clock) = cluster(ClusterSetup::default(), 1);
    put(&store, Timestamp(5), ConsistencyLevel::All).await.unwrap();
    store.kill(0);
    remove(&store, Timestamp(5), ConsistencyLevel::Quorum).await.unwrap();
    store.lose_hints();
    if repaired_in_time {
        clock.advance(DAY * 5);
        store.revive(0);
        store.repair();
    }
    clock.advance(DAY * 11);
    (0..3).for_each(|node| store.purge(node, DAY * 10));
    store.revive(0);
    read_stamp(&store, ConsistencyLevel::All).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deleted_row_reappears_without_a_repair_within_gc_grace() {
    assert_eq!(deleted_row_after_purge(true).await, Timestamp::ZERO);
    assert_eq!(deleted_row_after_purge(false).await, Timestamp(5), "without the repair the deleted row reappears");
}

/// [invariant 18] [invariant 19] A batch or a mutation above the limits of the nodes fails on each of them.
#[tokio::test(start_paused = true)]
async fn a_write_above_the_limits_of_the_cluster_writes_nothing() {
    let store = three_nodes(1);
    let limits = store.limits();
    let large = |bytes: usize| Change::Put(Row { value: vec![7; bytes].into(), ..row("a", "", Timestamp(1)) });
    let one = |changes| PartitionChanges::new(partition(), changes);
    let logged = |bytes: usize| {
        let mut batch = Batch { partitions: vec![one(vec![large(bytes)])] };
        batch.add(Partition::new(Table::Keys, "k"), vec![Change::Remove { name: "x".into(), stamp: Timestamp(1) }]);
        batch
    };
    store
        .apply(logged(limits.inline_max), &options(ConsistencyLevel::All))
        .await
        .expect("a value that a gateway stores inside a row");
    let refused = store.apply(logged(64 * 1024), &options(ConsistencyLevel::All)).await;
    assert_eq!(kind(refused), Some(Kind::TooLarge));
    let setup = ClusterSetup { mutation_max: 1 << 20, ..ClusterSetup::default() };
    let small = cluster(setup, 1).0;
    let refused = small.apply(Batch::single(partition(), vec![large(2 << 20)]), &options(ConsistencyLevel::All)).await;
    assert_eq!(
        (kind(refused), read_stamp(&small, ConsistencyLevel::All).await.unwrap()),
        (Some(Kind::TooLarge), Timestamp::ZERO)
    );
}

fn guarded() -> Partition {
    Partition::new(Table::Heads, "h")
}

async fn head(store: &Replicas) -> Result<Option<Row>> {
    Ok(store.read(&guarded(), &ReadQuery::one("".into()), &options(ConsistencyLevel::Quorum)).await?.rows.pop())
}

/// [invariant 20] Two writers that read the same head each write a row beside it. Answers how many of them are applied.
fn both_cas(rewrites_head: bool) -> usize {
    let store = three_nodes(1);
    let now = store.clock.now();
    let cas = |expected, stamp| {
        let args = paxos::CasArgs { partition: &guarded(), expected, head: row("", "v", stamp), changes: Vec::new() };
        store.current_state().compare_and_set(0, args, now).unwrap()
    };
    assert_eq!(cas(None, Timestamp(1)), CasResult::Applied);
    let new = |stamp| if rewrites_head { stamp } else { 1 };
    [cas(Some(Timestamp(1)), Timestamp(new(2))), cas(Some(Timestamp(1)), Timestamp(new(3)))]
        .iter()
        .filter(|cas| **cas == CasResult::Applied)
        .count()
}

#[tokio::test(start_paused = true)]
async fn two_writers_pass_a_guard_that_does_not_rewrite_the_head() {
    assert_eq!(both_cas(true), 1);
    assert_eq!(both_cas(false), 2, "a head that keeps its stamp guards nothing");
    let store = three_nodes(1);
    let old = HeadWrite::from(row("", "v", Timestamp(5)));
    store.apply_if(&guarded(), None, old.clone(), Vec::new(), &options(ConsistencyLevel::Quorum)).await.unwrap();
    let again =
        store.apply_if(&guarded(), Some(Timestamp(5)), old, Vec::new(), &options(ConsistencyLevel::Quorum)).await;
    assert_eq!(kind(again), Some(Kind::Misuse), "the contract requires a newer head");
}

/// A value with the history of its head, one byte for each id, then the texts of all writes.
fn encode_head(history: &CasHistory, texts: &[String]) -> String {
    let ids: Vec<String> = history.encode().chunks(8).map(|id| format!("{:02x}", id[7])).collect();
    format!("{};{}", ids.concat(), texts.join(" "))
}

fn decode_head(row: Option<&Row>) -> (CasHistory, Vec<String>) {
    let text = row.map_or(";".to_owned(), |row| String::from_utf8(row.value.to_vec()).unwrap());
    let (ids, texts) = text.split_once(';').unwrap();
    let ids = ids.as_bytes().chunks(2).map(|id| u64::from_str_radix(std::str::from_utf8(id).unwrap(), 16).unwrap());
    let encoded: Vec<u8> = ids.flat_map(u64::to_be_bytes).collect();
    (CasHistory::decode(encoded.into()), texts.split(' ').filter(|text| !text.is_empty()).map(str::to_owned).collect())
}

/// [invariant 21] Appends a text to the head, as a writer that may get `TimedOut`. Answers whether the writer learned
/// that its text is there. Without `looks` the writer repeats a write without reading its outcome.
async fn append(store: &Replicas, id: u64, looks: bool) -> Option<bool> {
    let text = id.to_string();
    let mut seen = head(store).await.ok()?;
    loop {
        let (history, mut texts) = decode_head(seen.as_ref());
        let expected = seen.as_ref().map(|row| row.stamp);
        texts.push(text.clone());
        let new = row("", &encode_head(&history.followed_by(id), &texts), expected.unwrap_or(Timestamp::ZERO) + 1);
        match store.apply_if(&guarded(), expected, new.into(), Vec::new(), &options(ConsistencyLevel::Quorum)).await {
            Ok(CasResult::Applied) => return Some(true),
            Ok(CasResult::Conflict(now)) => seen = now,
            Err(_) if !looks => seen = head(store).await.ok()?,
            Err(_) => {
                let now = head(store).await.ok()?;
                match decode_head(now.as_ref()).0.own_outcome(
                    id,
                    &history,
                    now.as_ref().map(|row| row.stamp) == expected,
                ) {
                    CasOutcome::Applied => return Some(true),
                    CasOutcome::NotApplied | CasOutcome::Lost => seen = now,
                    CasOutcome::Unknown => return None,
                }
            }
        }
    }
}

/// Concurrent writers whose compare-and-sets may get no answer; an error describes a lost or doubled text.
async fn unanswered_cas(seed: u64, looks: bool) -> std::result::Result<(), String> {
    let store = three_nodes(seed);
    store.set_network_faults(NetworkFaults { delay_ms_max: 20, cas_torn_per_mille: 300, ..NetworkFaults::none() });
    let writer = |first: u64| {
        let store = store.clone();
        async move {
            let mut applied = Vec::new();
            for id in first..first + 10 {
                if append(&store, id, looks).await == Some(true) {
                    applied.push(id.to_string());
                }
            }
            applied
        }
    };
    let (one, two, three) = tokio::join!(writer(10), writer(20), writer(30));
    store.set_network_faults(NetworkFaults::none());
    let (_, texts) = decode_head(head(&store).await.unwrap().as_ref());
    for applied in one.iter().chain(&two).chain(&three) {
        match texts.iter().filter(|text| *text == applied).count() {
            1 => {}
            times => return Err(format!("{applied} is there {times} times: {texts:?}")),
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_repeated_after_a_timeout_is_applied_twice_without_a_history() {
    let mut broken = 0;
    for seed in 0..40 {
        assert_eq!(unanswered_cas(seed, true).await, Ok(()), "seed {seed}");
        broken += usize::from(unanswered_cas(seed, false).await.is_err());
    }
    assert!(broken > 20, "{broken}: a writer that does not read the outcome makes no error");
}

/// [invariant 22] Two datacentres that do not reach each other. Answers how many of two compare-and-sets against the
/// same head are applied.
async fn cas_on_both_sides(serial: SerialScope) -> usize {
    let (east, _) = cluster(ClusterSetup { nodes: 6, datacentres: 2, serial, ..ClusterSetup::default() }, 1);
    let west = east.from_side(1);
    let cas = async |store: &Replicas, expected: Option<Timestamp>, stamp| {
        let head = row("", "v", stamp).into();
        let cas = store.apply_if(&guarded(), expected, head, Vec::new(), &options(ConsistencyLevel::Quorum)).await;
        usize::from(matches!(cas, Ok(CasResult::Applied)))
    };
    assert_eq!(cas(&east, None, Timestamp(1)).await, 1);
    east.repair();
    east.cut(&[0, 0, 0, 1, 1, 1]);
    let both = cas(&east, Some(Timestamp(1)), Timestamp(2)).await + cas(&west, Some(Timestamp(1)), Timestamp(3)).await;
    east.heal();
    both
}

#[tokio::test(start_paused = true)]
async fn a_majority_in_each_datacentre_forks_a_head() {
    assert!(cas_on_both_sides(SerialScope::Global).await <= 1);
    assert_eq!(cas_on_both_sides(SerialScope::Local).await, 2, "a majority in each datacentre forks the head");
}

/// [invariant 25] The power of all nodes fails after an answered write. Answers whether the write survives.
async fn after_power_cut(syncs: bool, seconds: u64) -> bool {
    let (store, _) = cluster(ClusterSetup { syncs, ..ClusterSetup::default() }, 1);
    assert_eq!(store.limits().syncs, syncs, "the limits report it");
    put(&store, Timestamp(5), ConsistencyLevel::All).await.unwrap();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    store.lose_power();
    read_stamp(&store, ConsistencyLevel::All).await.unwrap() == Timestamp(5)
}

#[tokio::test(start_paused = true)]
async fn an_answered_write_is_lost_in_a_power_cut_unless_the_engine_syncs() {
    assert!(after_power_cut(true, 0).await);
    assert!(!after_power_cut(false, 1).await, "answered, and on no disk yet");
    assert!(after_power_cut(false, 11).await, "ten seconds later it is on disk");
}

/// A cluster whose reads fail over a few tombstones, with a partition in which most rows were removed.
async fn mostly_removed(removed: u32, bisects_ranges: bool) -> Replicas {
    let (store, _) = cluster(ClusterSetup { tombstones_max: 100, bisects_ranges, ..ClusterSetup::default() }, 1);
    let names = (0..removed + 20).map(|at| format!("logs/2024/{at:06}"));
    let (mut rows, mut gone) = (Vec::new(), Vec::new());
    for (at, name) in names.enumerate() {
        rows.push(Change::Put(row(&name, "v", Timestamp(1))));
        if at as u32 >= 10 && (at as u32) < removed + 10 {
            gone.push(Change::Remove { name: name.into(), stamp: Timestamp(1) });
        }
    }
    for changes in [rows, gone] {
        store.apply(Batch::single(partition(), changes), &options(ConsistencyLevel::All)).await.unwrap();
    }
    store
}

/// [invariant 27] A page over too many tombstones fails on every replica, however small its limit is.
#[tokio::test(start_paused = true)]
async fn a_listing_over_many_tombstones_fails_without_bisection() {
    let query = ReadQuery::prefix("logs/".into(), 15);
    let whole = mostly_removed(2000, false).await.read(&partition(), &query, &options(ConsistencyLevel::Quorum)).await;
    assert_eq!(kind(whole), Some(Kind::Io), "without bisection the listing fails");
    let store = mostly_removed(2000, true).await;
    let page = store.read(&partition(), &query, &options(ConsistencyLevel::Quorum)).await.unwrap();
    let names: Vec<_> = page.rows.iter().map(|row| String::from_utf8_lossy(&row.name).into_owned()).collect();
    let live = (0..10).chain(2010..2015).map(|at| format!("logs/2024/{at:06}"));
    assert_eq!(names, live.collect::<Vec<_>>());
    let back = ReadQuery { order: larder_store::ReadOrder::Reverse, ..query };
    let page = store.read(&partition(), &back, &options(ConsistencyLevel::Quorum)).await.unwrap();
    assert_eq!((page.rows.len(), &page.rows[0].name[..]), (15, &b"logs/2024/002019"[..]));
}

#[tokio::test(start_paused = true)]
async fn reads_count_rows_and_tombstones_they_scan() {
    let store = mostly_removed(50, true).await;
    store.take_scan_counts();
    store.read(&partition(), &ReadQuery::all(1000), &options(ConsistencyLevel::Quorum)).await.unwrap();
    assert_eq!(store.take_scan_counts(), ScanCounts { rows: 2 * 20, tombstones: 2 * 50 });
    assert_eq!(store.take_scan_counts(), ScanCounts::default());
}

#[tokio::test(start_paused = true)]
async fn one_seed_makes_one_history() {
    async fn history(seed: u64) -> Vec<(Duration, std::result::Result<Timestamp, Kind>)> {
        let (start, store) = (Instant::now(), three_nodes(seed));
        store.set_network_faults(NetworkFaults {
            delay_ms_max: 50,
            lose_per_mille: 200,
            stop_per_mille: 100,
            hints_lost_per_mille: 300,
            hint_ms_max: 500,
            cas_torn_per_mille: 100,
        });
        let (mut events, mut random) = (Vec::new(), SplitMix64::new(1));
        for stamp in 1..60 {
            let level = [ConsistencyLevel::One, ConsistencyLevel::Quorum, ConsistencyLevel::All][random.below(3)];
            let _ = put(&store, Timestamp(stamp), level).await;
            events.push((start.elapsed(), read_stamp(&store, level).await.map_err(|error| error.kind)));
        }
        events
    }
    assert_eq!(history(11).await, history(11).await);
    assert_ne!(history(11).await, history(12).await);
}
