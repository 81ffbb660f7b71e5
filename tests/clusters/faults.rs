//! Faults of nodes and gateways. The scenarios share one cluster of three nodes, whose start takes most of a minute.

use crate::clusters::{datatypes, failover, growth, linear};
use crate::harness::TestCluster;

#[test]
fn nothing_acknowledged_is_lost_and_no_swap_is_done_twice_when_nodes_and_gateways_fail() {
    let Some(cluster) = TestCluster::start(3) else { return };
    let gateway = |name| cluster.gateway(&["--s3", "127.0.0.1:0", "--node-name", name]);
    let one = gateway("one@127.0.0.1");
    growth::one_machine_becomes_three_and_one_again(&cluster, &one);
    let mut gateways = [one, gateway("other@127.0.0.1")];
    failover::loses_no_acknowledged_write(&cluster, &mut gateways);
    datatypes::lose_no_acknowledged_update(&cluster, &mut gateways);
    linear::compare_and_set_is_linearizable(&cluster, gateways);
}
