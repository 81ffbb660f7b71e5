//! Slots that are taken again, on an engine that keeps tombstones: one schedule per rule. The number is the row of the list of
//! holes.

use bytes::Bytes;
use larder_gateway::{Rule, Rules};
use larder_model::causality::Slot;
use larder_model::keyspace::Partition;
use larder_model::rows::{Batch, BucketRow, Change, ObjectRow, Row, view_row_name};
use larder_store::wrappers::faulty::Faults;
use larder_store::{Durability, Level, Options, ReadQuery, Store, Table};
use tokio::time::Instant;

use crate::world::{World, address, run};

type Outcome = Result<(), String>;

const SEEDS: u64 = 10;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

/// Runs a schedule of two gateways with every rule, where it must hold, and without `rule`, where some seed must break it.
fn proves<F: AsyncFn(World) -> Outcome>(rule: Rule, schedule: F) {
    let attempt = |rules, seed| run(async { schedule(World::keeping_tombstones(seed, rules, 2).await).await });
    for seed in 0..SEEDS {
        assert_eq!(attempt(Rules::default(), seed), Ok(()), "with every rule, seed {seed}");
    }
    let breaks = (0..SEEDS).any(|seed| attempt(Rules::without(rule), seed).is_err());
    assert!(breaks, "{rule:?} is not needed by this schedule");
}

fn holds<F: AsyncFn(World) -> Outcome>(schedule: F) {
    assert_eq!(run(async { schedule(World::keeping_tombstones(1, Rules::default(), 2).await).await }), Ok(()));
}

async fn shows(world: &World, at: usize, wanted: &[&str]) -> Outcome {
    let mut found = ok!(world.read(at, "sib", "k")).texts;
    found.sort_unstable();
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

async fn lists(world: &World, wanted: &[&'static str]) -> Outcome {
    let (keys, _) = ok!(world.list(0, "sib"));
    if keys == wanted { Ok(()) } else { Err(format!("{keys:?} are listed instead of {wanted:?}")) }
}

/// Puts with the context of what is read now.
async fn overwrite(world: &World, at: usize, text: &str) -> Outcome {
    let seen = ok!(world.read(at, "sib", "k")).context;
    ok!(world.put(at, "sib", "k", text, seen.as_ref()));
    Ok(())
}

fn options() -> Options {
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    Options::new(Level::All, deadline, Durability::Buffered)
}

fn object() -> Partition {
    Partition::object(&address("sib", "k"), false, Partition::N_VAL)
}

fn entries() -> Partition {
    let address = address("sib", "k");
    let (epoch, shard) = BucketRow::default().shard_of(&address.key);
    Partition::keys(&address.bucket, epoch, shard, Partition::N_VAL)
}

async fn rows(world: &World, partition: &Partition) -> Vec<Row> {
    world.store.read(partition, &ReadQuery::all(1000), &options()).await.unwrap().rows
}

/// A row gets there on a way of its own: by read repair, by a hint, as the later half of a write.
async fn arrives(world: &World, partition: Partition, row: Row) {
    world.store.apply(Batch::of(partition, vec![Change::Put(row)]), &options()).await.unwrap();
}

/// How many names of rows were ever written to the key's partition.
fn names(world: &World) -> usize {
    world.notes.as_ref().expect("a world that takes notes").lock().names_max(Table::Objects)
}

fn logged(world: &World) -> usize {
    world.notes.as_ref().expect("a world that takes notes").lock().logged
}

#[test]
fn row_1_overwrites_by_two_gateways_in_turn_use_two_rows() {
    proves(Rule::CarryCovers, async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..20 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        shows(&world, 0, &["v19"]).await?;
        let names = names(&world);
        if names <= 2 { Ok(()) } else { Err(format!("{names} names for one key")) }
    });
}

#[test]
fn row_1_ten_thousand_overwrites_use_two_rows() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..10_000 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        assert_eq!((names(&world), rows(&world, &entries()).await.len()), (2, 2));
        assert_eq!(rows(&world, &object()).await.len(), 1);
        Ok(())
    });
}

#[test]
fn row_2_a_gateway_that_forgot_its_slots_overwrites_none() {
    proves(Rule::NewBirthWhenForgotten, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        world.nodes[0].gateway.forget_slots();
        ok!(world.put(0, "sib", "k", "b", None));
        shows(&world, 1, &["a", "b"]).await
    });
}

#[test]
fn row_3_two_puts_with_one_context_never_take_one_slot() {
    proves(Rule::IssueBeforeSend, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.set_faults(Faults { pause_ms_max: 20, pause_per_mille: 1000, ..Faults::none() });
        let put = |text| world.put(0, "sib", "k", text, seen.as_ref());
        let (a, b) = tokio::join!(put("a"), put("b"));
        a.and(b).map_err(|error| error.to_string())?;
        world.set_faults(Faults::none());
        shows(&world, 1, &["a", "b"]).await
    });
}

#[test]
fn row_3_a_slot_whose_last_write_was_not_answered_is_not_taken() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.nodes[0].faulty.set_faults(Faults { lose_per_mille: 1000, ..Faults::none() });
        assert!(world.put(0, "sib", "k", "a", seen.as_ref()).await.is_err(), "the answer was to be lost");
        world.set_faults(Faults::none());
        ok!(world.put(0, "sib", "k", "b", seen.as_ref()));
        shows(&world, 1, &["a", "b"]).await
    });
}

#[test]
fn row_4_puts_and_deletes_in_turn_without_contexts_use_one_row() {
    proves(Rule::ReuseTombstones, async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..20 {
            ok!(world.put(0, "sib", "k", &format!("v{at}"), None));
            assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
            world.pass(at * 400).await;
        }
        lists(&world, &[]).await?;
        let names = names(&world);
        if names <= 1 { Ok(()) } else { Err(format!("{names} names for one key")) }
    });
}

#[test]
fn row_4_a_tombstone_of_unknown_fate_is_not_overwritten() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        world.pass(2_000).await;
        world.nodes[0].faulty.set_faults(Faults { fail_per_mille: 1000, ..Faults::none() });
        let seen = ok!(world.read(1, "sib", "k")).context;
        assert!(world.delete(0, "sib", "k", seen.as_ref()).await.is_err(), "the delete was to fail");
        world.set_faults(Faults::none());
        ok!(world.put(0, "sib", "k", "b", None));
        shows(&world, 1, &["a", "b"]).await
    });
}

#[test]
fn row_5_a_sequential_put_through_a_slow_clock_takes_its_slot_again_and_is_not_lost() {
    proves(Rule::ReadFirst, async |world| {
        world.nodes[0].clock.set_skew(400_000);
        world.nodes[1].clock.set_skew(-90_000);
        for (at, text) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            ok!(world.put(at % 2, "default", "k", text, None));
            world.pass(10).await;
            let shown = ok!(world.read(0, "default", "k")).texts;
            if shown != [text] {
                return Err(format!("{shown:?} after {text}"));
            }
        }
        assert_eq!(names(&world), 2);
        Ok(())
    });
}

#[test]
fn row_5_a_row_written_through_a_slow_clock_covers_what_it_replaced() {
    proves(Rule::PassWhatIsSeen, async |world| {
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

#[test]
fn row_13_a_row_back_from_the_dead_is_hidden_and_goes_with_the_next_write() {
    proves(Rule::HideCovered, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "old", None));
        let old = rows(&world, &object()).await.remove(0);
        overwrite(&world, 1, "new").await?;
        arrives(&world, object(), old.clone()).await;
        shows(&world, 0, &["new"]).await?;
        overwrite(&world, 1, "newer").await?;
        assert_eq!(rows(&world, &object()).await.len(), 1, "it went with the write");
        // Its own slot may have been taken again meanwhile.
        overwrite(&world, 0, "newest").await?;
        arrives(&world, object(), old).await;
        shows(&world, 1, &["newest"]).await
    });
}

#[test]
fn row_13_a_cover_hides_no_write_that_its_writer_did_not_see() {
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

#[test]
fn row_28_overwrites_leave_entries_and_are_no_logged_batches() {
    proves(Rule::LeaveKeyRows, async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..6 {
            overwrite(&world, at % 2, &format!("v{at}")).await?;
        }
        lists(&world, &["k"]).await?;
        let logged = logged(&world);
        if logged == 0 { Ok(()) } else { Err(format!("{logged} overwrites were logged batches")) }
    });
}

#[test]
fn row_28_a_deleted_key_is_listed_by_no_entry_that_overwrites_left() {
    proves(Rule::UnlistCovered, async |world| {
        world.add_type("sib", "{}").await;
        overwrite(&world, 0, "a").await?;
        overwrite(&world, 1, "b").await?;
        assert!(ok!(world.delete(1, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

#[test]
fn row_28_a_delete_leaves_the_entry_of_a_row_that_is_still_to_come() {
    proves(Rule::AwaitRows, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let stamp = world.nodes[1].gateway.now();
        let name = Slot { actor: 99, birth: stamp }.row_name();
        let value =
            ObjectRow { tombstone: false, replaced: 0, covers: Vec::new(), content: Default::default() }.encode();
        let entry = Row { name: view_row_name(b"k", &name), value: Bytes::new(), stamp, expires: None };
        arrives(&world, entries(), entry).await;
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        arrives(&world, object(), Row { name, value, stamp, expires: None }).await;
        lists(&world, &["k"]).await
    });
}

#[test]
fn row_28_an_entry_whose_row_never_came_goes_with_a_delete_a_day_later() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        let stamp = world.nodes[1].gateway.now();
        let name = view_row_name(b"k", &Slot { actor: 99, birth: stamp }.row_name());
        arrives(&world, entries(), Row { name, value: Bytes::new(), stamp, expires: None }).await;
        ok!(world.put(0, "sib", "k", "a", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        lists(&world, &["k"]).await?;
        world.pass(DAY_MS + 1000).await;
        ok!(world.put(0, "sib", "k", "b", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

#[test]
fn row_28_entries_of_more_slots_than_a_row_covers_go_with_the_overwrite() {
    holds(async |world| {
        world.add_type("sib", "{}").await;
        for at in 0..30 {
            ok!(world.put(at % 2, "sib", "k", &format!("v{at}"), None));
        }
        overwrite(&world, 0, "one").await?;
        assert_eq!(rows(&world, &entries()).await.len(), 17, "the own one and those that are covered");
        assert!(ok!(world.delete(1, "sib", "k", None)), "there was something to delete");
        lists(&world, &[]).await
    });
}

#[test]
fn row_29_a_delete_does_not_unlist_a_concurrent_put_of_an_older_clock() {
    proves(Rule::NameViewBySlot, async |world| {
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

#[test]
fn row_9_rows_are_counted_only_where_a_gateway_has_a_hundred_in_use() {
    proves(Rule::LimitSiblings, async |world| {
        world.add_type("sib", "{}").await;
        let mut stored = 0;
        for at in 0..130 {
            stored += usize::from(world.put(0, "sib", "k", &format!("v{at}"), None).await.is_ok());
        }
        let shown = ok!(world.read(0, "sib", "k")).texts.len();
        let counted = world.notes.as_ref().expect("a world that takes notes").lock().counted;
        if (stored, shown) != (100, 100) || counted > 60 {
            return Err(format!("{stored} stored, {shown} shown, {counted} counted"));
        }
        overwrite(&world, 0, "one").await?;
        ok!(world.put(0, "sib", "k", "two", None));
        shows(&world, 1, &["one", "two"]).await
    });
}
