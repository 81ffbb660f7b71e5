//! One schedule per rule of the key-value side; it fails under the rule's mutation in `tests/mutants`.

use std::time::Duration;

use larder_kv::rules::causality::{Context, Dot, DotFlags, Slot};
use larder_rows::ActorId;
use larder_testkit::faulty::StoreFaults;

use crate::simulation::world::{ScheduleResult, SimWorld, address, run};

/// Runs a schedule of `count` gateways; it must hold with every seed.
#[track_caller]
fn holds<F: AsyncFn(SimWorld) -> ScheduleResult>(count: usize, schedule: F) {
    for seed in 0..SEEDS {
        assert_eq!(run(async { schedule(SimWorld::new(seed, count).await).await }), Ok(()), "seed {seed}");
    }
}

fn expect(world_shows: &[String], wanted: &[&str]) -> ScheduleResult {
    let mut found: Vec<_> = world_shows.iter().map(String::as_str).collect();
    found.sort_unstable();
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

const SEEDS: u64 = 20;
const SLOW: StoreFaults = StoreFaults {
    pause_ms_max: 20,
    pause_per_mille: 1000,
    fail_per_mille: 0,
    lose_per_mille: 0,
    late_per_mille: 0,
    stale_per_mille: 0,
};

/// Two puts of one gateway are in flight; with the same clock the second would overwrite the row of the first
/// [invariant 3].
#[test]
fn two_puts_in_flight_through_one_gateway_never_share_a_row() {
    holds(1, async |world| {
        world.add_type("sib", "{}").await;
        world.set_faults(SLOW);
        let (a, b) = tokio::join!(world.put(0, "sib", "k", "a", None), world.put(0, "sib", "k", "b", None));
        a.and(b).map_err(|error| error.to_string())?;
        expect(&ok!(world.read(0, "sib", "k")).texts, &["a", "b"])
    });
}

/// A put through a slow clock gets an older stamp than the value before it, and would lose to it [invariant 5].
#[test]
fn a_later_put_through_a_slow_clock_is_not_lost() {
    holds(2, async |world| {
        world.nodes[0].clock.set_skew(400_000);
        world.nodes[1].clock.set_skew(-90_000);
        ok!(world.put(0, "default", "k", "first", None));
        world.advance(10).await;
        ok!(world.put(1, "default", "k", "second", None));
        expect(&ok!(world.read(0, "default", "k")).texts, &["second"])
    });
}

/// The context holds a clock ahead of the gateway's; unless the gateway observes it, the put is older than its own past
/// [invariant 5].
#[test]
fn a_put_through_a_slow_clock_wins_over_the_value_in_its_context() {
    holds(2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        world.nodes[0].clock.set_skew(400_000);
        ok!(world.put(0, "lww", "k", "first", None));
        let seen = ok!(world.read(0, "lww", "k")).context;
        world.advance(10).await;
        ok!(world.put(1, "lww", "k", "second", seen.as_ref()));
        expect(&ok!(world.read(0, "lww", "k")).texts, &["second"])
    });
}

/// A write through a clock that is a minute ahead would win over every write of the next minute [invariant 5].
#[test]
fn a_gateway_whose_clock_is_off_refuses_writes() {
    holds(2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        world.nodes[0].clock.set_skew(60_000_000);
        world.advance(5_000).await;
        let fast = world.put(0, "lww", "k", "fast", None).await;
        world.advance(10).await;
        ok!(world.put(1, "lww", "k", "second", None));
        let shown = ok!(world.read(1, "lww", "k"));
        if fast.is_ok() { expect(&shown.texts, &["second"]) } else { Ok(()) }
    });
}

/// A sibling that a read without `allow_mult` hides must still be named by its context, or it returns later [invariant
/// 6].
#[test]
fn toggling_allow_mult_brings_no_loser_back() {
    holds(1, async |world| {
        ok!(world.set_props(0, "default", r#"{"allow_mult":true}"#));
        ok!(world.put(0, "default", "k", "a", None));
        ok!(world.put(0, "default", "k", "b", None));
        ok!(world.set_props(0, "default", r#"{"allow_mult":false}"#));
        let seen = ok!(world.read(0, "default", "k")).context;
        ok!(world.put(0, "default", "k", "c", seen.as_ref()));
        ok!(world.set_props(0, "default", r#"{"allow_mult":true}"#));
        expect(&ok!(world.read(0, "default", "k")).texts, &["c"])
    });
}

/// A forged context would drive the clock ahead, so that this gateway wins over every other [invariant 7].
#[test]
fn a_context_from_the_future_does_not_move_the_clock() {
    holds(2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        let clock = world.nodes[0].gateway.context().now() + 3_600_000_000;
        let dot = Dot { slot: Slot { actor: ActorId(1), birth: clock }, clock, flags: DotFlags::default() };
        let hostile = Context { dots: vec![dot], vector: Default::default() }.encode(&address("default", "x"));
        let _ = world.put(0, "default", "x", "hostile", Some(&hostile)).await;
        ok!(world.put(0, "lww", "k", "first", None));
        world.advance(10).await;
        ok!(world.put(1, "lww", "k", "second", None));
        expect(&ok!(world.read(1, "lww", "k")).texts, &["second"])
    });
}

/// The first try was written although its answer was lost; the retry through another gateway is the same value
/// [invariant 8].
#[test]
fn a_retry_after_a_lost_answer_makes_no_sibling() {
    holds(2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.nodes[0].faulty.set_faults(StoreFaults { lose_per_mille: 1000, ..StoreFaults::none() });
        let lost = world.put(0, "sib", "k", "b", seen.as_ref()).await;
        world.set_faults(StoreFaults::none());
        assert!(lost.is_err(), "the answer should be lost");
        ok!(world.put(1, "sib", "k", "b", seen.as_ref()));
        expect(&ok!(world.read(0, "sib", "k")).texts, &["b"])
    });
}

/// A key at its sibling limit must refuse a put, not acknowledge and hide it [invariant 9].
#[test]
fn the_101st_sibling_is_refused_and_none_is_hidden() {
    holds(1, async |world| {
        world.add_type("sib", "{}").await;
        let mut stored = 0;
        for at in 0..130 {
            stored += usize::from(world.put(0, "sib", "k", &format!("v{at}"), None).await.is_ok());
        }
        let shown = ok!(world.read(0, "sib", "k")).texts.len();
        if shown == stored { Ok(()) } else { Err(format!("{stored} stored, {shown} shown")) }
    });
}

/// Without the tombstone's context, the put after a delete and the delete race as siblings [invariant 11].
#[test]
fn a_read_after_a_delete_has_a_context() {
    holds(1, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        let gone = ok!(world.read(0, "sib", "k"));
        if !gone.deleted || gone.context.is_none() {
            return Err(format!("{gone:?}"));
        }
        ok!(world.put(0, "sib", "k", "b", gone.context.as_ref()));
        world.advance(5_000).await;
        expect(&ok!(world.read(0, "sib", "k")).texts, &["b"])
    });
}

/// After a restart with the clock set back, an old name would be issued again and overwrite another write [invariant
/// 12].
#[test]
fn a_restart_with_the_clock_set_back_reuses_no_row_name() {
    holds(2, async |mut world| {
        world.add_type("sib", "{}").await;
        let before = world.nodes[0].gateway.context().now();
        ok!(world.put(0, "sib", "k", "a", None));
        world.advance(200).await;
        let back = before.0 as i64 - world.nodes[0].gateway.context().now().0 as i64;
        world.restart(0, back).await;
        ok!(world.put(0, "sib", "k", "b", None));
        expect(&ok!(world.read(1, "sib", "k")).texts, &["a", "b"])
    });
}

/// A delete that reads one stale replica names no version, is answered, and the value returns [invariant 14].
#[test]
fn a_delete_through_a_stale_replica_deletes_the_current_value() {
    holds(2, async |world| {
        world.add_type("sib", "{}").await;
        world.advance(2_000).await;
        ok!(world.put(1, "sib", "k", "a", None));
        world.nodes[0].faulty.set_faults(StoreFaults { stale_per_mille: 1000, ..StoreFaults::none() });
        let _ = ok!(world.delete(0, "sib", "k", None));
        world.set_faults(StoreFaults::none());
        expect(&ok!(world.read(1, "sib", "k")).texts, &[])
    });
}

/// A context of only the own write would leave the other sibling, although the client saw the answer [invariant 16].
#[test]
fn returnbody_answers_a_context_of_all_siblings() {
    holds(2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let written = ok!(world.put_returning_body(1, "sib", "k", "b", None));
        ok!(world.put(0, "sib", "k", "c", written.context.as_ref()));
        expect(&ok!(world.read(1, "sib", "k")).texts, &["c"])
    });
}

/// A late retry of the losing put must not become the winner [invariant 17].
#[test]
fn a_repeated_write_once_put_changes_nothing() {
    holds(3, async |world| {
        world.add_type("once", r#"{"write_once":true}"#).await;
        ok!(world.put(1, "once", "k", "x", None));
        ok!(world.put(2, "once", "k", "y", None));
        let first = ok!(world.read(1, "once", "k")).texts;
        let loser = if first == ["x"] { "y" } else { "x" };
        ok!(world.put(0, "once", "k", loser, None));
        let after = ok!(world.read(2, "once", "k")).texts;
        if after == first { Ok(()) } else { Err(format!("{first:?}, then {after:?}")) }
    });
}

/// A put through another gateway has the clock of the delete that runs beside it: the key keeps the row of the put, so it must
/// keep the entry as well. Calls take whole milliseconds here, so clocks meet often.
#[test]
fn a_put_in_the_microsecond_of_a_write_once_delete_keeps_its_listing_entry() {
    for seed in 0..600 {
        let schedule = async {
            let world = SimWorld::new(seed, 2).await;
            world.add_type("once", r#"{"write_once":true}"#).await;
            ok!(world.put(0, "once", "k", "one", None));
            world.advance(50).await;
            world.set_faults(SLOW);
            let put = async {
                tokio::time::sleep(Duration::from_millis(seed % 20)).await;
                world.put(1, "once", "k", "two", None).await
            };
            let (deleted, stored) = tokio::join!(world.delete(0, "once", "k", None), put);
            deleted.and(stored.map(drop)).map_err(|error| error.to_string())?;
            world.set_faults(StoreFaults::none());
            let (shown, listed) = (ok!(world.read(0, "once", "k")).texts, ok!(world.list(0, "once")).0);
            if shown.len() == listed.len() { Ok(()) } else { Err(format!("{shown:?} is stored, {listed:?} is listed")) }
        };
        assert_eq!(run(schedule), Ok(()), "seed {seed}");
    }
}

/// The heartbeat of a suspended gateway expires, so a change does not wait for it; it continues with an old catalogue
/// [invariant 68].
#[test]
fn a_suspended_gateway_checks_its_catalogue_before_it_serves() {
    holds(2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(1, "sib", "k", "a", None));
        world.nodes[1].faulty.freeze();
        let name = bytes::Bytes::from_static(b"sib");
        let hooked = serde_json::json!({"precommit": ["check"]});
        ok!(world.nodes[0].gateway.types().update(&name, hooked.as_object().ok_or("no object")?));
        world.advance(20_000).await;
        world.nodes[1].faulty.thaw();
        match world.put(1, "sib", "k", "b", None).await {
            Ok(()) => Err("served from an old catalogue".into()),
            Err(_) => Ok(()),
        }
    });
}

/// An update that is answered before all members have it lets another member accept a write it forbids [invariant 70].
#[test]
fn an_answered_type_update_is_served_by_every_member() {
    holds(3, async |world| {
        world.add_type("sib", "{}").await;
        world.advance(5_000).await;
        let name = bytes::Bytes::from_static(b"sib");
        let hooked = serde_json::json!({"precommit": ["check"]});
        ok!(world.nodes[0].gateway.types().update(&name, hooked.as_object().ok_or("no object")?));
        for at in 0..3 {
            if world.put(at, "sib", "k", "b", None).await.is_ok() {
                return Err(format!("gateway {at} has not seen the update"));
            }
        }
        Ok(())
    });
}
