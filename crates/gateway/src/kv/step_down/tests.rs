use std::time::Duration;

use proptest::prelude::*;

use larder_store::Durability;

use super::*;

const LEVELS: [Level; 6] = [Level::Any, Level::One, Level::Two, Level::Three, Level::Quorum, Level::All];

fn steps(level: Level, copies: u32, floor: u32) -> Steps {
    let deadline = Instant::now() + Duration::from_secs(5);
    Steps::new(Options::new(level, deadline, Durability::Disk), copies, floor)
}

fn down(alive: u32) -> StoreError {
    StoreError::new(Kind::Unavailable { alive, required: 9 }, "too few are up")
}

fn late() -> StoreError {
    StoreError::new(Kind::TimedOut, "no answer")
}

/// The levels tried when every call is answered so.
fn tried(mut steps: Steps, error: impl Fn() -> StoreError) -> (Vec<Level>, Kind) {
    let mut levels = vec![steps.options.level];
    loop {
        match steps.lower(error()) {
            Ok(()) => levels.push(steps.options.level),
            Err(error) => return (levels, error.kind),
        }
    }
}

#[test]
fn levels_meet_the_count_they_stand_for() {
    let of = |copies| (0..=copies).map(|count| level_of(count, copies)).collect::<Vec<_>>();
    assert_eq!(of(1), [Level::One, Level::One]);
    assert_eq!(of(2), [Level::One, Level::One, Level::All]);
    assert_eq!(of(3), [Level::One, Level::One, Level::Quorum, Level::All]);
    assert_eq!(of(5), [Level::One, Level::One, Level::Two, Level::Quorum, Level::All, Level::All]);
    assert_eq!(level_of(3, 7), Level::Three);
    assert_eq!(level_of(4, 7), Level::Quorum);
    assert_eq!(level_of(4, 9), Level::Quorum);
}

#[test]
fn a_call_goes_down_to_what_is_up_and_no_lower_than_its_floor() {
    let (any, one, quorum, all) = (Level::Any, Level::One, Level::Quorum, Level::All);
    let unmet = |alive| Kind::Unavailable { alive, required: 9 };
    assert_eq!(tried(steps(quorum, 3, WRITE_FLOOR), || down(1)), (vec![quorum, one, any], unmet(1)));
    assert_eq!(tried(steps(quorum, 3, WRITE_FLOOR), || down(0)), (vec![quorum, one, any], unmet(0)));
    assert_eq!(tried(steps(quorum, 3, READ_FLOOR), || down(0)), (vec![quorum, one], unmet(0)));
    assert_eq!(tried(steps(all, 3, 2), || down(2)), (vec![all, quorum], unmet(2)));
    assert_eq!(tried(steps(all, 3, 2), || down(1)), (vec![all], unmet(1)));
    assert_eq!(tried(steps(all, 7, READ_FLOOR), || down(3)), (vec![all, Level::Three, Level::Two, one], unmet(3)));
}

#[test]
fn a_replica_that_died_a_moment_ago_is_done_without() {
    let (one, quorum, all) = (Level::One, Level::Quorum, Level::All);
    assert_eq!(tried(steps(all, 3, WRITE_FLOOR), late), (vec![all, quorum, one], Kind::TimedOut));
    let mut spent = steps(all, 3, WRITE_FLOOR);
    spent.options.deadline = Instant::now();
    assert_eq!(tried(spent, late), (vec![all], Kind::TimedOut), "the time of the request is over");
}

#[test]
fn a_write_that_no_replica_answered_was_once_acknowledged_for_a_note_on_another_node() {
    let mut unanswered = steps(Level::One, 3, WRITE_FLOOR);
    assert!(!unanswered.may_go_lower(), "it is waited for to its end");
    assert_eq!(unanswered.lower(late()).unwrap_err().kind, Kind::TimedOut);
    let mut refused = steps(Level::One, 3, WRITE_FLOOR);
    refused.lower(down(0)).unwrap();
    assert_eq!(refused.options.level, Level::Any, "none of them is up: another node keeps it");
}

#[test]
fn a_write_that_may_have_happened_is_never_called_refused() {
    let mut steps = steps(Level::Quorum, 3, 1);
    steps.lower(late()).unwrap();
    assert_eq!(steps.lower(StoreError::new(Kind::TooManyRows { rows: 101 }, "full")).unwrap_err().kind, Kind::TimedOut);
    assert_eq!(steps.lower(down(0)).unwrap_err().kind, Kind::TimedOut);
}

#[test]
fn other_faults_are_not_cured_by_asking_less() {
    for kind in [Kind::TooLarge, Kind::Poisoned, Kind::Full, Kind::Damaged, Kind::Misuse, Kind::Io] {
        let mut steps = steps(Level::All, 3, WRITE_FLOOR);
        assert_eq!(steps.lower(StoreError::new(kind, "no")).unwrap_err().kind, kind);
        assert_eq!(steps.options.level, Level::All);
    }
}

proptest! {
    #[test]
    fn a_level_is_the_weakest_that_is_enough(copies in 1_u32..12, count in 0_u32..12) {
        let count = count.min(copies);
        let level = level_of(count, copies);
        prop_assert!(needs(level, copies) >= count);
        let weaker = LEVELS.into_iter().filter(|other| (count.max(1)..needs(level, copies)).contains(&needs(*other, copies)));
        prop_assert_eq!(weaker.collect::<Vec<_>>(), vec![]);
    }

    #[test]
    fn steps_end_and_only_fall(level in 0_usize..6, copies in 1_u32..12, floor in 0_u32..4, alive in proptest::collection::vec(0_u32..12, 12)) {
        let mut steps = steps(LEVELS[level], copies, floor);
        for alive in alive {
            let before = needs(steps.options.level, copies);
            if steps.lower(down(alive)).is_err() {
                return Ok(());
            }
            let now = needs(steps.options.level, copies);
            prop_assert!(now < before && now >= floor && now <= alive.max(1));
        }
        prop_assert!(false, "it never ended");
    }
}
