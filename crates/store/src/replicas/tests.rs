use tokio::time::Instant;

use super::*;
use crate::conformance::{ManualClock, conformance};
use crate::shadows::Shadowed;
use crate::wrappers::random::SplitMix64;
use crate::writers::{Verdict, Writers};
use crate::{
    Batch, Change, Durability, Head, Kind, Level, Options, PartitionChanges, Result, Row, Stamp, Store, Swap, Table,
};

const DAY: Duration = Duration::from_secs(86_400);

fn cluster(setup: Setup, seed: u64) -> (Replicas, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Replicas::new(clock.clone(), setup, seed), clock)
}

fn three(seed: u64) -> Replicas {
    cluster(Setup::default(), seed).0
}

fn options(level: Level) -> Options {
    Options::new(level, Instant::now() + Duration::from_secs(30), Durability::Disk)
}

fn partition() -> Partition {
    Partition::own(Table::Objects, "p")
}

fn row(name: &str, value: &str, stamp: Stamp) -> Row {
    let copy = |text: &str| bytes::Bytes::copy_from_slice(text.as_bytes());
    Row { name: copy(name), value: copy(value), stamp, expires: None }
}

async fn put(store: &Replicas, stamp: Stamp, level: Level) -> Result<()> {
    store.apply(Batch::of(partition(), vec![Change::Put(row("a", "v", stamp))]), &options(level)).await
}

async fn remove(store: &Replicas, stamp: Stamp, level: Level) -> Result<()> {
    let gone = Change::Remove { name: "a".into(), stamp };
    store.apply(Batch::of(partition(), vec![gone]), &options(level)).await
}

/// The stamp of the row; 0 for none.
async fn seen(store: &Replicas, level: Level) -> Result<Stamp> {
    let page = store.read(&partition(), &ReadQuery::all(9), &options(level)).await?;
    Ok(page.rows.first().map_or(0, |row| row.stamp))
}

fn kind<T>(answer: Result<T>) -> Option<Kind> {
    answer.err().map(|error| error.kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_all_nodes_up_it_conforms() {
    let (store, clock) = cluster(Setup::default(), 1);
    conformance(Arc::new(Shadowed::new(Arc::new(store))), clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_two_datacentres_it_conforms() {
    let (store, clock) = cluster(Setup { nodes: 6, datacentres: 2, ..Setup::default() }, 1);
    conformance(Arc::new(Shadowed::new(Arc::new(store))), clock).await;
}

#[tokio::test(start_paused = true)]
async fn levels_are_met_by_as_many_nodes_as_they_ask_for() {
    for down in 0..3 {
        let store = three(down);
        (0..down as usize).for_each(|node| store.kill(node));
        let alive = 3 - down as u32;
        let levels = [Level::Any, Level::One, Level::Two, Level::Three, Level::Quorum, Level::All];
        for (level, required) in levels.into_iter().zip([1, 1, 2, 3, 2, 3]) {
            let unavailable = (required > alive).then_some(Kind::Unavailable { alive, required });
            assert_eq!(kind(put(&store, 5, level).await), unavailable, "{level:?} with {down} down");
            assert_eq!(kind(seen(&store, level).await), unavailable, "{level:?} with {down} down");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_is_nowhere() {
    let store = three(1);
    store.kill(0);
    store.kill(1);
    assert!(put(&store, 5, Level::Quorum).await.is_err());
    store.revive(0);
    store.revive(1);
    store.deliver_hints();
    assert_eq!(seen(&store, Level::All).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_quorums_meet_whatever_the_weather() {
    for seed in 0..50 {
        let store = three(seed);
        store.set_weather(Weather {
            delay_ms_max: 50,
            lose_per_mille: 150,
            hints_lost_per_mille: 1000,
            ..Weather::calm()
        });
        let (mut written, mut tried) = (0, 0);
        for stamp in 1..40 {
            store.kill(stamp as usize % 3);
            tried = stamp;
            if put(&store, stamp, Level::Quorum).await.is_ok() {
                written = stamp;
            }
            if let Ok(seen) = seen(&store, Level::Quorum).await {
                assert!((written..=tried).contains(&seen), "seed {seed}: {seen} is seen, {written} was answered");
            }
            store.revive(stamp as usize % 3);
        }
        assert!(written > 10, "seed {seed}: {written} of {tried}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_node_missed_comes_by_hint_by_read_or_by_repair() {
    for way in ["hint", "read", "repair", "none"] {
        let store = three(1);
        store.kill(0);
        put(&store, 5, Level::Quorum).await.unwrap();
        if way != "hint" {
            store.lose_hints();
        }
        store.revive(0);
        match way {
            "hint" => store.deliver_hints(),
            "read" => assert_eq!(seen(&store, Level::All).await.unwrap(), 5),
            "repair" => store.repair(),
            _ => {}
        }
        assert_eq!(store.kept(0, &partition()).rows, usize::from(way != "none"), "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_comes_after_a_while_by_itself() {
    let store = three(1);
    store.set_weather(Weather { hint_ms_max: 10_000, ..Weather::calm() });
    store.kill(0);
    put(&store, 5, Level::Any).await.unwrap();
    store.revive(0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(store.kept(0, &partition()).rows, 1);
}

#[tokio::test(start_paused = true)]
async fn each_side_of_a_cut_has_its_own_nodes() {
    let store = three(1);
    let other = store.seen_from(1);
    store.cut(&[0, 0, 1]);
    put(&store, 5, Level::Quorum).await.unwrap();
    assert_eq!(kind(put(&other, 6, Level::Quorum).await), Some(Kind::Unavailable { alive: 1, required: 2 }));
    put(&other, 4, Level::One).await.unwrap();
    assert_eq!((seen(&store, Level::One).await.unwrap(), seen(&other, Level::One).await.unwrap()), (5, 4));
    store.heal();
    store.deliver_hints();
    assert_eq!(seen(&other, Level::One).await.unwrap(), 5);
}

/// Writes a batch of two partitions whose coordinator stops, and says how much of it is there: at once, and in the end.
async fn stopped(seed: u64, removes: bool) -> (usize, usize) {
    let store = three(seed);
    let elsewhere = Partition::own(Table::Keys, "elsewhere");
    store
        .apply(Batch::of(elsewhere.clone(), vec![Change::Put(row("old", "v", 1))]), &options(Level::All))
        .await
        .unwrap();
    let change =
        if removes { Change::Remove { name: "old".into(), stamp: 2 } } else { Change::Put(row("old", "w", 2)) };
    let mut batch = Batch::of(partition(), vec![Change::Put(row("a", "v", 2))]);
    batch.add(elsewhere.clone(), vec![change]);
    store.set_weather(Weather { stop_per_mille: 1000, ..Weather::calm() });
    let _ = store.apply(batch, &options(Level::Quorum)).await;
    store.set_weather(Weather::calm());
    let there = async || {
        let mut done = 0;
        for node in 0..3 {
            done += usize::from(store.kept(node, &partition()).rows == 1);
            let page = store.state.lock().nodes[node].cells(&elsewhere).rows(store.clock.now());
            done += usize::from(page.get(&b"old"[..]).is_none_or(|row| row.stamp == 2));
        }
        done
    };
    let first = there().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let _ = seen(&store, Level::One).await;
    (first, there().await)
}

#[tokio::test(start_paused = true)]
async fn a_logged_batch_is_done_in_the_end_and_another_may_stay_half() {
    let mut halves = 0;
    for seed in 0..20 {
        let (first, last) = stopped(seed, true).await;
        assert!(first < 6 && last == 6, "seed {seed}: {first}, then {last}");
        let (first, last) = stopped(seed, false).await;
        assert_eq!(first, last, "seed {seed}: nobody does the rest");
        halves += usize::from((1..6).contains(&last));
    }
    assert!(halves > 5, "{halves}");
}

/// Row 13. A node sleeps through a delete; the others forget it after gc_grace; then the node comes back.
async fn zombie(repaired_in_time: bool) -> Stamp {
    let (store, clock) = cluster(Setup::default(), 1);
    put(&store, 5, Level::All).await.unwrap();
    store.kill(0);
    remove(&store, 5, Level::Quorum).await.unwrap();
    store.lose_hints();
    if repaired_in_time {
        clock.advance(DAY * 5);
        store.revive(0);
        store.repair();
    }
    clock.advance(DAY * 11);
    (0..3).for_each(|node| store.purge(node, DAY * 10));
    store.revive(0);
    seen(&store, Level::All).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn row_13_what_was_deleted_stays_so_if_repaired_within_gc_grace() {
    assert_eq!(zombie(true).await, 0);
    assert_eq!(zombie(false).await, 5, "this cluster has zombies to stage");
}

#[tokio::test(start_paused = true)]
async fn rows_18_and_19_a_write_that_is_too_large_is_refused_whole() {
    let store = three(1);
    let limits = store.limits();
    let large = |bytes: usize| Change::Put(Row { value: vec![7; bytes].into(), ..row("a", "", 1) });
    let one = |changes| PartitionChanges { partition: partition(), changes, rows_max: None, seen: None };
    let logged = |bytes: usize| {
        let mut batch = Batch { partitions: vec![one(vec![large(bytes)])] };
        batch.add(Partition::own(Table::Keys, "k"), vec![Change::Remove { name: "x".into(), stamp: 1 }]);
        batch
    };
    store.apply(logged(limits.inline_max), &options(Level::All)).await.expect("what a gateway keeps inside a row");
    let refused = store.apply(logged(64 * 1024), &options(Level::All)).await;
    assert_eq!(kind(refused), Some(Kind::TooLarge));
    let setup = Setup { mutation_max: 1 << 20, ..Setup::default() };
    let small = cluster(setup, 1).0;
    let refused = small.apply(Batch::of(partition(), vec![large(2 << 20)]), &options(Level::All)).await;
    assert_eq!((kind(refused), seen(&small, Level::All).await.unwrap()), (Some(Kind::TooLarge), 0));
}

fn guarded() -> Partition {
    Partition::own(Table::Heads, "h")
}

async fn head(store: &Replicas) -> Result<Option<Row>> {
    Ok(store.read(&guarded(), &ReadQuery::one("".into()), &options(Level::Quorum)).await?.rows.pop())
}

/// Row 20. Two writers that saw the same head each write a row beside it; how many are told that they may.
fn both_swap(rewrites_head: bool) -> usize {
    let store = three(1);
    let now = store.clock.now();
    let swap = |expected, stamp| {
        let ask = paxos::Ask { partition: &guarded(), expected, head: row("", "v", stamp), changes: Vec::new() };
        store.now_state().swap(0, ask, now).unwrap()
    };
    assert_eq!(swap(None, 1), Swap::Applied);
    let new = |stamp| if rewrites_head { stamp } else { 1 };
    [swap(Some(1), new(2)), swap(Some(1), new(3))].iter().filter(|swap| **swap == Swap::Applied).count()
}

#[tokio::test(start_paused = true)]
async fn row_20_a_guard_holds_because_every_swap_rewrites_the_head() {
    assert_eq!(both_swap(true), 1);
    assert_eq!(both_swap(false), 2, "with its old stamp a head guards nothing");
    let store = three(1);
    let old = Head::from(row("", "v", 5));
    store.apply_if(&guarded(), None, old.clone(), Vec::new(), &options(Level::Quorum)).await.unwrap();
    let again = store.apply_if(&guarded(), Some(5), old, Vec::new(), &options(Level::Quorum)).await;
    assert_eq!(kind(again), Some(Kind::Misuse), "so the contract asks for a newer one");
}

/// A value that carries the writers of its head: eight bytes each, then the texts of all that were ever written.
fn value(writers: &Writers, texts: &[String]) -> String {
    let ids: Vec<String> = writers.encode().chunks(8).map(|id| format!("{:02x}", id[7])).collect();
    format!("{};{}", ids.concat(), texts.join(" "))
}

fn of_value(row: Option<&Row>) -> (Writers, Vec<String>) {
    let text = row.map_or(";".to_owned(), |row| String::from_utf8(row.value.to_vec()).unwrap());
    let (ids, texts) = text.split_once(';').unwrap();
    let ids = ids.as_bytes().chunks(2).map(|id| u64::from_str_radix(std::str::from_utf8(id).unwrap(), 16).unwrap());
    let encoded: Vec<u8> = ids.flat_map(u64::to_be_bytes).collect();
    (Writers::decode(encoded.into()), texts.split(' ').filter(|text| !text.is_empty()).map(str::to_owned).collect())
}

/// Row 21. Appends a text to the head, as a writer does who hears `TimedOut` now and then; whether it was told that it is there.
async fn append(store: &Replicas, id: u64, looks: bool) -> Option<bool> {
    let text = id.to_string();
    let mut seen = head(store).await.ok()?;
    loop {
        let (writers, mut texts) = of_value(seen.as_ref());
        let expected = seen.as_ref().map(|row| row.stamp);
        texts.push(text.clone());
        let new = row("", &value(&writers.followed_by(id), &texts), expected.unwrap_or(0) + 1);
        match store.apply_if(&guarded(), expected, new.into(), Vec::new(), &options(Level::Quorum)).await {
            Ok(Swap::Applied) => return Some(true),
            Ok(Swap::Conflict(now)) => seen = now,
            Err(_) if !looks => seen = head(store).await.ok()?,
            Err(_) => {
                let now = head(store).await.ok()?;
                match of_value(now.as_ref()).0.verdict(id, &writers, now.as_ref().map(|row| row.stamp) == expected) {
                    Verdict::Done => return Some(true),
                    Verdict::Open | Verdict::Lost => seen = now,
                    Verdict::Forgotten => return None,
                }
            }
        }
    }
}

/// Writers side by side whose swaps are torn; what went wrong, if anything.
async fn torn_swaps(seed: u64, looks: bool) -> std::result::Result<(), String> {
    let store = three(seed);
    store.set_weather(Weather { delay_ms_max: 20, swaps_torn_per_mille: 300, ..Weather::calm() });
    let writer = |first: u64| {
        let store = store.clone();
        async move {
            let mut told = Vec::new();
            for id in first..first + 10 {
                if append(&store, id, looks).await == Some(true) {
                    told.push(id.to_string());
                }
            }
            told
        }
    };
    let (one, two, three) = tokio::join!(writer(10), writer(20), writer(30));
    store.set_weather(Weather::calm());
    let (_, texts) = of_value(head(&store).await.unwrap().as_ref());
    for told in one.iter().chain(&two).chain(&three) {
        match texts.iter().filter(|text| *text == told).count() {
            1 => {}
            times => return Err(format!("{told} is there {times} times: {texts:?}")),
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn row_21_a_swap_that_timed_out_is_done_once() {
    let mut broken = 0;
    for seed in 0..40 {
        assert_eq!(torn_swaps(seed, true).await, Ok(()), "seed {seed}");
        broken += usize::from(torn_swaps(seed, false).await.is_err());
    }
    assert!(broken > 20, "{broken}: a writer that does not look seems to do as well");
}

/// Row 22. Two datacentres that do not reach each other; how many of two swaps against the same head are applied.
async fn two_truths(serial: Serial) -> usize {
    let (east, _) = cluster(Setup { nodes: 6, datacentres: 2, serial, ..Setup::default() }, 1);
    let west = east.seen_from(1);
    let swap = async |store: &Replicas, expected: Option<Stamp>, stamp| {
        let head = row("", "v", stamp).into();
        let swap = store.apply_if(&guarded(), expected, head, Vec::new(), &options(Level::Quorum)).await;
        usize::from(matches!(swap, Ok(Swap::Applied)))
    };
    assert_eq!(swap(&east, None, 1).await, 1);
    east.repair();
    east.cut(&[0, 0, 0, 1, 1, 1]);
    let both = swap(&east, Some(1), 2).await + swap(&west, Some(1), 3).await;
    east.heal();
    both
}

#[tokio::test(start_paused = true)]
async fn row_22_a_head_has_one_group_that_decides() {
    assert!(two_truths(Serial::Global).await <= 1);
    assert_eq!(two_truths(Serial::Local).await, 2, "a group for each datacentre forks it");
}

/// Row 25. The power of all nodes fails behind an answered write; whether it is there afterwards.
async fn after_power_cut(syncs: bool, seconds: u64) -> bool {
    let (store, _) = cluster(Setup { syncs, ..Setup::default() }, 1);
    assert_eq!(store.limits().syncs, syncs, "it is said");
    put(&store, 5, Level::All).await.unwrap();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    store.lose_power();
    seen(&store, Level::All).await.unwrap() == 5
}

#[tokio::test(start_paused = true)]
async fn row_25_a_write_survives_a_power_cut_where_the_engine_says_that_it_syncs() {
    assert!(after_power_cut(true, 0).await);
    assert!(!after_power_cut(false, 1).await, "answered, and on no disk");
    assert!(after_power_cut(false, 11).await, "ten seconds later it is");
}

/// A cluster where reads fail beyond a few tombstones, and a partition in which most rows were removed.
async fn emptied(removed: u32, halves: bool) -> Replicas {
    let (store, _) = cluster(Setup { tombstones_max: 100, halves, ..Setup::default() }, 1);
    let names = (0..removed + 20).map(|at| format!("logs/2024/{at:06}"));
    let (mut rows, mut gone) = (Vec::new(), Vec::new());
    for (at, name) in names.enumerate() {
        rows.push(Change::Put(row(&name, "v", 1)));
        if at as u32 >= 10 && (at as u32) < removed + 10 {
            gone.push(Change::Remove { name: name.into(), stamp: 1 });
        }
    }
    for changes in [rows, gone] {
        store.apply(Batch::of(partition(), changes), &options(Level::All)).await.unwrap();
    }
    store
}

#[tokio::test(start_paused = true)]
async fn row_27_a_page_full_of_tombstones_is_read_in_halves() {
    let query = ReadQuery::prefix("logs/".into(), 15);
    let whole = emptied(2000, false).await.read(&partition(), &query, &options(Level::Quorum)).await;
    assert_eq!(kind(whole), Some(Kind::Io), "without the rule the listing fails");
    let store = emptied(2000, true).await;
    let page = store.read(&partition(), &query, &options(Level::Quorum)).await.unwrap();
    let names: Vec<_> = page.rows.iter().map(|row| String::from_utf8_lossy(&row.name).into_owned()).collect();
    let live = (0..10).chain(2010..2015).map(|at| format!("logs/2024/{at:06}"));
    assert_eq!(names, live.collect::<Vec<_>>());
    let back = ReadQuery { order: crate::Order::Reverse, ..query };
    let page = store.read(&partition(), &back, &options(Level::Quorum)).await.unwrap();
    assert_eq!((page.rows.len(), &page.rows[0].name[..]), (15, &b"logs/2024/002019"[..]));
}

#[tokio::test(start_paused = true)]
async fn reads_count_what_they_walk_over() {
    let store = emptied(50, true).await;
    store.take_met();
    store.read(&partition(), &ReadQuery::all(1000), &options(Level::Quorum)).await.unwrap();
    assert_eq!(store.take_met(), Met { rows: 2 * 20, tombstones: 2 * 50 });
    assert_eq!(store.take_met(), Met::default());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_history() {
    async fn history(seed: u64) -> Vec<(Duration, std::result::Result<Stamp, Kind>)> {
        let (start, store) = (Instant::now(), three(seed));
        store.set_weather(Weather {
            delay_ms_max: 50,
            lose_per_mille: 200,
            stop_per_mille: 100,
            hints_lost_per_mille: 300,
            hint_ms_max: 500,
            swaps_torn_per_mille: 100,
        });
        let (mut events, mut random) = (Vec::new(), SplitMix64::new(1));
        for stamp in 1..60 {
            let level = [Level::One, Level::Quorum, Level::All][random.below(3) as usize];
            let _ = put(&store, stamp, level).await;
            events.push((start.elapsed(), seen(&store, level).await.map_err(|error| error.kind)));
        }
        events
    }
    assert_eq!(history(11).await, history(11).await);
    assert_ne!(history(11).await, history(12).await);
}
