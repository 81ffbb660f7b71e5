//! Two datacenters with a node and a gateway each: each serves without the other, and receives the other's writes afterwards.

use std::time::Duration;

use crate::harness::{HttpRequest, LarderNode, TestCluster, wait};
use larder_cassandra_nodes::ClusterOptions;

const BUCKET: &str = "/types/sides/buckets/b/keys";
const STRONG: &str = "/types/strong/buckets/b/keys/k";
/// The longest time until the other datacenter has a write: hints are delivered after its node is seen as up.
const FOLLOWED: Duration = Duration::from_secs(120);

fn gateway(cluster: &TestCluster, number: usize) -> LarderNode {
    let own = format!("dc{number}");
    let at = cluster.node(number).address().to_string();
    let name = format!("{own}@127.0.0.1");
    let args = ["--cassandra-datacenter", &own, "--cassandra-datacenters", "dc1,dc2", "--node-name", &name];
    cluster.gateway_with(&at, &args)
}

/// The status of a read of a key.
fn status(node: &LarderNode, key: &str) -> u16 {
    node.client().get(&format!("{BUCKET}/{key}")).status
}

fn write(node: &LarderNode, key: &str) -> u16 {
    node.client().send(&HttpRequest::put(&format!("{BUCKET}/{key}"), node.banner())).status
}

#[test]
fn a_datacenter_serves_alone_and_receives_the_others_writes_afterwards() {
    let apart = |options| ClusterOptions { datacenters: 2, ..options };
    let Some(cluster) = TestCluster::start_with(2, apart) else { return };
    let (one, other) = (gateway(&cluster, 1), gateway(&cluster, 2));
    one.admin().active_type("sides", r#"{"props":{"allow_mult":true}}"#);
    one.admin().active_type("strong", r#"{"props":{"consistent":true}}"#);
    assert_eq!((write(&one, "before"), write(&one, "both"), write(&other, "both")), (204, 204, 204));
    wait("the other reads what one wrote", FOLLOWED, || status(&other, "before") == 200);
    wait("both writes are siblings", FOLLOWED, || [&one, &other].iter().all(|node| status(node, "both") == 300));
    other.client().put(STRONG, "of all").expect(204);
    assert_eq!(one.client().get(STRONG).expect(200).text(), "of all");

    cluster.node(2).kill().unwrap();
    wait("one goes on alone", FOLLOWED, || write(&one, "alone") == 204);
    assert_eq!((status(&one, "before"), status(&one, "alone")), (200, 200));
    assert_eq!(one.client().get(STRONG).status, 503, "a consistent read needs both datacenters");
    assert_eq!(status(&other, "before"), 503, "a read needs a copy in its own datacenter");

    cluster.node(2).start().unwrap();
    wait("the other follows", FOLLOWED, || status(&other, "alone") == 200);
    wait("consistent reads succeed again", FOLLOWED, || one.client().get(STRONG).status == 200);
}
