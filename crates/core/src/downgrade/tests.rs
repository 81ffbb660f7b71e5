use std::time::Duration;

use larder_store::Durability;
use proptest::prelude::*;

use super::*;

const LEVELS: [ConsistencyLevel; 6] = [
    ConsistencyLevel::Any,
    ConsistencyLevel::One,
    ConsistencyLevel::Two,
    ConsistencyLevel::Three,
    ConsistencyLevel::Quorum,
    ConsistencyLevel::All,
];

fn call_at(level: ConsistencyLevel, copies: u32, floor: u32) -> DowngradableCall {
    let deadline = Instant::now() + Duration::from_secs(5);
    DowngradableCall::new(CallOptions::new(level, deadline, Durability::Disk), copies, floor)
}

fn down(alive: u32) -> StoreError {
    StoreError::new(Kind::Unavailable { alive, required: 9 }, "too few are up")
}

fn late() -> StoreError {
    StoreError::new(Kind::TimedOut, "no answer")
}

/// The levels tried when every try fails with this error.
fn tried(mut call: DowngradableCall, error: impl Fn() -> StoreError) -> (Vec<ConsistencyLevel>, Kind) {
    let mut levels = vec![call.options.level];
    loop {
        match call.downgrade(error()) {
            Ok(()) => levels.push(call.options.level),
            Err(error) => return (levels, error.kind),
        }
    }
}

#[test]
fn each_count_has_the_expected_level() {
    let of = |copies| (0..=copies).map(|count| weakest_level_for(count, copies)).collect::<Vec<_>>();
    assert_eq!(of(1), [ConsistencyLevel::One, ConsistencyLevel::One]);
    assert_eq!(of(2), [ConsistencyLevel::One, ConsistencyLevel::One, ConsistencyLevel::All]);
    assert_eq!(of(3), [ConsistencyLevel::One, ConsistencyLevel::One, ConsistencyLevel::Quorum, ConsistencyLevel::All]);
    assert_eq!(
        of(5),
        [
            ConsistencyLevel::One,
            ConsistencyLevel::One,
            ConsistencyLevel::Two,
            ConsistencyLevel::Quorum,
            ConsistencyLevel::All,
            ConsistencyLevel::All
        ]
    );
    assert_eq!(weakest_level_for(3, 7), ConsistencyLevel::Three);
    assert_eq!(weakest_level_for(4, 7), ConsistencyLevel::Quorum);
    assert_eq!(weakest_level_for(4, 9), ConsistencyLevel::Quorum);
}

#[test]
fn a_call_is_downgraded_to_the_live_replicas_and_no_lower_than_its_floor() {
    let (any, one, quorum, all) =
        (ConsistencyLevel::Any, ConsistencyLevel::One, ConsistencyLevel::Quorum, ConsistencyLevel::All);
    let unmet = |alive| Kind::Unavailable { alive, required: 9 };
    assert_eq!(tried(call_at(quorum, 3, WRITE_FLOOR), || down(1)), (vec![quorum, one, any], unmet(1)));
    assert_eq!(tried(call_at(quorum, 3, WRITE_FLOOR), || down(0)), (vec![quorum, one, any], unmet(0)));
    assert_eq!(tried(call_at(quorum, 3, READ_FLOOR), || down(0)), (vec![quorum, one], unmet(0)));
    assert_eq!(tried(call_at(all, 3, 2), || down(2)), (vec![all, quorum], unmet(2)));
    assert_eq!(tried(call_at(all, 3, 2), || down(1)), (vec![all], unmet(1)));
    assert_eq!(
        tried(call_at(all, 7, READ_FLOOR), || down(3)),
        (vec![all, ConsistencyLevel::Three, ConsistencyLevel::Two, one], unmet(3))
    );
}

#[test]
fn a_replica_that_died_just_now_downgrades_the_call() {
    let (one, quorum, all) = (ConsistencyLevel::One, ConsistencyLevel::Quorum, ConsistencyLevel::All);
    assert_eq!(tried(call_at(all, 3, WRITE_FLOOR), late), (vec![all, quorum, one], Kind::TimedOut));
    let mut spent = call_at(all, 3, WRITE_FLOOR);
    spent.options.deadline = Instant::now();
    assert_eq!(tried(spent, late), (vec![all], Kind::TimedOut), "the deadline of the request has passed");
}

#[test]
fn a_write_that_timed_out_is_not_acknowledged_for_a_hint_alone() {
    let mut unanswered = call_at(ConsistencyLevel::One, 3, WRITE_FLOOR);
    assert!(!unanswered.can_downgrade(), "the last try waits until the deadline");
    assert_eq!(unanswered.downgrade(late()).unwrap_err().kind, Kind::TimedOut);
    let mut refused = call_at(ConsistencyLevel::One, 3, WRITE_FLOOR);
    refused.downgrade(down(0)).unwrap();
    assert_eq!(refused.options.level, ConsistencyLevel::Any, "no replica is up: another node keeps a hint");
}

#[test]
fn a_write_that_may_have_happened_is_never_reported_as_refused() {
    let mut call = call_at(ConsistencyLevel::Quorum, 3, 1);
    call.downgrade(late()).unwrap();
    assert_eq!(
        call.downgrade(StoreError::new(Kind::TooManyRows { rows: 101 }, "full")).unwrap_err().kind,
        Kind::TimedOut
    );
    assert_eq!(call.downgrade(down(0)).unwrap_err().kind, Kind::TimedOut);
}

#[test]
fn other_errors_are_not_downgraded() {
    for kind in [Kind::TooLarge, Kind::Poisoned, Kind::Full, Kind::Damaged, Kind::Misuse, Kind::Io] {
        let mut call = call_at(ConsistencyLevel::All, 3, WRITE_FLOOR);
        assert_eq!(call.downgrade(StoreError::new(kind, "no")).unwrap_err().kind, kind);
        assert_eq!(call.options.level, ConsistencyLevel::All);
    }
}

proptest! {
    #[test]
    fn a_count_gets_the_weakest_level_that_covers_it(copies in 1_u32..12, count in 0_u32..12) {
        let count = count.min(copies);
        let level = weakest_level_for(count, copies);
        prop_assert!(replicas_required(level, copies) >= count);
        let weaker_but_enough = count.max(1)..replicas_required(level, copies);
        let weaker = LEVELS.into_iter().filter(|other| weaker_but_enough.contains(&replicas_required(*other, copies)));
        prop_assert_eq!(weaker.collect::<Vec<_>>(), vec![]);
    }

    #[test]
    fn downgrades_end_and_only_lower_the_level(
        level in 0_usize..6,
        copies in 1_u32..12,
        floor in 0_u32..4,
        alive in proptest::collection::vec(0_u32..12, 12),
    ) {
        let mut call = call_at(LEVELS[level], copies, floor);
        for alive in alive {
            let before = replicas_required(call.options.level, copies);
            let last = call.is_last_try();
            if call.downgrade(down(alive)).is_err() {
                return Ok(());
            }
            prop_assert!(!last, "the last try has given its batch away");
            let now = replicas_required(call.options.level, copies);
            prop_assert!(now < before && now >= floor && now <= alive.max(1));
        }
        prop_assert!(false, "the downgrades never ended");
    }
}
