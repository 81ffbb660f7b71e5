//! Webhooks: each acknowledged write is received, though the receiver fails and the server is killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and runs in real time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::harness::{LarderNode, TestEngine, WebhookReceiver, wait};
use larder_testkit::pb::{PbClient, PbField, message};
use serde_json::json;

const SET_BUCKET: u8 = 21;
/// Keys of each phase.
const KEYS: usize = 40;
/// The longest wait for a delivery: pauses between tries grow to half a minute in this test.
const DELIVERY: Duration = Duration::from_secs(90);

fn webhook_props(url: &str) -> String {
    json!({"props": {"postcommit": [{"mod": "larder", "fun": "webhook", "arg": url}]}}).to_string()
}

#[test]
fn every_acknowledged_write_is_received_though_the_receiver_was_down_and_the_server_killed() {
    // Over a cluster another member takes the notices of a killed gateway over, once its heartbeat has expired.
    if !TestEngine::is_local_for("notices of a killed server are taken over before it serves again") {
        return;
    }
    let receiver = WebhookReceiver::start(500);
    let address = receiver.address;
    let host = address.to_string();
    let mut node = LarderNode::start(&["--webhook-hosts", &host]);
    let mut client = node.client();
    client.put_json("/buckets/b/props", &webhook_props(&format!("http://{host}/hook"))).expect(204);
    let mut expected = BTreeSet::new();
    let mut put = |node: &LarderNode, phase: &str| {
        let mut client = node.client();
        for number in 0..KEYS {
            let key = format!("{phase}-{number}");
            client.put(&format!("/buckets/b/keys/{key}"), "value").expect(204);
            expected.insert(format!("put {key}"));
            if number % 4 == 0 {
                client.delete(&format!("/buckets/b/keys/{key}")).expect(204);
                expected.insert(format!("delete {key}"));
            }
        }
    };
    put(&node, "failing");
    assert!(receiver.received().is_empty());
    // Down while the server is killed and started again.
    drop(receiver);
    put(&node, "down");
    node.kill();
    node.restart();
    let text = node.client().get("/metrics").expect(200).text();
    assert!(text.contains(&format!("\nlarder_webhooks_waiting {}\n", KEYS * 2 + KEYS / 2)), "{text}");
    let receiver = WebhookReceiver::start_at(address, 200);
    put(&node, "up");
    let received = || {
        let requests = receiver.received();
        let name = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        requests.iter().map(|one| format!("{} {}", name(&one.body["event"]), name(&one.body["key"]))).collect()
    };
    wait("all notices received", DELIVERY, || BTreeSet::is_subset(&expected, &received()));
    assert_eq!(received(), expected);
    // One id for each write, however often it came.
    let ids: BTreeMap<String, String> =
        receiver.received().iter().map(|one| (one.body["id"].to_string(), one.body["key"].to_string())).collect();
    assert_eq!(ids.len(), expected.len());
    wait("no notice waits", DELIVERY, || {
        node.client().get("/metrics").expect(200).text().contains("\nlarder_webhooks_waiting 0\n")
    });
}

#[test]
fn a_client_cannot_make_the_server_call_a_host_that_its_operator_did_not_name() {
    let node =
        LarderNode::start(&["--durability", "buffered", "--pb", "127.0.0.1:0", "--webhook-hosts", "hooks.test:81"]);
    let mut client = node.client();
    client.put_json("/buckets/b/props", &webhook_props("http://HOOKS.test:81/a?b=c")).expect(204);
    for (url, fault) in [
        ("http://127.0.0.1:81/", "names the host 127.0.0.1:81, which the setting --webhook-hosts does not allow"),
        ("http://hooks.test/", "names the host hooks.test:80, which the setting --webhook-hosts does not allow"),
        ("http://hooks.test.:81/", "names the host hooks.test.:81, which the setting --webhook-hosts does not allow"),
        ("http://hooks.test:81@127.0.0.1/", "has a URL with a user or a password"),
        ("http://hooks.test:81#@127.0.0.1/", "has a URL with a fragment"),
        ("http://hooks.test:81\\@127.0.0.1/", "has a URL with a user or a password"),
        ("http://hooks.test:81/\r\nHost: x", "has a URL with a character that must be %XX"),
        ("file:///etc/passwd", "has a URL that begins neither with http:// nor with https://"),
        ("https://hooks.test/", "names the host hooks.test:443, which the setting --webhook-hosts does not allow"),
        (&*format!("http://hooks.test:81/{}", "x".repeat(2048)), "has a URL of more than 2048 bytes"),
    ] {
        let refused = client.put_json("/buckets/b/props", &webhook_props(url)).expect(400).json();
        assert_eq!(refused["postcommit"], format!("unknown_hook_function: larder:webhook {fault}"), "{url}");
    }
    let early = json!({"props": {"precommit": [{"mod": "larder", "fun": "webhook", "arg": "http://hooks.test:81/"}]}});
    let refused = client.put_json("/buckets/b/props", &early.to_string()).expect(400).json();
    assert_eq!(refused["precommit"], "unknown_hook_function: larder:webhook is built in for postcommit only");
    // Types have the same rule, and a hook over protocol buffers has no argument.
    let created = node.admin().run(&["bucket-type", "create", "t", &webhook_props("http://other/")]);
    assert!(created.code == Some(1) && created.stderr.contains("--webhook-hosts"), "{}", created.stderr);
    let mut pb = PbClient::connect(node.pb());
    let function = message(&[PbField::Bytes(1, b"larder"), PbField::Bytes(2, b"webhook")]);
    let hook = message(&[PbField::Bytes(1, &function)]);
    let props = message(&[PbField::Bytes(6, &hook), PbField::Number(7, 1)]);
    let refused = pb.refused(SET_BUCKET, &[PbField::Bytes(1, b"b"), PbField::Bytes(2, &props)]);
    assert!(refused.contains("larder:webhook has another argument"), "{refused}");
}
