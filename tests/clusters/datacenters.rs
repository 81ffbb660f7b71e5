//! Two datacenters with a node and a gateway each: each goes on without the other, and gets to know afterwards what the other
//! wrote.

use std::time::Duration;

use larder_cassandra_nodes::Options;
use larder_tests::{Machines, Node, Request, wait};

const BUCKET: &str = "/types/sides/buckets/b/keys";
const STRONG: &str = "/types/strong/buckets/b/keys/k";
/// How long the other datacenter may take to follow, which a hint does when its node is known to be back.
const FOLLOWED: Duration = Duration::from_secs(120);

fn gateway(machines: &Machines, number: usize) -> Node {
    let own = format!("dc{number}");
    let at = machines.node(number).address().to_string();
    let name = format!("{own}@127.0.0.1");
    let args = ["--cassandra-datacenter", &own, "--cassandra-datacenters", "dc1,dc2", "--node-name", &name];
    machines.gateway_of(&at, &args)
}

/// What a read of a key is answered.
fn status(node: &Node, key: &str) -> u16 {
    node.client().get(&format!("{BUCKET}/{key}")).status
}

fn write(node: &Node, key: &str) -> u16 {
    node.client().send(&Request::put(&format!("{BUCKET}/{key}"), node.banner())).status
}

#[test]
fn each_of_two_datacenters_goes_on_alone_and_follows_the_other() {
    let apart = |options| Options { datacenters: 2, ..options };
    let Some(machines) = Machines::start_with(2, apart) else { return };
    let (one, other) = (gateway(&machines, 1), gateway(&machines, 2));
    one.admin().active_type("sides", r#"{"props":{"allow_mult":true}}"#);
    one.admin().active_type("strong", r#"{"props":{"consistent":true}}"#);
    assert_eq!((write(&one, "before"), write(&one, "both"), write(&other, "both")), (204, 204, 204));
    wait("the other reads what one wrote", FOLLOWED, || status(&other, "before") == 200);
    wait("what both wrote are siblings", FOLLOWED, || [&one, &other].iter().all(|node| status(node, "both") == 300));
    other.client().put(STRONG, "of all").expect(204);
    assert_eq!(one.client().get(STRONG).expect(200).text(), "of all");

    machines.node(2).kill().unwrap();
    wait("one goes on alone", FOLLOWED, || write(&one, "alone") == 204);
    assert_eq!((status(&one, "before"), status(&one, "alone")), (200, 200));
    assert_eq!(one.client().get(STRONG).status, 503, "what all decide needs all of two");
    assert_eq!(status(&other, "before"), 503, "nobody's copies stand for the own ones");

    machines.node(2).start().unwrap();
    wait("the other follows", FOLLOWED, || status(&other, "alone") == 200);
    wait("what all decide goes on", FOLLOWED, || one.client().get(STRONG).status == 200);
}
