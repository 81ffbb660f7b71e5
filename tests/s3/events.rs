//! Events of S3 objects: each acknowledged change is received, in the order of its key, though the server is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::clients::{python_program, run};
use crate::harness::{LarderNode, S3_KEY, S3_SECRET, S3Client, WebhookReceiver, wait};

/// The longest wait for a delivery.
const DELIVERY: Duration = Duration::from_secs(60);
/// Versions of each key in a phase.
const VERSIONS: usize = 8;
const KEYS: [&str; 4] = ["a", "b/c d", "e", "f"];
const RULES: &str = "<NotificationConfiguration><QueueConfiguration><Queue>arn:minio:sqs::T:webhook</Queue>\
    <Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event></QueueConfiguration></NotificationConfiguration>";

fn node(receiver: &WebhookReceiver) -> LarderNode {
    let target = format!("T=http://{}/events", receiver.address);
    LarderNode::s3(&["--s3-event-targets", &target, "--s3-event-tokens", "T=token"])
}

/// The sequencers of the received events, by key, each event once and in the order in which it came first.
fn heard(receiver: &WebhookReceiver) -> BTreeMap<String, Vec<String>> {
    let mut heard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in receiver.received() {
        assert!(request.head.to_ascii_lowercase().contains("authorization: bearer token"), "{}", request.head);
        let sequencer = request.body["Records"][0]["s3"]["object"]["sequencer"].as_str().unwrap().to_owned();
        let of_key = heard.entry(request.body["Key"].as_str().unwrap().to_owned()).or_default();
        if !of_key.contains(&sequencer) {
            of_key.push(sequencer);
        }
    }
    heard
}

fn put_all(s3: &mut S3Client) {
    for version in 0..VERSIONS {
        for key in KEYS {
            let target = format!("/box/{}", key.replace(' ', "%20"));
            s3.call("PUT", &target, &[], format!("{version}")).expect(200);
        }
    }
}

#[test]
fn every_acknowledged_put_is_told_in_order_though_the_server_was_killed() {
    let receiver = WebhookReceiver::start(500);
    let address = receiver.address;
    let mut node = node(&receiver);
    let mut s3 = node.s3_admin();
    s3.call("PUT", "/box", &[], "").expect(200);
    s3.call("PUT", "/box?notification", &[], RULES).expect(200);
    put_all(&mut s3);
    let shown = |node: &LarderNode| node.admin().output(&["s3", "events", "list"]);
    // A run counts its own failures, and the next one may have none.
    wait("a failure is shown", DELIVERY, || shown(&node).contains("last failure at"));
    drop(receiver);
    node.kill();
    node.restart();
    let receiver = WebhookReceiver::start_at(address, 200);
    put_all(&mut node.s3_admin());
    let count = || heard(&receiver).values().map(Vec::len).sum::<usize>();
    wait("all events received", DELIVERY, || count() == 2 * VERSIONS * KEYS.len());
    for (key, sequencers) in heard(&receiver) {
        assert!(sequencers.is_sorted(), "{key}: {sequencers:?}");
    }
    let shown = shown(&node);
    assert!(shown.contains("arn:minio:sqs::T:webhook"), "{shown}");
}

#[test]
fn boto3_is_heard_across_a_kill() {
    let Some(python) = python_program("python") else { return };
    let receiver = WebhookReceiver::start(503);
    let mut node = node(&receiver);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/s3/boto3_events.py");
    let script = script.to_str().expect("a path of this repository");
    let work = |node: &LarderNode, phase: &str| {
        let port = node.s3_at().port().to_string();
        let environment = [
            ("LARDER_S3_PORT", port.as_str()),
            ("LARDER_S3_KEY", S3_KEY),
            ("LARDER_S3_SECRET", S3_SECRET),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        run(node, &python, &[script, phase], &environment);
    };
    work(&node, "first");
    node.kill();
    node.restart();
    receiver.answer(200);
    work(&node, "second");
    let names = || {
        let mut names: Vec<String> = Vec::new();
        for request in receiver.received() {
            let name =
                format!("{} {}", request.body["EventName"].as_str().unwrap(), request.body["Key"].as_str().unwrap());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.sort();
        names
    };
    let expected = [
        "s3:ObjectCreated:CompleteMultipartUpload told/first/large",
        "s3:ObjectCreated:CompleteMultipartUpload told/second/large",
        "s3:ObjectCreated:Copy told/first/copy",
        "s3:ObjectCreated:Copy told/second/copy",
        "s3:ObjectCreated:Put told/first/key ü+",
        "s3:ObjectCreated:Put told/second/key ü+",
        "s3:ObjectRemoved:Delete told/first/copy",
        "s3:ObjectRemoved:Delete told/first/key ü+",
        "s3:ObjectRemoved:Delete told/second/copy",
        "s3:ObjectRemoved:Delete told/second/key ü+",
        "s3:ObjectTagging:Put told/first/key ü+",
        "s3:ObjectTagging:Put told/second/key ü+",
    ];
    wait("all events of boto3 received", DELIVERY, || names() == expected);
}
