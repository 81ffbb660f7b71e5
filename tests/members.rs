//! Several gateways over one cluster: each shows the changes of the others, and a stopped or killed gateway serves nothing
//! stale. Runs with `LARDER_TEST_ENGINE=cassandra`. Times are printed; only very long ones fail a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, runs in real time, and prints its measurements"
)]

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{
    Home, HttpClient, HttpRequest, HttpResponse, LarderNode, NamedKeyspaces, S3Client, TestEngine, WebhookReceiver,
    wait,
};
use larder_cassandra_nodes::CqlConnection;
use serde_json::json;

/// The longest time until other gateways show a change, on any machine; two seconds are usual.
const SEEN_MAX: Duration = Duration::from_secs(10);
/// The longest wait for a heartbeat to expire.
const EXPIRED_MAX: Duration = Duration::from_secs(60);
/// A gateway that was stopped for less than this is still a member: its heartbeat is valid for ten seconds.
const RUNNING: Duration = Duration::from_secs(7);

/// Two gateways; `None` where there is no cluster.
fn gateways(args: &[&str]) -> Option<(LarderNode, LarderNode)> {
    TestEngine::cluster()?;
    let one = LarderNode::start(&[&["--node-name", "one@h"], args].concat());
    let two = one.beside(&[&["--node-name", "two@h"], args].concat());
    Some((one, two))
}

fn allow_mult(client: &mut HttpClient, kind: &str) -> bool {
    client.get(&format!("/types/{kind}/buckets/b/props")).expect(200).json()["props"]["allow_mult"] == true
}

/// Sends a request to a stopped gateway, and continues the gateway while the request waits.
fn send_to_stopped(node: &LarderNode, request: &HttpRequest) -> HttpResponse {
    let mut client = node.client();
    thread::scope(|scope| {
        let asked = scope.spawn(move || client.send(request));
        thread::sleep(Duration::from_millis(300));
        node.cont();
        asked.join().expect("it is answered")
    })
}

#[test]
fn a_change_through_one_gateway_shows_at_the_other() {
    let Some((one, two)) = gateways(&[]) else { return };
    one.admin().active_type("t", r#"{"props":{"allow_mult":true}}"#);
    let mut other = two.client();
    other.put("/types/t/buckets/b/keys/k", "v").expect(204);
    for wanted in [false, true, false] {
        let json = format!(r#"{{"props":{{"allow_mult":{wanted}}}}}"#);
        one.admin().check(&["bucket-type", "update", "t", &json], "t updated\n");
        assert_eq!(allow_mult(&mut other, "t"), wanted, "an update is answered before every running gateway shows it");
    }
    one.client().put_json("/types/t/buckets/b/props", r#"{"props":{"allow_mult":true}}"#).expect(204);
    wait("a bucket's own property through the other gateway", SEEN_MAX, || allow_mult(&mut other, "t"));
    let shown = two.admin().output(&["cluster", "status"]);
    assert!(
        shown.contains("one@h |valid |  up   | 50.0|") && shown.contains("two@h |valid |  up   | 50.0|"),
        "{shown}"
    );
    one.admin().check(&["ringready"], &two.admin().output(&["ringready"]));
}

#[test]
fn an_activated_type_has_its_keyspace_before_a_request_needs_it() {
    let Some(cluster) = TestEngine::cluster() else { return };
    let keyspaces = NamedKeyspaces::new(cluster, "place");
    let node = keyspaces.start(Home::new(), &[]);
    node.admin().active_type("t", r#"{"props":{"n_val":1}}"#);
    let named = format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{}'", keyspaces.of(1));
    let tables = CqlConnection::connect(cluster, EXPIRED_MAX).unwrap().query(&named).unwrap();
    assert!(!tables.is_empty(), "the first request would have to make the keyspace");
}

#[test]
fn a_stopped_gateway_delays_an_activation_until_it_continues() {
    let Some((one, two)) = gateways(&[]) else { return };
    for turn in 0..5 {
        let name = format!("t{turn}");
        two.stop();
        let stopped = Instant::now();
        one.admin().check(&["bucket-type", "create", &name], &format!("{name} created\n"));
        let answer = one.admin().run(&["bucket-type", "activate", &name]);
        let held = stopped.elapsed();
        two.cont();
        if held > RUNNING {
            eprintln!("this machine is too slow: trying again");
            continue;
        }
        let refused = format!("{name} has been created and is not ready to activate\n");
        assert_eq!((answer.code, answer.stdout.as_str(), answer.stderr), (Some(1), "", refused));
        wait("the stopped gateway is back and has the type", EXPIRED_MAX, || {
            one.admin().run(&["bucket-type", "status", &name]).code == Some(0)
        });
        one.admin().check(&["bucket-type", "activate", &name], &format!("{name} has been activated\n"));
        two.client().put(&format!("/types/{name}/buckets/b/keys/k"), "v").expect(204);
        return;
    }
    eprintln!("skipped: this machine is too slow to stop a gateway for less than its heartbeat holds");
}

#[test]
fn a_gateway_that_was_stopped_for_long_serves_no_stale_catalogue() {
    let Some((one, two)) = gateways(&[]) else { return };
    one.admin().active_type("t", r#"{"props":{"allow_mult":true}}"#);
    assert!(allow_mult(&mut two.client(), "t"));
    two.stop();
    one.admin().check(&["bucket-type", "create", "u"], "u created\n");
    wait("the stopped gateway's heartbeat expired", EXPIRED_MAX, || {
        one.admin().run(&["bucket-type", "activate", "u"]).code == Some(0)
    });
    let shown = one.admin().output(&["member-status"]);
    assert!(shown.contains("Valid:1 /") && !shown.contains("two@h"), "{shown}");
    one.admin().check(&["bucket-type", "update", "t", r#"{"props":{"allow_mult":false}}"#], "t updated\n");

    // The gateway answers these requests before anything else when it continues: a stale catalogue would show.
    let props = send_to_stopped(&two, &HttpRequest::get("/types/t/buckets/b/props"));
    assert!(props.status == 503 || props.expect(200).json()["props"]["allow_mult"] == false, "served a stale property");
    two.stop();
    let put = send_to_stopped(&two, &HttpRequest::put("/types/u/buckets/b/keys/k", "v"));
    assert!([204, 503].contains(&put.status), "{}: the type was activated while it was stopped", put.status);
    wait("it is a member again", SEEN_MAX, || one.admin().output(&["member-status"]).contains("two@h"));
}

#[test]
fn a_killed_gateway_restarts_at_once_and_other_gateways_accept_its_contexts() {
    let Some((mut one, two)) = gateways(&[]) else { return };
    one.admin().active_type("t", r#"{"props":{"allow_mult":true}}"#);
    one.client().put("/types/t/buckets/b/keys/k", "before").expect(204);
    one.kill();
    let begun = Instant::now();
    one.restart();
    eprintln!("from the start to the banner: {} ms", begun.elapsed().as_millis());
    one.client().put("/types/t/buckets/b/keys/k", "after").expect(204);
    let found = one.client().get("/types/t/buckets/b/keys/k").expect(300);
    let context = found.context().to_owned();
    let put = HttpRequest::put("/types/t/buckets/b/keys/k", "both").header("X-Riak-Vclock", &context);
    two.client().send(&put).expect(204);
    assert_eq!(one.client().get("/types/t/buckets/b/keys/k").expect(200).text(), "both");
}

#[test]
fn two_gateways_cannot_have_one_name() {
    let Some((one, two)) = gateways(&[]) else { return };
    let refused = one.home().beside().fails_to_start(&["--node-name", "two@h"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.lines().any(|line| line.contains("two@h") && line.contains("--node-name")), "{refused:?}");
    drop(two);
    let _again = one.beside(&["--node-name", "two@h"]);
}

#[test]
fn every_gateway_refuses_a_disabled_key() {
    let Some((one, two)) = gateways(&["--s3", "127.0.0.1:0"]) else { return };
    let made = one.admin().output(&["s3", "user", "create", "ann@example.com", "Ann", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let word = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
    let (key, secret) = (word("key_id"), word("key_secret"));
    let mut ann = S3Client::new(two.s3_at(), &key, &secret);
    ann.get("/").expect(200);
    one.admin().check(&["s3", "user", "disable", &key], &format!("{key} disabled\n"));
    wait("a disabled key is refused by the other gateway", SEEN_MAX, || {
        let answer = ann.get("/");
        let denied = answer.element("Code") == Some("AccessDenied");
        assert!(denied || answer.status == 200, "{}", answer.text());
        denied
    });
}

/// Decision 30 on a real node: a notice stands in the batch of its object, so another gateway finds it.
#[test]
fn the_notices_of_a_killed_gateway_are_sent_by_another() {
    const KEYS: usize = 24;
    /// A notice is tried again half a minute later at most.
    const DELIVERY: Duration = Duration::from_secs(120);
    let Some(cluster) = TestEngine::cluster() else { return };
    let keyspaces = NamedKeyspaces::new(cluster, "notices");
    let receiver = WebhookReceiver::start(500);
    let host = receiver.address.to_string();
    let gateway = |name: &str| keyspaces.start(Home::new(), &["--node-name", name, "--webhook-hosts", &host]);
    let (mut one, two) = (gateway("one@h"), gateway("two@h"));
    let hook = json!({"mod": "larder", "fun": "webhook", "arg": format!("http://{host}/hook")});
    let props = json!({"props": {"postcommit": [hook]}}).to_string();
    one.client().put_json("/buckets/b/props", &props).expect(204);
    for number in 0..KEYS {
        one.client().put(&format!("/buckets/b/keys/{number}"), "value").expect(204);
    }
    one.kill();
    assert!(receiver.received().is_empty());
    receiver.answer(200);
    let killed = Instant::now();
    let keys = || {
        let received = receiver.received();
        received.iter().map(|one| one.body["key"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    wait("the other gateway sends all notices", EXPIRED_MAX + DELIVERY, || keys().len() == KEYS);
    eprintln!("from the kill to the last notice: {} ms", killed.elapsed().as_millis());
    wait("no notice waits", DELIVERY, || {
        two.client().get("/metrics").expect(200).text().contains("\nlarder_webhooks_waiting 0\n")
    });
}

#[test]
fn a_large_bucket_gets_more_shards_and_every_gateway_shows_all_of_its_keys() {
    const KEYS: usize = 600;
    let Some(cluster) = TestEngine::cluster() else { return };
    let keyspaces = NamedKeyspaces::new(cluster, "split");
    let gateway = |name: &str| keyspaces.start(Home::new(), &["--node-name", name, "--index-shard-rows", "30"]);
    let nodes = [gateway("one@h"), gateway("two@h")];
    let mut clients = [nodes[0].client(), nodes[1].client()];
    let mut put = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let put = HttpRequest::put(&format!("/buckets/b/keys/{number:04}"), "v");
            clients[number % 2].send(&put.header("X-Riak-Index-n_int", &number.to_string())).expect(204);
        }
    };
    let status = || nodes[1].admin().output(&["index", "status"]);
    assert_eq!(status(), "Every bucket has one epoch of 4 shards\n");
    // As many as four shards hold; the gateways open the next epoch beside the writes that follow.
    put(0..200);
    wait("an epoch of 16 shards", EXPIRED_MAX, || status().contains("epochs of 4, 16 shards, the newest is open"));
    put(200..KEYS);
    nodes[0].client().delete("/buckets/b/keys/0000").expect(204);
    for node in &nodes {
        let found = node.client().get("/buckets/b/index/n_int/0/9999?count=true").expect(200).text();
        assert_eq!(found.trim(), format!("{{\"count\":{}}}", KEYS - 1));
        let listed = node.client().get("/buckets/b/keys?keys=true").expect(200).json();
        assert_eq!(listed["keys"].as_array().unwrap().len(), KEYS - 1);
    }
    let checked = nodes[0].admin().output(&["index", "check"]);
    assert!(checked.contains("0 terms without an index row, 0 index rows without their term"), "{checked}");
}
