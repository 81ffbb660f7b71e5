//! A network partition: values that both sides wrote become siblings, no other key has siblings, and deleted keys stay deleted.
//!
//! A paused side (SIGSTOP) receives nothing, and drops the messages that are too old when it continues. One side works first,
//! then the other, so neither sees the other's writes, as in a partitioned network.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::harness::{HttpRequest, LarderNode, Scale, TestCluster};

const BUCKET: &str = "/types/sides/buckets/cut/keys";
/// Keys of each kind.
const KEYS: usize = 15;
/// The time until nodes drop messages from their pause, and other nodes have noticed the pause.
const SILENCE: Duration = Duration::from_secs(15);
/// The longest time until every hint is delivered.
const HEALED: Duration = Duration::from_secs(120);

/// The kinds of keys: what each side does to them while it is alone.
const KINDS: [(&str, SideAction, SideAction); 5] = [
    ("both", SideAction::Write, SideAction::Write),
    ("left", SideAction::Write, SideAction::Nothing),
    ("right", SideAction::Nothing, SideAction::Write),
    ("gone", SideAction::Delete, SideAction::Nothing),
    ("kept", SideAction::Delete, SideAction::Write),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideAction {
    Nothing,
    Write,
    Delete,
}

#[test]
fn keys_that_both_sides_wrote_have_siblings_and_no_others() {
    if Scale::current() == Scale::Test {
        eprintln!("skipped: four minutes, `cargo xtask soak` runs it; the simulation cuts networks in every run");
        return;
    }
    let Some(cluster) = TestCluster::start(3) else { return };
    let left = cluster.gateway(&["--node-name", "left@127.0.0.1"]);
    let right = cluster.gateway(&["--node-name", "right@127.0.0.1"]);
    left.admin().active_type("sides", r#"{"props":{"allow_mult":true}}"#);
    let mut contexts = Vec::new();
    for (kind, ..) in KINDS {
        for number in 0..KEYS {
            let target = format!("{BUCKET}/{kind}-{number}");
            left.client().send(&HttpRequest::put(&format!("{target}?w=all"), "<before>")).expect(204);
            let read = left.client().get(&target).expect(200);
            contexts.push((kind, target, read.context().to_owned()));
        }
    }
    hold(&cluster, &[2, 3], true);
    side(&left, "left", &contexts, |(_, action, _)| action);
    hold(&cluster, &[1], true);
    hold(&cluster, &[2, 3], false);
    std::thread::sleep(SILENCE);
    side(&right, "right", &contexts, |(_, _, action)| action);
    hold(&cluster, &[1], false);
    let deadline = Instant::now() + HEALED;
    loop {
        let wrong = differences(&left, &contexts);
        match wrong.first() {
            None => break,
            Some(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_secs(2)),
            Some(first) => panic!("{} keys have wrong values; {first}", wrong.len()),
        }
    }
    // Late hints must change no key.
    std::thread::sleep(SILENCE);
    assert_eq!(differences(&right, &contexts), Vec::<String>::new());
}

fn hold(cluster: &TestCluster, nodes: &[usize], held: bool) {
    for number in nodes {
        let node = cluster.node(*number);
        if held { node.stop() } else { node.cont() }.unwrap();
    }
}

/// One side does its share with the contexts from before the partition. It retries until it notices that it is alone.
fn side(
    gateway: &LarderNode,
    name: &str,
    contexts: &[(&str, String, String)],
    share: impl Fn((&str, SideAction, SideAction)) -> SideAction,
) {
    for (kind, target, context) in contexts {
        let action = share(*KINDS.iter().find(|(name, ..)| name == kind).expect("a kind"));
        let request = match action {
            SideAction::Nothing => continue,
            SideAction::Write => HttpRequest::put(target, format!("<{name}>")),
            SideAction::Delete => HttpRequest::new("DELETE", target),
        };
        let request = request.header("X-Riak-Vclock", context);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = gateway.client().try_send(&request).map_or(0, |answer| answer.status);
            if matches!(status, 204 | 404) {
                break;
            }
            assert!(Instant::now() < deadline, "{name}: {target} is answered {status}");
        }
    }
}

/// The keys whose values differ from the result of both shares.
fn differences(gateway: &LarderNode, contexts: &[(&str, String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, target, _) in contexts {
        let (_, left, right) = *KINDS.iter().find(|(name, ..)| name == kind).expect("a kind");
        let mut expected: BTreeSet<&str> = BTreeSet::new();
        expected.extend((left == SideAction::Write).then_some("left"));
        expected.extend((right == SideAction::Write).then_some("right"));
        let read =
            HttpRequest::get(&format!("{target}?r=quorum&pr=quorum")).header("Accept", "multipart/mixed, */*;q=0.5");
        let answer = gateway.client().send(&read);
        let text = answer.text();
        let texts = text.split('<').skip(1).filter_map(|rest| Some(rest.split_once('>')?.0));
        // Parts have links, too.
        let found: Vec<&str> = texts.filter(|text| !text.starts_with('/')).collect();
        let known = matches!(answer.status, 200 | 300 | 404);
        if !known || found.iter().copied().collect::<BTreeSet<_>>() != expected || found.len() != expected.len() {
            wrong.push(format!("{target} is {} {found:?}, not {expected:?}", answer.status));
        }
    }
    wrong
}
