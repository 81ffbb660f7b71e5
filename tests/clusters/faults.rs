//! Faults of nodes and gateways. The scenarios share one cluster of three nodes, whose start takes most of a minute.

use crate::clusters::{datatypes, failover, linear};
use crate::harness::TestCluster;

#[test]
fn nothing_acknowledged_is_lost_and_no_swap_is_done_twice_when_nodes_and_gateways_fail() {
    let Some(cluster) = TestCluster::start(3) else { return };
    let gateway = |name| cluster.gateway(&["--s3", "127.0.0.1:0", "--node-name", name]);
    let mut gateways = ["one@127.0.0.1", "other@127.0.0.1"].map(gateway);
    failover::loses_no_acknowledged_write(&cluster, &mut gateways);
    datatypes::lose_no_acknowledged_update(&cluster, &mut gateways);
    linear::compare_and_set_is_linearizable(&cluster, gateways);
}
