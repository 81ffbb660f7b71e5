use proptest::prelude::*;

use super::*;

/// A request to three copies whose downgradable parameter is 2.
fn replica_plan(reading: bool, primaries: Option<(QuorumParam, u32, u32)>, node_confirms: u32) -> ReplicaPlan {
    let params = QuorumParams {
        reading,
        downgradable: (if reading { QuorumParam::R } else { QuorumParam::W }, 2),
        primaries,
        node_confirms,
    };
    let options = CallOptions::new(ConsistencyLevel::Quorum, Instant::now(), Durability::Disk);
    let floor = primaries.map_or(u32::from(reading), |(_, _, replicas)| replicas);
    ReplicaPlan { options, copies: 3, floor, params }
}

fn down(alive: u32, required: u32) -> larder_store::Error {
    larder_store::Error::new(Kind::Unavailable { alive, required }, "too few are up")
}

#[track_caller]
fn refuses_with(replicas: ReplicaPlan, alive: u32, required: u32, params: &str) {
    assert_eq!(replicas.to_client_error(down(alive, required)).to_string(), params);
}

#[test]
fn a_refusal_names_the_parameter_that_was_not_met() {
    refuses_with(replica_plan(true, Some((QuorumParam::Pr, 2, 2)), 0), 1, 2, "Pr value unsatisfied: 1/2");
    refuses_with(replica_plan(false, Some((QuorumParam::Pw, 3, 3)), 0), 2, 3, "Pw value unsatisfied: 2/3");
    refuses_with(replica_plan(true, None, 0), 0, 1, "R value unsatisfied: 0/2");
    refuses_with(replica_plan(false, None, 2), 1, 2, "node_confirms value unsatisfied: 1/2");
    refuses_with(replica_plan(true, Some((QuorumParam::Pr, 1, 1)), 3), 2, 3, "node_confirms value unsatisfied: 2/3");
    refuses_with(replica_plan(true, Some((QuorumParam::Pr, 3, 3)), 2), 1, 3, "Pr value unsatisfied: 1/3");
}

#[test]
fn a_refusal_counts_copies_where_n_val_is_smaller() {
    // n_val is 1, the type was created with 3: pr=1 requires all copies.
    refuses_with(replica_plan(true, Some((QuorumParam::Pr, 1, 3)), 0), 2, 3, "Pr value unsatisfied: 2/3");
}

#[test]
fn a_plan_without_downgrade_keeps_its_level() {
    let mut call = replica_plan(false, None, 0).without_downgrade().read_call();
    assert!(call.downgrade(down(1, 2)).is_err());
    let mut call = replica_plan(true, None, 0).never_below(ConsistencyLevel::All).read_call();
    assert_eq!(call.options.level, ConsistencyLevel::All);
    assert!(call.downgrade(down(2, 3)).is_err());
    let mut call = replica_plan(true, Some((QuorumParam::Pr, 3, 3)), 0).at(ConsistencyLevel::One).read_call();
    assert!(call.downgrade(down(0, 1)).is_err());
}

proptest! {
    /// Reads from r replicas see writes to w of them whenever r + w > n, for any number of copies.
    #[test]
    fn reads_and_writes_overlap_in_the_copies(n_val in 1_u32..9, copies in 1_u32..9, r in 1_u32..9, w in 1_u32..9) {
        prop_assume!(r <= n_val && w <= n_val && r + w > n_val);
        let replicas = |count| replicas_required(weakest_level_for(scaled(count, n_val, copies), copies), copies);
        prop_assert!(replicas(r) + replicas(w) > copies);
        prop_assert!(replicas(r) <= copies && scaled(n_val, n_val, copies) == copies);
    }
}
