//! Two sides of a cluster that do not hear of each other: what both wrote are siblings afterwards, and nothing else is; what was
//! deleted stays so.
//!
//! A side that is held (SIGSTOP) hears nothing, and what was sent to it meanwhile is too old when it goes on: first one side
//! works, then the other, so neither has seen the other's writes, as when a network is cut between them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use larder_tests::{Machines, Node, Request, Scale};

const BUCKET: &str = "/types/sides/buckets/cut/keys";
/// Keys of each kind.
const KEYS: usize = 15;
/// Until nodes drop what was sent to them while they were held, and others have noticed that they are.
const SILENCE: Duration = Duration::from_secs(15);
/// Until every hint has been delivered.
const HEALED: Duration = Duration::from_secs(120);

/// What happens to the keys of one kind: what each side does to them while it is alone.
const KINDS: [(&str, Deed, Deed); 5] = [
    ("both", Deed::Write, Deed::Write),
    ("left", Deed::Write, Deed::Nothing),
    ("right", Deed::Nothing, Deed::Write),
    ("gone", Deed::Delete, Deed::Nothing),
    ("kept", Deed::Delete, Deed::Write),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    Write,
    Delete,
}

#[test]
fn what_both_sides_wrote_are_siblings_and_nothing_else_is() {
    if Scale::current() == Scale::Test {
        eprintln!("skipped: four minutes, `cargo xtask soak` runs it; the simulation cuts networks in every run");
        return;
    }
    let Some(machines) = Machines::start(3) else { return };
    let left = machines.gateway(&["--node-name", "left@127.0.0.1"]);
    let right = machines.gateway(&["--node-name", "right@127.0.0.1"]);
    left.admin().active_type("sides", r#"{"props":{"allow_mult":true}}"#);
    let mut contexts = Vec::new();
    for (kind, ..) in KINDS {
        for number in 0..KEYS {
            let target = format!("{BUCKET}/{kind}-{number}");
            left.client().send(&Request::put(&format!("{target}?w=all"), "<before>")).expect(204);
            let read = left.client().get(&target).expect(200);
            contexts.push((kind, target, read.context().to_owned()));
        }
    }
    hold(&machines, &[2, 3], true);
    side(&left, "left", &contexts, |(_, deed, _)| deed);
    hold(&machines, &[1], true);
    hold(&machines, &[2, 3], false);
    std::thread::sleep(SILENCE);
    side(&right, "right", &contexts, |(_, _, deed)| deed);
    hold(&machines, &[1], false);
    let deadline = Instant::now() + HEALED;
    loop {
        let wrong = differences(&left, &contexts);
        match wrong.first() {
            None => break,
            Some(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_secs(2)),
            Some(first) => panic!("{} keys are not what they should be; {first}", wrong.len()),
        }
    }
    // Hints may come later still: nothing of it may change any more.
    std::thread::sleep(SILENCE);
    assert_eq!(differences(&right, &contexts), Vec::<String>::new());
}

fn hold(machines: &Machines, nodes: &[usize], held: bool) {
    for number in nodes {
        let node = machines.node(*number);
        if held { node.stop() } else { node.cont() }.unwrap();
    }
}

/// One side does its share, with what both sides saw before; it may have to try until it notices that it is alone.
fn side(gateway: &Node, name: &str, contexts: &[(&str, String, String)], share: impl Fn((&str, Deed, Deed)) -> Deed) {
    for (kind, target, context) in contexts {
        let deed = share(*KINDS.iter().find(|(name, ..)| name == kind).expect("a kind"));
        let request = match deed {
            Deed::Nothing => continue,
            Deed::Write => Request::put(target, format!("<{name}>")),
            Deed::Delete => Request::new("DELETE", target),
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

/// Keys that are not what the two shares make of them.
fn differences(gateway: &Node, contexts: &[(&str, String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, target, _) in contexts {
        let (_, left, right) = *KINDS.iter().find(|(name, ..)| name == kind).expect("a kind");
        let mut expected: BTreeSet<&str> = BTreeSet::new();
        expected.extend((left == Deed::Write).then_some("left"));
        expected.extend((right == Deed::Write).then_some("right"));
        let read = Request::get(&format!("{target}?r=quorum&pr=quorum")).header("Accept", "multipart/mixed, */*;q=0.5");
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
