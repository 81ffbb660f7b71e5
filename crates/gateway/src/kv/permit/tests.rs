use proptest::prelude::*;

use super::*;

/// A request for three copies whose sloppy value is 2.
fn asked(reading: bool, strict: Option<(Which, u32, u32)>, confirms: u32) -> Asked {
    let words = Words { reading, sloppy: (if reading { Which::R } else { Which::W }, 2), strict, confirms };
    let options = Options::new(Level::Quorum, Instant::now(), Durability::Disk);
    let floor = strict.map_or(u32::from(reading), |(_, _, replicas)| replicas);
    Asked { options, copies: 3, floor, words }
}

fn down(alive: u32, required: u32) -> larder_store::Error {
    larder_store::Error::new(Kind::Unavailable { alive, required }, "too few are up")
}

#[track_caller]
fn says(asked: Asked, alive: u32, required: u32, words: &str) {
    assert_eq!(asked.refuse(down(alive, required)).to_string(), words);
}

#[test]
fn the_value_that_is_not_met_is_named() {
    says(asked(true, Some((Which::Pr, 2, 2)), 0), 1, 2, "Pr value unsatisfied: 1/2");
    says(asked(false, Some((Which::Pw, 3, 3)), 0), 2, 3, "Pw value unsatisfied: 2/3");
    says(asked(true, None, 0), 0, 1, "R value unsatisfied: 0/2");
    says(asked(false, None, 2), 1, 2, "node_confirms value unsatisfied: 1/2");
    says(asked(true, Some((Which::Pr, 1, 1)), 3), 2, 3, "node_confirms value unsatisfied: 2/3");
    says(asked(true, Some((Which::Pr, 3, 3)), 2), 1, 3, "Pr value unsatisfied: 1/3");
}

#[test]
fn more_up_than_asked_and_yet_too_few_is_told_in_copies() {
    // n_val is 1, the type was created with 3: all copies stand for the one.
    says(asked(true, Some((Which::Pr, 1, 3)), 0), 2, 3, "Pr value unsatisfied: 2/3");
}

#[test]
fn a_firm_request_has_one_level() {
    let mut steps = asked(false, None, 0).firm().reading();
    assert!(steps.lower(down(1, 2)).is_err());
    let mut steps = asked(true, None, 0).never_below(Level::All).reading();
    assert_eq!(steps.options.level, Level::All);
    assert!(steps.lower(down(2, 3)).is_err());
    let mut steps = asked(true, Some((Which::Pr, 3, 3)), 0).at(Level::One).reading();
    assert!(steps.lower(down(0, 1)).is_err());
}

proptest! {
    /// What was written to w replicas of n is read from r of them whenever r + w > n, however many copies there are.
    #[test]
    fn reads_meet_writes_among_the_copies_too(n_val in 1_u32..9, copies in 1_u32..9, r in 1_u32..9, w in 1_u32..9) {
        prop_assume!(r <= n_val && w <= n_val && r + w > n_val);
        let replicas = |count| needs(level_of(scaled(count, n_val, copies), copies), copies);
        prop_assert!(replicas(r) + replicas(w) > copies);
        prop_assert!(replicas(r) <= copies && scaled(n_val, n_val, copies) == copies);
    }
}
