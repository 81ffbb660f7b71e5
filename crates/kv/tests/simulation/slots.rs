//! Reuse of slots on an engine where tombstones slow reads: one schedule per rule, which fails under the rule's mutation in
//! `tests/mutants`.

use bytes::Bytes;
use larder_kv::rules::causality::Slot;
use larder_kv::rules::object_row::{ObjectRow, view_row_name};
use larder_rows::keyspace::Partition;
use larder_rows::{ActorId, Batch, BucketEpochs, Change, EpochShard, Row};
use larder_store::{CallOptions, ConsistencyLevel, Durability, ReadQuery, Store, Table};
use larder_testkit::faulty::StoreFaults;
use tokio::time::Instant;

use crate::simulation::world::{ScheduleResult, SimWorld, address, run};

const SEEDS: u64 = 10;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

/// Runs a schedule of two gateways; it must hold with every seed.
#[track_caller]
fn holds<F: AsyncFn(SimWorld) -> ScheduleResult>(schedule: F) {
    (0..SEEDS).for_each(|seed| holds_with(seed, &schedule));
}

#[track_caller]
fn holds_with<F: AsyncFn(SimWorld) -> ScheduleResult>(seed: u64, schedule: &F) {
    let outcome = run(async { schedule(SimWorld::keeping_tombstones(seed, 2).await).await });
    assert_eq!(outcome, Ok(()), "seed {seed}");
}

async fn shows(world: &SimWorld, at: usize, wanted: &[&str]) -> ScheduleResult {
    let mut found = ok!(world.read(at, "sib", "k")).texts;
    found.sort_unstable();
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

async fn lists(world: &SimWorld, wanted: &[&'static str]) -> ScheduleResult {
    let (keys, _) = ok!(world.list(0, "sib"));
    if keys == wanted { Ok(()) } else { Err(format!("{keys:?} are listed instead of {wanted:?}")) }
}

/// Puts with the context of a read just before.
async fn overwrite(world: &SimWorld, at: usize, text: &str) -> ScheduleResult {
    let seen = ok!(world.read(at, "sib", "k")).context;
    ok!(world.put(at, "sib", "k", text, seen.as_ref()));
    Ok(())
}

fn options() -> CallOptions {
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    CallOptions::new(ConsistencyLevel::All, deadline, Durability::Buffered)
}

fn object() -> Partition {
    Partition::object(&address("sib", "k"), false, Partition::DEFAULT_COPIES)
}

fn entries() -> Partition {
    let address = address("sib", "k");
    let EpochShard { epoch, shard, .. } = BucketEpochs::ONE.newest_shard(&address.key);
    Partition::keys(&address.bucket, epoch, shard, Partition::DEFAULT_COPIES)
}

async fn rows(world: &SimWorld, partition: &Partition) -> Vec<Row> {
    world.store.read(partition, &ReadQuery::all(1000), &options()).await.unwrap().rows
}

/// Writes a row directly to the store, as read repair, a hint or the late half of a write does.
async fn arrives(world: &SimWorld, partition: Partition, row: Row) {
    world.store.apply(Batch::single(partition, vec![Change::Put(row)]), &options()).await.unwrap();
}

/// Number of row names ever written to the key's partition.
fn names(world: &SimWorld) -> usize {
    world.traffic.as_ref().expect("a world that records its traffic").lock().names_max(Table::Objects)
}

fn logged(world: &SimWorld) -> usize {
    world.traffic.as_ref().expect("a world that records its traffic").lock().logged
}

/// Each overwrite makes the other gateway's slot dead; if no row says so, every overwrite takes a new row [invariant
/// 1].
#[test]
fn overwrites_by_two_gateways_in_turn_use_two_rows() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..20 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        shows(&world, 0, &["v19"]).await?;
        let names = names(&world);
        if names <= 2 { Ok(()) } else { Err(format!("{names} names for one key")) }
    });
}

/// The number of rows must not grow with the number of overwrites [invariant 1].
#[test]
fn ten_thousand_overwrites_use_two_rows() {
    holds_with(1, &async |world: SimWorld| {
        world.add_type("sib", "{}").await;
        for at in 0..10_000 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        assert_eq!((names(&world), rows(&world, &entries()).await.len()), (2, 2));
        assert_eq!(rows(&world, &object()).await.len(), 1);
        Ok(())
    });
}

/// A gateway that forgot its slot must not reuse it: its row may hold a value that the new put did not see [invariant
/// 2].
#[test]
fn a_gateway_that_forgot_its_slots_overwrites_no_row() {
    holds(async |mut world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        world.advance(1).await;
        world.forget_slots(0).await;
        ok!(world.put(0, "sib", "k", "b", None));
        shows(&world, 1, &["a", "b"]).await
    });
}

/// Two puts replace the same row; if both take its slot, one of them is lost [invariant 3].
#[test]
fn two_puts_with_one_context_never_share_a_slot() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.set_faults(StoreFaults { pause_ms_max: 20, pause_per_mille: 1000, ..StoreFaults::none() });
        let put = |text| world.put(0, "sib", "k", text, seen.as_ref());
        let (a, b) = tokio::join!(put("a"), put("b"));
        a.and(b).map_err(|error| error.to_string())?;
        world.set_faults(StoreFaults::none());
        shows(&world, 1, &["a", "b"]).await
    });
}

/// The unanswered write may be in the store, so its slot is not dead for a client that did not see it [invariant 3].
#[test]
fn a_slot_whose_last_write_was_not_answered_is_not_reused() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.nodes[0].faulty.set_faults(StoreFaults { lose_per_mille: 1000, ..StoreFaults::none() });
        assert!(world.put(0, "sib", "k", "a", seen.as_ref()).await.is_err(), "the answer should be lost");
        world.set_faults(StoreFaults::none());
        ok!(world.put(0, "sib", "k", "b", seen.as_ref()));
        shows(&world, 1, &["a", "b"]).await
    });
}

/// A slot with a tombstone is dead; unless it is reused, every put after a delete takes a new row [invariant 4].
#[test]
fn puts_and_deletes_in_turn_without_contexts_use_one_row() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..20 {
            ok!(world.put(0, "sib", "k", &format!("v{at}"), None));
            assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
            world.advance(at * 400).await;
        }
        lists(&world, &[]).await?;
        let names = names(&world);
        if names <= 1 { Ok(()) } else { Err(format!("{names} names for one key")) }
    });
}

/// The failed tombstone may not be in the store, so the value in its slot may be alive [invariant 4].
#[test]
fn a_tombstone_of_unknown_outcome_is_not_overwritten() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        world.advance(2_000).await;
        world.nodes[0].faulty.set_faults(StoreFaults { fail_per_mille: 1000, ..StoreFaults::none() });
        let seen = ok!(world.read(1, "sib", "k")).context;
        assert!(world.delete(0, "sib", "k", seen.as_ref()).await.is_err(), "the delete should fail");
        world.set_faults(StoreFaults::none());
        ok!(world.put(0, "sib", "k", "b", None));
        shows(&world, 1, &["a", "b"]).await
    });
}

/// Reused slots must not bring back the loss of a put through a slow clock [invariant 5].
#[test]
fn a_later_put_through_a_slow_clock_reuses_its_slot_and_is_not_lost() {
    holds(async |world| {
        world.nodes[0].clock.set_skew(400_000);
        world.nodes[1].clock.set_skew(-90_000);
        for (at, text) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            ok!(world.put(at % 2, "default", "k", text, None));
            world.advance(10).await;
            let shown = ok!(world.read(0, "default", "k")).texts;
            if shown != [text] {
                return Err(format!("{shown:?} after {text}"));
            }
        }
        assert_eq!(names(&world), 2);
        Ok(())
    });
}

/// The new row has to observe the old row's clock, or its version vector does not cover that row when a hint brings it
/// back [invariant 5].
#[test]
fn a_row_written_through_a_slow_clock_hides_the_row_that_it_replaced() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        world.nodes[0].clock.set_skew(400_000);
        world.nodes[1].clock.set_skew(-90_000);
        ok!(world.put(0, "sib", "k", "old", None));
        let old = rows(&world, &object()).await.remove(0);
        overwrite(&world, 1, "new").await?;
        arrives(&world, object(), old).await;
        shows(&world, 0, &["new"]).await
    });
}

/// Read repair brings back a row whose removal was compacted away; the version vector of the new row hides it
/// [invariant 13].
#[test]
fn a_replaced_row_that_returns_is_hidden_and_removed_by_the_next_write() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let old = rows(&world, &object()).await.remove(0);
        overwrite(&world, 1, "new").await?;
        arrives(&world, object(), old.clone()).await;
        shows(&world, 0, &["new"]).await?;
        overwrite(&world, 1, "newer").await?;
        assert_eq!(rows(&world, &object()).await.len(), 1, "the write removed it");
        // The slot of the old row may have been reused since.
        overwrite(&world, 0, "newest").await?;
        arrives(&world, object(), old).await;
        shows(&world, 1, &["newest"]).await
    });
}

/// Of two puts with one context, one reuses the slot that the other covers, with a later clock [invariant 13].
#[test]
fn a_version_vector_hides_no_write_that_its_writer_did_not_see() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        // Both replace `a`: one in its own slot, the other covering that slot.
        ok!(world.put(0, "sib", "k", "b", seen.as_ref()));
        ok!(world.put(1, "sib", "k", "c", seen.as_ref()));
        shows(&world, 0, &["b", "c"]).await
    });
}

/// An entry removal in another partition would make every overwrite a logged batch [invariant 28].
#[test]
fn overwrites_leave_listing_entries_and_are_no_logged_batches() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..6 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        lists(&world, &["k"]).await?;
        let logged = logged(&world);
        if logged == 0 { Ok(()) } else { Err(format!("{logged} overwrites were logged batches")) }
    });
}

/// Overwrites leave entries of dead slots, which a delete has to remove [invariant 28].
#[test]
fn a_deleted_key_is_not_listed_by_entries_that_overwrites_left() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        overwrite(&world, 0, "a").await?;
        overwrite(&world, 1, "b").await?;
        assert!(ok!(world.delete(1, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

/// An entry may reach a replica before its row; removing it would hide a live key from listings [invariant 28].
#[test]
fn a_delete_leaves_the_entry_of_a_row_that_arrives_later() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let stamp = world.nodes[1].gateway.context().now();
        let name = Slot { actor: ActorId(99), birth: stamp }.row_name();
        let value =
            ObjectRow { tombstone: false, context_hash: 0, vector: Default::default(), content: Default::default() }
                .encode();
        let entry = Row { name: view_row_name(b"k", &name), value: Bytes::new(), stamp, expires: None };
        arrives(&world, entries(), entry).await;
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        arrives(&world, object(), Row { name, value, stamp, expires: None }).await;
        lists(&world, &["k"]).await
    });
}

/// The entry of a failed write has no row; after a day no row can come [invariant 28].
#[test]
fn an_entry_whose_row_never_came_is_removed_by_a_delete_a_day_later() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        let stamp = world.nodes[1].gateway.context().now();
        let name = view_row_name(b"k", &Slot { actor: ActorId(99), birth: stamp }.row_name());
        arrives(&world, entries(), Row { name, value: Bytes::new(), stamp, expires: None }).await;
        ok!(world.put(0, "sib", "k", "a", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        lists(&world, &["k"]).await?;
        world.advance(DAY_MS + 1000).await;
        ok!(world.put(0, "sib", "k", "b", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

/// No later row names the slots that a full version vector drops, so the overwrite removes their entries itself
/// [invariant 28].
#[test]
fn entries_of_slots_that_a_full_vector_drops_are_removed_by_the_overwrite() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..30 {
            ok!(world.put(at % 2, "sib", "k", &format!("v{at}"), None));
        }
        overwrite(&world, 0, "one").await?;
        assert_eq!(rows(&world, &entries()).await.len(), 17, "its own entry and those of the slots in its vector");
        assert!(ok!(world.delete(1, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

/// The tombstone is newer than a put that it did not see; one entry per key would be removed with it [invariant 29].
#[test]
fn a_delete_does_not_unlist_a_concurrent_put_of_an_older_clock() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        world.nodes[0].clock.set_skew(200_000);
        ok!(world.put(0, "sib", "k", "a", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        ok!(world.put(1, "sib", "k", "b", None));
        assert!(ok!(world.delete(0, "sib", "k", seen.as_ref())));
        shows(&world, 0, &["b"]).await?;
        lists(&world, &["k"]).await
    });
}

/// Counting rows on every put would read before every write [invariant 9].
#[test]
fn rows_are_counted_only_when_a_gateway_has_a_hundred_slots_in_use() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        let mut stored = 0;
        for at in 0..130 {
            stored += usize::from(world.put(0, "sib", "k", &format!("v{at}"), None).await.is_ok());
        }
        let shown = ok!(world.read(0, "sib", "k")).texts.len();
        let counted = world.traffic.as_ref().expect("a world that records its traffic").lock().counted;
        if (stored, shown) != (100, 100) || counted > 60 {
            return Err(format!("{stored} stored, {shown} shown, {counted} counted"));
        }
        overwrite(&world, 0, "one").await?;
        ok!(world.put(0, "sib", "k", "two", None));
        shows(&world, 1, &["one", "two"]).await
    });
}
