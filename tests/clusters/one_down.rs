//! One machine of each kind may go at any time.

use larder_tests::{Client, Machines};

const KEYS: usize = 20;

fn put_all(client: &mut Client, round: &str) {
    for number in 0..KEYS {
        client.put(&format!("/buckets/b/keys/{round}-{number}"), format!("{round} {number}")).expect(204);
    }
}

fn check_all(client: &mut Client, round: &str) {
    for number in 0..KEYS {
        let got = client.get(&format!("/buckets/b/keys/{round}-{number}")).expect(200);
        assert_eq!(got.text(), format!("{round} {number}"));
    }
}

#[test]
fn a_node_and_a_gateway_are_killed_and_nothing_is_lost() {
    let Some(machines) = Machines::start(3) else { return };
    let (mut one, other) = (machines.gateway(&[]), machines.gateway(&[]));
    put_all(&mut one.client(), "before");
    machines.node(2).kill().unwrap();
    put_all(&mut other.client(), "without-2");
    one.kill();
    check_all(&mut other.client(), "before");
    check_all(&mut other.client(), "without-2");
    machines.node(2).start().unwrap();
    one.restart();
    machines.node(1).kill().unwrap();
    for round in ["before", "without-2"] {
        check_all(&mut one.client(), round);
    }
}
