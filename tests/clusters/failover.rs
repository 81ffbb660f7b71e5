//! Three nodes and two gateways under load: each node fails and returns, then a gateway, then two nodes at once.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpRequest, LarderNode, Scale, TestCluster, figure, wait};

use crate::clusters::contention;
use crate::clusters::load::{BUCKET, Load, LoadOperation, LoadSample};
use crate::clusters::nodes_down;
use crate::clusters::plot::{self, PlotEvent, quantile_of};

/// How long requests may fail after a node or a gateway went down or came back.
const FAIL_OVER: Duration = Duration::from_secs(20);
/// The longest time until nodes that are back have the hints that were kept for them.
const HINTS_MAX: Duration = Duration::from_secs(120);

/// A time in which requests may fail.
struct FailureWindow {
    from: Duration,
    to: Duration,
    /// Whether all requests may fail, or only those that need a majority.
    all: bool,
}

struct FailoverRun {
    load: Load,
    events: Vec<PlotEvent>,
    windows: Vec<FailureWindow>,
}

impl FailoverRun {
    /// Records a fault or a repair, after which requests may fail for a while: all of them after one of a gateway, those that
    /// need a majority after one of a node.
    fn record(&mut self, what: impl Into<String>, all: bool) {
        let at = self.load.now();
        let what = what.into();
        eprintln!("{:>6.1} s  {what}", at.as_secs_f64());
        self.events.push((at, what));
        self.windows.push(FailureWindow { from: at, to: at + FAIL_OVER, all });
    }

    fn rest(seconds: (u64, u64)) {
        thread::sleep(Duration::from_secs(Scale::current().pick(seconds.0, seconds.1)));
    }
}

/// No acknowledged write is lost when nodes of this healthy cluster and its gateways fail.
pub(crate) fn loses_no_acknowledged_write(cluster: &TestCluster, gateways: &mut [LarderNode; 2]) {
    let [one, other] = gateways;
    contention::all_are_served([one, other]);
    a_paused_gateway_is_down(one, other);
    let load = Load::start([one, other]);
    let mut run = FailoverRun { load, events: Vec::new(), windows: Vec::new() };
    run.record("begin", true);
    FailoverRun::rest((5, 30));
    // In a test run the nodes fail at the end alone: a node that returns under load takes more than a minute.
    for number in Scale::current().pick(vec![], vec![1, 2, 3, 2, 3, 1]) {
        run.record(format!("node {number} killed"), false);
        cluster.node(number).kill().unwrap();
        FailoverRun::rest((12, 60));
        cluster.node(number).start().unwrap();
        run.record(format!("node {number} back"), false);
        FailoverRun::rest((5, 60));
    }
    for _ in 0..Scale::current().pick(1, 5) {
        run.record("a gateway killed", true);
        other.kill();
        FailoverRun::rest((5, 30));
        other.restart();
        run.load.set_gateway(1, other);
        run.record("the gateway back", true);
        FailoverRun::rest((5, 30));
    }
    two_down(&mut run, cluster, one);
    let FailoverRun { load, events, windows } = run;
    let samples = load.end(one);
    plot::write("failover", &samples, &events);
    judge(&samples, &windows);
}

/// A paused gateway is shown as down after its heartbeat has expired.
fn a_paused_gateway_is_down(one: &LarderNode, other: &LarderNode) {
    other.stop();
    wait("the paused gateway is down", FAIL_OVER, || {
        let shown = one.admin().output(&["cluster", "status"]);
        shown.contains("Ring ready: false") && shown.contains("other@127.0.0.1 |down  | down! |")
    });
    other.cont();
    wait("the gateway is up again", FAIL_OVER, || one.admin().run(&["ringready"]).code == Some(0));
}

/// All commands agree about the two nodes that are down.
fn commands_agree_about_down_nodes(gateway: &LarderNode) {
    let admin = gateway.admin();
    let ready = admin.run(&["ringready"]);
    assert!(ready.code == Some(1) && ready.stdout.starts_with("FALSE ['"), "{}", ready.stdout);
    let ring = admin.output(&["ring-status"]);
    assert!(ring.contains("Ring Ready: false") && ring.contains("The following nodes are unreachable: ['"), "{ring}");
    let cluster = admin.output(&["cluster", "status"]);
    assert_eq!(cluster.matches("down!").count(), 2, "the two nodes: {cluster}");
    assert!(gateway.log().contains("a node of the engine is not reached"), "the log names them");
}

/// With a node down, a type of three copies is made, and no type is said to have fewer.
fn types_are_judged_by_the_nodes_that_exist(gateway: &LarderNode) {
    let admin = gateway.admin();
    admin.active_type("three", r#"{"props":{"n_val":3}}"#);
    let status = admin.output(&["bucket-type", "status", "three"]);
    assert!(status.contains("n_val: 3") && !status.contains("copies"), "{status}");
}

/// With one node of three, puts and reads succeed unless `pw` or `pr` forbids them.
fn two_down(run: &mut FailoverRun, cluster: &TestCluster, gateway: &LarderNode) {
    nodes_down::prepare(gateway);
    run.record("node 3 killed", false);
    cluster.node(3).kill().unwrap();
    nodes_down::answer_as_the_table_says(gateway, 1);
    types_are_judged_by_the_nodes_that_exist(gateway);
    let from = run.load.now();
    run.record("node 2 killed", false);
    cluster.node(2).kill().unwrap();
    nodes_down::answer_as_the_table_says(gateway, 2);
    FailoverRun::rest((0, 60));
    let mut client = gateway.client();
    for number in 0..20 {
        let key = format!("{BUCKET}/alone-{number}");
        client.send(&HttpRequest::put(&format!("{key}?pw=0"), format!("{number}"))).expect(204);
        assert_eq!(client.get(&key).expect(200).text(), format!("{number}"));
    }
    let begun = Instant::now();
    let refused = client.send(&HttpRequest::put(&format!("{BUCKET}/strict?pw=quorum"), "x")).expect(503);
    assert_eq!(refused.text(), "PW-value unsatisfied: 1/2\n");
    let read = client.send(&HttpRequest::get(&format!("{BUCKET}/alone-1?pr=quorum"))).expect(503);
    assert_eq!(read.text(), "PR-value unsatisfied: 1/2\n");
    figure("two nodes down: pw=quorum and pr=quorum refused after", &format!("{:?}", begun.elapsed()));
    commands_agree_about_down_nodes(gateway);
    thread::scope(|scope| {
        for number in [2, 3] {
            scope.spawn(move || cluster.node(number).start().unwrap());
        }
    });
    run.record("nodes 2, 3 back", false);
    run.windows.push(FailureWindow { from, to: run.load.now() + FAIL_OVER, all: false });
    FailoverRun::rest((15, 60));
    for number in 0..20 {
        let read = HttpRequest::get(&format!("{BUCKET}/alone-{number}?r=quorum"));
        // One node has them; until its hints arrive, the other two are a quorum without them.
        wait("the nodes that are back have what one took alone", HINTS_MAX, || client.send(&read).status == 200);
        assert_eq!(client.send(&read).expect(200).text(), format!("{number}"));
    }
}

/// Checks that requests failed only after a fault or a repair, and that each kind had enough requests.
fn judge(samples: &[LoadSample], windows: &[FailureWindow]) {
    let may_fail = |sample: &LoadSample| {
        let majority =
            matches!(sample.operation, LoadOperation::Heavy | LoadOperation::S3Read | LoadOperation::S3Write);
        windows
            .iter()
            .any(|window| (window.all || majority) && sample.at + sample.took >= window.from && sample.at <= window.to)
    };
    let failed: Vec<_> = samples.iter().filter(|sample| sample.failed.is_some()).collect();
    let (requests, failures) = (samples.len().to_string(), failed.len().to_string());
    figure("three nodes, two gateways under load: requests", &requests);
    figure("three nodes, two gateways under load: requests that failed", &failures);
    for operation in
        [LoadOperation::Read, LoadOperation::Write, LoadOperation::Heavy, LoadOperation::S3Read, LoadOperation::S3Write]
    {
        let mut took: Vec<_> = samples
            .iter()
            .filter(|sample| sample.operation == operation && sample.failed.is_none())
            .map(|s| s.took)
            .collect();
        took.sort_unstable();
        // Few are enough: how many there are is the machine's speed, and nothing that can be wrong.
        assert!(took.len() >= 10, "{operation:?}: {} requests", took.len());
        let (p50, p99, most) = (quantile_of(&took, 0.5), quantile_of(&took, 0.99), quantile_of(&took, 1.0));
        figure(
            &format!("{operation:?} while nodes and gateways fail: p50, p99, longest"),
            &format!("{p50:?}, {p99:?}, {most:?}"),
        );
    }
    let unexpected: Vec<_> = failed.into_iter().filter(|sample| !may_fail(sample)).collect();
    assert!(unexpected.is_empty(), "{} requests failed without a fault: {unexpected:#?}", unexpected.len());
}
