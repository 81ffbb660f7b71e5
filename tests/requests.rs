//! The number of requests of each operation to the cluster, as the driver counts them: the table in docs/operations.md. Runs
//! with `LARDER_TEST_ENGINE=cassandra`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use crate::harness::{HttpClient, HttpRequest, LarderNode, S3Client, TestEngine};
use serde_json::json;

/// Repetitions of each operation: beside so many, the few requests of heartbeats and sweeps are noise.
const TIMES: u64 = 150;
/// Bytes of a body of three blocks.
const LARGE: usize = 3 * 256 * 1024 - 1;

const PLAIN: &str = "/buckets/b/keys";
const SIBLINGS: &str = "/types/sib/buckets/b/keys";
const STRONG: &str = "/types/strong/buckets/b/keys";

struct RequestCounter {
    client: HttpClient,
    s3: S3Client,
    /// Operations whose number of requests differs from the table.
    wrong: Vec<String>,
}

/// The number of requests to the nodes so far.
fn requests_sent(client: &mut HttpClient) -> u64 {
    let metrics = client.get("/metrics").expect(200).text();
    let found = metrics.lines().find_map(|line| line.strip_prefix("larder_cassandra_requests_total "));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    found.map(|number| number.parse::<f64>().expect("a number") as u64).expect("a gateway counts its requests")
}

impl RequestCounter {
    /// Records the operation as wrong unless it takes `wanted` requests.
    fn expect_requests(&mut self, what: &str, wanted: u64, mut operation: impl FnMut(&mut Self, u64)) {
        let before = requests_sent(&mut self.client);
        for number in 0..TIMES {
            operation(self, number);
        }
        let each = (requests_sent(&mut self.client) - before + TIMES / 2) / TIMES;
        if each != wanted {
            self.wrong.push(format!("{what}: {each}, not {wanted}"));
        }
    }
}

#[test]
fn operations_send_as_many_requests_as_the_table_says() {
    if TestEngine::cluster().is_none() {
        return;
    }
    let node = LarderNode::start(&["--s3", "127.0.0.1:0"]);
    node.admin().active_type("sib", r#"{"props":{"allow_mult":true}}"#);
    node.admin().active_type("strong", r#"{"props":{"consistent":true}}"#);
    let mut counter = RequestCounter { client: node.client(), s3: node.s3_admin(), wrong: Vec::new() };
    counter.s3.put("/things", "").expect(200);
    counter.client.put(&format!("{SIBLINGS}/first"), "v").expect(204);
    node.admin().active_type("sets", r#"{"props":{"datatype":"set"}}"#);
    node.admin().active_type("counters", r#"{"props":{"datatype":"counter"}}"#);
    key_value(&mut counter);
    datatypes(&mut counter);
    objects(&mut counter);
    assert!(counter.wrong.is_empty(), "{:#?}", counter.wrong);
}

fn key_value(counter: &mut RequestCounter) {
    let put =
        |counter: &mut RequestCounter, target: &str, body: Vec<u8>| drop(counter.client.put(target, body).expect(204));
    counter.expect_requests("a put that needs no read", 1, |w, n| put(w, &format!("{SIBLINGS}/{n}"), vec![1; 100]));
    counter.expect_requests("a put that reads first", 2, |w, n| put(w, &format!("{PLAIN}/{n}"), vec![1; 100]));
    counter.expect_requests("a get", 1, |w, n| drop(w.client.get(&format!("{PLAIN}/{n}")).expect(200)));
    counter.expect_requests("a get and a put with its context", 2, |w, n| {
        let target = format!("{SIBLINGS}/{n}");
        let found = w.client.get(&target).expect(200);
        w.client.send(&HttpRequest::put(&target, "w").header("X-Riak-Vclock", found.context())).expect(204);
    });
    counter.expect_requests("a get and a delete with its context", 3, |w, n| {
        let target = format!("{SIBLINGS}/{n}");
        let found = w.client.get(&target).expect(200);
        w.client.send(&HttpRequest::new("DELETE", &target).header("X-Riak-Vclock", found.context())).expect(204);
    });
    counter.expect_requests("a delete without a context", 3, |w, n| {
        drop(w.client.delete(&format!("{PLAIN}/{n}")).expect(204))
    });
    counter.expect_requests("a put into a consistent type", 3, |w, n| put(w, &format!("{STRONG}/{n}"), vec![1; 100]));
    counter.expect_requests("a get of a consistent type", 1, |w, n| {
        drop(w.client.get(&format!("{STRONG}/{n}")).expect(200))
    });
    counter.expect_requests("a put of a body of three blocks", 9, |w, n| {
        put(w, &format!("{SIBLINGS}/large{n}"), vec![1; LARGE])
    });
    counter.expect_requests("a get of a body of three blocks", 5, |w, n| {
        assert_eq!(w.client.get(&format!("{SIBLINGS}/large{n}")).expect(200).body.len(), LARGE);
    });
}

fn datatypes(counter: &mut RequestCounter) {
    let set = |n: u64| format!("/types/sets/buckets/b/datatypes/{n}");
    let update = |counter: &mut RequestCounter, target: &str, document: &serde_json::Value| {
        counter.client.send(&HttpRequest::post_json(target, &document.to_string())).expect(204);
    };
    counter.expect_requests("an addition to a set", 1, |w, n| update(w, &set(n), &json!({"add": "a"})));
    counter.expect_requests("an addition to a set that is there", 1, |w, n| update(w, &set(n), &json!({"add": "b"})));
    counter.expect_requests("a read of a set", 1, |w, n| drop(w.client.get(&set(n)).expect(200)));
    counter.expect_requests("a read and a removal with its context", 4, |w, n| {
        let context = w.client.get(&set(n)).expect(200).json()["context"].clone();
        update(w, &set(n), &json!({"remove": "a", "context": context}));
    });
    counter.expect_requests("a delete of a set", 3, |w, n| {
        drop(w.client.delete(&format!("/types/sets/buckets/b/keys/{n}")).expect(204));
    });
    counter.expect_requests("an increment", 3, |w, n| {
        update(w, &format!("/types/counters/buckets/b/datatypes/{n}"), &json!(1));
    });
}

fn objects(counter: &mut RequestCounter) {
    counter.expect_requests("S3: a put of a small object", 4, |w, n| {
        drop(w.s3.put(&format!("/things/{n}"), vec![1; 100]).expect(200))
    });
    counter.expect_requests("S3: an overwrite of it", 4, |w, n| {
        drop(w.s3.put(&format!("/things/{n}"), vec![2; 100]).expect(200))
    });
    counter.expect_requests("S3: a get", 1, |w, n| drop(w.s3.get(&format!("/things/{n}")).expect(200)));
    counter
        .expect_requests("S3: a list of ten", 4, |w, _| drop(w.s3.get("/things?list-type=2&max-keys=10").expect(200)));
    counter.expect_requests("S3: a delete", 4, |w, n| drop(w.s3.delete(&format!("/things/{n}")).expect(204)));
    let upload = counter.s3.begin("/things/parts");
    counter.expect_requests("S3: a part of one block", 9, |w, n| {
        w.s3.part("/things/parts", &upload, n as u32 + 1, vec![1; 100]);
    });
    let list = format!("/things/parts?uploadId={upload}");
    counter.expect_requests("S3: List Parts", 2, |w, _| drop(w.s3.get(&list).expect(200)));
}
