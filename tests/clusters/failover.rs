//! Three nodes and two gateways under load: any one node goes and comes back, a gateway goes, two nodes go.

use std::time::{Duration, Instant};

use larder_tests::{Machines, Node, Request, Scale, figure, wait};

use crate::contention;
use crate::load::{BUCKET, Deed, Load, Sample};
use crate::plot::{self, Event, quantile_of};

/// How long after something went or came back requests may fail.
const FAIL_OVER: Duration = Duration::from_secs(20);

/// Times in which requests of some kind may fail.
struct Window {
    from: Duration,
    to: Duration,
    /// All of them, or those that need a majority alone.
    all: bool,
}

struct Story {
    load: Load,
    events: Vec<Event>,
    windows: Vec<Window>,
}

impl Story {
    /// Something happened that requests may fail of for a while: all of them when a gateway goes. When nodes go, only those
    /// that need a majority.
    fn tell(&mut self, what: impl Into<String>, all: bool) {
        let at = self.load.now();
        let what = what.into();
        eprintln!("{:>6.1} s  {what}", at.as_secs_f64());
        self.events.push((at, what));
        self.windows.push(Window { from: at, to: at + FAIL_OVER, all });
    }

    fn rest(seconds: (u64, u64)) {
        std::thread::sleep(Duration::from_secs(Scale::current().of(seconds.0, seconds.1)));
    }
}

#[test]
fn what_was_acknowledged_is_there_whatever_goes() {
    let Some(machines) = Machines::start(3) else { return };
    let one = machines.gateway(&["--s3", "127.0.0.1:0", "--node-name", "one@127.0.0.1"]);
    let mut other = machines.gateway(&["--s3", "127.0.0.1:0", "--node-name", "other@127.0.0.1"]);
    contention::all_are_served([&one, &other]);
    a_held_gateway_is_not_up(&one, &other);
    let load = Load::start([&one, &other]);
    let mut story = Story { load, events: Vec::new(), windows: Vec::new() };
    story.tell("begin", true);
    Story::rest((5, 30));
    for number in Scale::current().of(vec![2], vec![1, 2, 3, 2, 3, 1]) {
        story.tell(format!("node {number} killed"), false);
        machines.node(number).kill().unwrap();
        Story::rest((12, 60));
        machines.node(number).start().unwrap();
        story.tell(format!("node {number} back"), false);
        Story::rest((5, 60));
    }
    for _ in 0..Scale::current().of(1, 5) {
        story.tell("a gateway killed", true);
        other.kill();
        Story::rest((5, 30));
        other.restart();
        story.load.moved(1, &other);
        story.tell("the gateway back", true);
        Story::rest((5, 30));
    }
    two_down(&mut story, &machines, &one);
    let Story { load, events, windows } = story;
    let samples = load.end(&one);
    plot::write("failover", &samples, &events);
    judge(&samples, &windows);
}

/// The other gateway is not shown as up once its heartbeats stay away.
fn a_held_gateway_is_not_up(one: &Node, other: &Node) {
    other.stop();
    wait("the held gateway is not up", FAIL_OVER, || {
        let shown = one.admin().says(&["cluster", "status"]);
        shown.contains("Ring ready: false") && shown.contains("other@127.0.0.1 |down  | down! |")
    });
    other.cont();
    wait("the gateway is up again", FAIL_OVER, || one.admin().run(&["ringready"]).code == Some(0));
}

/// Commands that once contradicted each other while two nodes were down.
fn all_commands_say_the_same(gateway: &Node) {
    let admin = gateway.admin();
    let ready = admin.run(&["ringready"]);
    assert!(ready.code == Some(1) && ready.stdout.starts_with("FALSE ['"), "{}", ready.stdout);
    let ring = admin.says(&["ring-status"]);
    assert!(ring.contains("Ring Ready: false") && ring.contains("The following nodes are unreachable: ['"), "{ring}");
    let cluster = admin.says(&["cluster", "status"]);
    assert_eq!(cluster.matches("down!").count(), 2, "the two nodes: {cluster}");
    assert!(gateway.log().contains("a node of the engine is not reached"), "the log names them");
}

/// With one node of three puts go on unless `pw` forbids it, and so do reads.
fn two_down(story: &mut Story, machines: &Machines, gateway: &Node) {
    let from = story.load.now();
    story.tell("nodes 2, 3 killed", false);
    machines.node(2).kill().unwrap();
    machines.node(3).kill().unwrap();
    Story::rest((25, 60));
    let mut client = gateway.client();
    for number in 0..20 {
        let key = format!("{BUCKET}/alone-{number}");
        client.send(&Request::put(&format!("{key}?pw=0"), format!("{number}"))).expect(204);
        assert_eq!(client.get(&key).expect(200).text(), format!("{number}"));
    }
    let begun = Instant::now();
    let refused = client.send(&Request::put(&format!("{BUCKET}/strict?pw=quorum"), "x")).expect(503);
    assert_eq!(refused.text(), "PW-value unsatisfied: 1/2\n");
    let read = client.send(&Request::get(&format!("{BUCKET}/alone-1?pr=quorum"))).expect(503);
    assert_eq!(read.text(), "PR-value unsatisfied: 1/2\n");
    figure("two nodes down: pw=quorum and pr=quorum refused after", &format!("{:?}", begun.elapsed()));
    all_commands_say_the_same(gateway);
    machines.node(2).start().unwrap();
    machines.node(3).start().unwrap();
    story.tell("nodes 2, 3 back", false);
    story.windows.push(Window { from, to: story.load.now() + FAIL_OVER, all: false });
    Story::rest((15, 60));
    for number in 0..20 {
        let read = Request::get(&format!("{BUCKET}/alone-{number}?r=quorum"));
        assert_eq!(client.send(&read).expect(200).text(), format!("{number}"));
    }
}

/// Failures lie in the seconds of a fail-over, and there was something to fail.
fn judge(samples: &[Sample], windows: &[Window]) {
    let excused = |sample: &Sample| {
        let majority = matches!(sample.deed, Deed::Heavy | Deed::S3Read | Deed::S3Write);
        windows
            .iter()
            .any(|window| (window.all || majority) && sample.at + sample.took >= window.from && sample.at <= window.to)
    };
    let failed: Vec<_> = samples.iter().filter(|sample| sample.failed.is_some()).collect();
    let (requests, failures) = (samples.len().to_string(), failed.len().to_string());
    figure("three nodes, two gateways under load: requests", &requests);
    figure("three nodes, two gateways under load: requests that failed", &failures);
    for deed in [Deed::Read, Deed::Write, Deed::Heavy, Deed::S3Read, Deed::S3Write] {
        let mut took: Vec<_> =
            samples.iter().filter(|sample| sample.deed == deed && sample.failed.is_none()).map(|s| s.took).collect();
        took.sort_unstable();
        assert!(took.len() > 100, "{deed:?}: {} requests", took.len());
        let (p50, p99, most) = (quantile_of(&took, 0.5), quantile_of(&took, 0.99), quantile_of(&took, 1.0));
        figure(
            &format!("{deed:?} while nodes and gateways fail: p50, p99, longest"),
            &format!("{p50:?}, {p99:?}, {most:?}"),
        );
    }
    let unexcused: Vec<_> = failed.into_iter().filter(|sample| !excused(sample)).collect();
    assert!(unexcused.is_empty(), "{} requests failed while nothing did: {unexcused:#?}", unexcused.len());
}
