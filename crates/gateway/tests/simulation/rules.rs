//! One schedule per rule: it holds with the rule and fails without it. The number is the row of the list of holes.

use larder_gateway::{Rule, Rules};
use larder_model::causality::{Context, Dot, DotFlags, Slot};
use larder_store::wrappers::faulty::Faults;

use crate::world::{World, address, run};

type Outcome = Result<(), String>;

/// Runs a schedule with every rule, where it must hold, and without `rule`, where some seed must break it.
fn proves<F: AsyncFn(World) -> Outcome>(rule: Rule, count: usize, schedule: F) {
    let attempt = |rules, seed| run(async { schedule(World::new(seed, rules, count).await).await });
    for seed in 0..20 {
        assert_eq!(attempt(Rules::default(), seed), Ok(()), "with every rule, seed {seed}");
    }
    assert!(
        (0..20).any(|seed| attempt(Rules::without(rule), seed).is_err()),
        "{rule:?} is not needed by this schedule"
    );
}

fn expect(world_shows: &[String], wanted: &[&str]) -> Outcome {
    let mut found: Vec<_> = world_shows.iter().map(String::as_str).collect();
    found.sort_unstable();
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

const SLOW: Faults = Faults {
    pause_ms_max: 20,
    pause_per_mille: 1000,
    fail_per_mille: 0,
    lose_per_mille: 0,
    late_per_mille: 0,
    stale_per_mille: 0,
};

#[test]
fn row_3_two_puts_in_flight_never_share_a_row() {
    proves(Rule::IssueBeforeSend, 1, async |world| {
        world.add_type("sib", "{}").await;
        world.set_faults(SLOW);
        let (a, b) = tokio::join!(world.put(0, "sib", "k", "a", None), world.put(0, "sib", "k", "b", None));
        a.and(b).map_err(|error| error.to_string())?;
        expect(&ok!(world.read(0, "sib", "k")).texts, &["a", "b"])
    });
}

#[test]
fn row_5_a_sequential_put_through_a_slow_clock_is_not_lost() {
    proves(Rule::ReadFirst, 2, async |world| {
        world.nodes[0].clock.set_skew(400_000);
        world.nodes[1].clock.set_skew(-90_000);
        ok!(world.put(0, "default", "k", "first", None));
        world.pass(10).await;
        ok!(world.put(1, "default", "k", "second", None));
        expect(&ok!(world.read(0, "default", "k")).texts, &["second"])
    });
}

#[test]
fn row_5_a_clock_passes_what_it_was_sent() {
    proves(Rule::PassWhatIsSeen, 2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        world.nodes[0].clock.set_skew(400_000);
        ok!(world.put(0, "lww", "k", "first", None));
        let seen = ok!(world.read(0, "lww", "k")).context;
        world.pass(10).await;
        ok!(world.put(1, "lww", "k", "second", seen.as_ref()));
        expect(&ok!(world.read(0, "lww", "k")).texts, &["second"])
    });
}

#[test]
fn row_5_a_gateway_whose_clock_is_off_writes_nothing() {
    proves(Rule::RefuseSkew, 2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        world.nodes[0].clock.set_skew(60_000_000);
        world.pass(5_000).await;
        let fast = world.put(0, "lww", "k", "fast", None).await;
        world.pass(10).await;
        ok!(world.put(1, "lww", "k", "second", None));
        let shown = ok!(world.read(1, "lww", "k"));
        if fast.is_ok() { expect(&shown.texts, &["second"]) } else { Ok(()) }
    });
}

#[test]
fn row_6_allow_mult_toggled_brings_no_loser_back() {
    proves(Rule::NameHidden, 1, async |world| {
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

#[test]
fn row_7_a_context_from_the_future_does_not_move_the_clock() {
    proves(Rule::RefuseAhead, 2, async |world| {
        world.add_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#).await;
        let clock = world.nodes[0].gateway.now() + 3_600_000_000;
        let dot = Dot { slot: Slot { actor: 1, birth: clock }, clock, flags: DotFlags::default() };
        let hostile = Context { dots: vec![dot], covers: Vec::new() }.encode(&address("default", "x"));
        let _ = world.put(0, "default", "x", "hostile", Some(&hostile)).await;
        ok!(world.put(0, "lww", "k", "first", None));
        world.pass(10).await;
        ok!(world.put(1, "lww", "k", "second", None));
        expect(&ok!(world.read(1, "lww", "k")).texts, &["second"])
    });
}

#[test]
fn row_8_a_retry_after_a_lost_answer_is_no_sibling() {
    proves(Rule::MergeRetries, 2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let seen = ok!(world.read(0, "sib", "k")).context;
        world.nodes[0].faulty.set_faults(Faults { lose_per_mille: 1000, ..Faults::none() });
        let lost = world.put(0, "sib", "k", "b", seen.as_ref()).await;
        world.set_faults(Faults::none());
        assert!(lost.is_err(), "the answer was to be lost");
        ok!(world.put(1, "sib", "k", "b", seen.as_ref()));
        expect(&ok!(world.read(0, "sib", "k")).texts, &["b"])
    });
}

#[test]
fn row_9_the_101st_sibling_is_refused_and_none_is_hidden() {
    proves(Rule::LimitSiblings, 1, async |world| {
        world.add_type("sib", "{}").await;
        let mut stored = 0;
        for at in 0..130 {
            stored += usize::from(world.put(0, "sib", "k", &format!("v{at}"), None).await.is_ok());
        }
        let shown = ok!(world.read(0, "sib", "k")).texts.len();
        if shown == stored { Ok(()) } else { Err(format!("{stored} stored, {shown} shown")) }
    });
}

#[test]
fn row_11_after_a_delete_there_is_a_context() {
    proves(Rule::LeaveTombstone, 1, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        assert!(ok!(world.delete(0, "sib", "k", None)), "there was something to delete");
        let gone = ok!(world.read(0, "sib", "k"));
        if !gone.deleted || gone.context.is_none() {
            return Err(format!("{gone:?}"));
        }
        ok!(world.put(0, "sib", "k", "b", gone.context.as_ref()));
        world.pass(5_000).await;
        expect(&ok!(world.read(0, "sib", "k")).texts, &["b"])
    });
}

#[test]
fn row_12_a_restart_with_the_clock_set_back_reuses_no_name() {
    proves(Rule::NewActor, 2, async |mut world| {
        world.add_type("sib", "{}").await;
        let before = world.nodes[0].gateway.now();
        ok!(world.put(0, "sib", "k", "a", None));
        world.pass(200).await;
        let back = before as i64 - world.nodes[0].gateway.now() as i64;
        world.restart(0, back).await;
        ok!(world.put(0, "sib", "k", "b", None));
        expect(&ok!(world.read(1, "sib", "k")).texts, &["a", "b"])
    });
}

#[test]
fn row_14_a_delete_reads_at_a_quorum() {
    proves(Rule::DeleteAtQuorum, 2, async |world| {
        world.add_type("sib", "{}").await;
        world.pass(2_000).await;
        ok!(world.put(1, "sib", "k", "a", None));
        world.nodes[0].faulty.set_faults(Faults { stale_per_mille: 1000, ..Faults::none() });
        let _ = ok!(world.delete(0, "sib", "k", None));
        world.set_faults(Faults::none());
        expect(&ok!(world.read(1, "sib", "k")).texts, &[])
    });
}

#[test]
fn row_16_returnbody_answers_a_context_of_all_siblings() {
    proves(Rule::ReadBack, 2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(0, "sib", "k", "a", None));
        let told = ok!(world.put_back(1, "sib", "k", "b", None));
        ok!(world.put(0, "sib", "k", "c", told.context.as_ref()));
        expect(&ok!(world.read(1, "sib", "k")).texts, &["c"])
    });
}

#[test]
fn row_17_a_repeated_write_once_put_changes_nothing() {
    proves(Rule::NameByContent, 3, async |world| {
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

#[test]
fn row_68_a_gateway_that_was_stopped_looks_before_it_serves() {
    proves(Rule::FreshCatalogue, 2, async |world| {
        world.add_type("sib", "{}").await;
        ok!(world.put(1, "sib", "k", "a", None));
        world.nodes[1].faulty.freeze();
        let name = bytes::Bytes::from_static(b"sib");
        let hooked = serde_json::json!({"precommit": ["check"]});
        ok!(world.nodes[0].gateway.update_type(&name, hooked.as_object().ok_or("no object")?));
        world.pass(20_000).await;
        world.nodes[1].faulty.thaw();
        match world.put(1, "sib", "k", "b", None).await {
            Ok(()) => Err("served from an old catalogue".into()),
            Err(_) => Ok(()),
        }
    });
}

#[test]
fn row_70_an_update_is_answered_when_every_member_shows_it() {
    proves(Rule::AwaitMembers, 3, async |world| {
        world.add_type("sib", "{}").await;
        world.pass(5_000).await;
        let name = bytes::Bytes::from_static(b"sib");
        let hooked = serde_json::json!({"precommit": ["check"]});
        ok!(world.nodes[0].gateway.update_type(&name, hooked.as_object().ok_or("no object")?));
        for at in 0..3 {
            if world.put(at, "sib", "k", "b", None).await.is_ok() {
                return Err(format!("gateway {at} has not seen the update"));
            }
        }
        Ok(())
    });
}
