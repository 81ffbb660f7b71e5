//! What operations ask of a cluster: the table in docs/operations.md, counted by the driver. Runs with
//! `LARDER_TEST_ENGINE=cassandra`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use larder_tests::{Client, Engine, Node, Request, S3};

/// Times that each operation is done: heartbeats and sweeps, a few in a second, are noise beside it.
const TIMES: u64 = 150;
/// Bytes of a body of three blocks.
const LARGE: usize = 3 * 256 * 1024 - 1;

const PLAIN: &str = "/buckets/b/keys";
const SIBLINGS: &str = "/types/sib/buckets/b/keys";
const STRONG: &str = "/types/strong/buckets/b/keys";

struct World {
    client: Client,
    s3: S3,
    /// What took more or fewer requests than is written.
    wrong: Vec<String>,
}

/// Requests that were sent to the nodes so far.
fn sent(client: &mut Client) -> u64 {
    let metrics = client.get("/metrics").expect(200).text();
    let found = metrics.lines().find_map(|line| line.strip_prefix("larder_cassandra_requests_total "));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    found.map(|number| number.parse::<f64>().expect("a number") as u64).expect("a gateway counts its requests")
}

impl World {
    /// Notes an operation that does not take so many requests, give or take the noise.
    fn takes(&mut self, what: &str, wanted: u64, mut operation: impl FnMut(&mut Self, u64)) {
        let before = sent(&mut self.client);
        for number in 0..TIMES {
            operation(self, number);
        }
        let each = (sent(&mut self.client) - before + TIMES / 2) / TIMES;
        if each != wanted {
            self.wrong.push(format!("{what}: {each}, not {wanted}"));
        }
    }
}

#[test]
fn operations_ask_the_cluster_as_often_as_is_written() {
    if Engine::cluster().is_none() {
        return;
    }
    let node = Node::start(&["--s3", "127.0.0.1:0"]);
    node.admin().active_type("sib", r#"{"props":{"allow_mult":true}}"#);
    node.admin().active_type("strong", r#"{"props":{"consistent":true}}"#);
    let mut world = World { client: node.client(), s3: S3::admin(&node), wrong: Vec::new() };
    world.s3.put("/things", "").expect(200);
    world.client.put(&format!("{SIBLINGS}/first"), "v").expect(204);
    key_value(&mut world);
    objects(&mut world);
    assert!(world.wrong.is_empty(), "{:#?}", world.wrong);
}

fn key_value(world: &mut World) {
    let put = |world: &mut World, target: &str, body: Vec<u8>| drop(world.client.put(target, body).expect(204));
    world.takes("a put that needs no read", 2, |w, n| put(w, &format!("{SIBLINGS}/{n}"), vec![1; 100]));
    world.takes("a put that reads first", 3, |w, n| put(w, &format!("{PLAIN}/{n}"), vec![1; 100]));
    world.takes("a get", 1, |w, n| drop(w.client.get(&format!("{PLAIN}/{n}")).expect(200)));
    world.takes("a get and a put with its context", 3, |w, n| {
        let target = format!("{SIBLINGS}/{n}");
        let found = w.client.get(&target).expect(200);
        w.client.send(&Request::put(&target, "w").header("X-Riak-Vclock", found.context())).expect(204);
    });
    world.takes("a get and a delete with its context", 3, |w, n| {
        let target = format!("{SIBLINGS}/{n}");
        let found = w.client.get(&target).expect(200);
        w.client.send(&Request::new("DELETE", &target).header("X-Riak-Vclock", found.context())).expect(204);
    });
    world.takes("a delete without a context", 3, |w, n| drop(w.client.delete(&format!("{PLAIN}/{n}")).expect(204)));
    world.takes("a put into a consistent type", 3, |w, n| put(w, &format!("{STRONG}/{n}"), vec![1; 100]));
    world.takes("a get of a consistent type", 1, |w, n| drop(w.client.get(&format!("{STRONG}/{n}")).expect(200)));
    world.takes("a put of a body of three blocks", 10, |w, n| put(w, &format!("{SIBLINGS}/large{n}"), vec![1; LARGE]));
    world.takes("a get of a body of three blocks", 5, |w, n| {
        assert_eq!(w.client.get(&format!("{SIBLINGS}/large{n}")).expect(200).body.len(), LARGE);
    });
}

fn objects(world: &mut World) {
    world.takes("S3: a put of a small object", 4, |w, n| {
        drop(w.s3.put(&format!("/things/{n}"), vec![1; 100]).expect(200))
    });
    world.takes("S3: the same again", 4, |w, n| drop(w.s3.put(&format!("/things/{n}"), vec![2; 100]).expect(200)));
    world.takes("S3: a get", 1, |w, n| drop(w.s3.get(&format!("/things/{n}")).expect(200)));
    world.takes("S3: a list of ten", 4, |w, _| drop(w.s3.get("/things?list-type=2&max-keys=10").expect(200)));
    world.takes("S3: a delete", 4, |w, n| drop(w.s3.delete(&format!("/things/{n}")).expect(204)));
    let upload = world.s3.begin("/things/parts");
    world.takes("S3: a part of one block", 9, |w, n| {
        w.s3.part("/things/parts", &upload, n as u32 + 1, vec![1; 100]);
    });
    let list = format!("/things/parts?uploadId={upload}");
    world.takes("S3: List Parts", 2, |w, _| drop(w.s3.get(&list).expect(200)));
}
