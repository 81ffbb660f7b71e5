//! Several gateways over one cluster: what one changes the others show, and what becomes of one that is stopped or killed.
//! Runs with `LARDER_TEST_ENGINE=cassandra`; times are printed, and no test is about them unless they are far off.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, runs in real time, and says what it measured"
)]

use std::thread;
use std::time::{Duration, Instant};

use larder_cassandra_nodes::Cql;
use larder_tests::{Client, Engine, Home, Node, OwnKeyspaces, Request, Response, S3, element, wait};

/// A change that takes longer to be seen elsewhere is a failure on any machine; it should take two seconds at most.
const SEEN_MAX: Duration = Duration::from_secs(10);
/// How long anything may take that waits for a heartbeat to expire.
const EXPIRED_MAX: Duration = Duration::from_secs(60);
/// A gateway that was stopped for less than this counts as running: its heartbeat holds for ten seconds.
const RUNNING: Duration = Duration::from_secs(7);

/// Two gateways; `None` where there is no cluster.
fn gateways(args: &[&str]) -> Option<(Node, Node)> {
    Engine::cluster()?;
    let one = Node::start(&[&["--node-name", "one@h"], args].concat());
    let two = one.beside(&[&["--node-name", "two@h"], args].concat());
    Some((one, two))
}

fn allow_mult(client: &mut Client, kind: &str) -> bool {
    client.get(&format!("/types/{kind}/buckets/b/props")).expect(200).json()["props"]["allow_mult"] == true
}

/// Sends a request to a gateway that is stopped, and lets it go on once the request waits for it.
fn ask_the_stopped(node: &Node, request: &Request) -> Response {
    let mut client = node.client();
    thread::scope(|scope| {
        let asked = scope.spawn(move || client.send(request));
        thread::sleep(Duration::from_millis(300));
        node.cont();
        asked.join().expect("it is answered")
    })
}

#[test]
fn what_one_gateway_changes_the_other_shows() {
    let Some((one, two)) = gateways(&[]) else { return };
    one.admin().active_type("t", r#"{"props":{"allow_mult":true}}"#);
    let mut other = two.client();
    other.put("/types/t/buckets/b/keys/k", "v").expect(204);
    for wanted in [false, true, false] {
        let json = format!(r#"{{"props":{{"allow_mult":{wanted}}}}}"#);
        one.admin().check(&["bucket-type", "update", "t", &json], "t updated\n");
        assert_eq!(allow_mult(&mut other, "t"), wanted, "an update answers when every running gateway shows it");
    }
    one.client().put_json("/types/t/buckets/b/props", r#"{"props":{"allow_mult":true}}"#).expect(204);
    wait("a bucket's own property through the other gateway", SEEN_MAX, || allow_mult(&mut other, "t"));
    let shown = two.admin().says(&["cluster", "status"]);
    assert!(
        shown.contains("one@h |valid |  up   | 50.0|") && shown.contains("two@h |valid |  up   | 50.0|"),
        "{shown}"
    );
    one.admin().check(&["ringready"], &two.admin().says(&["ringready"]));
}

#[test]
fn an_activated_type_has_its_keyspace_before_a_request_needs_it() {
    let Some(cluster) = Engine::cluster() else { return };
    let keyspaces = OwnKeyspaces::new(cluster, "place");
    let node = keyspaces.start(Home::new(), &[]);
    node.admin().active_type("t", r#"{"props":{"n_val":1}}"#);
    let named = format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{}'", keyspaces.of(1));
    let tables = Cql::connect(cluster, EXPIRED_MAX).unwrap().query(&named).unwrap();
    assert!(!tables.is_empty(), "the first request would have to make it");
}

#[test]
fn a_stopped_gateway_holds_activation_back_until_it_is_back() {
    let Some((one, two)) = gateways(&[]) else { return };
    for turn in 0..5 {
        let name = format!("t{turn}");
        two.stop();
        let stopped = Instant::now();
        one.admin().check(&["bucket-type", "create", &name], &format!("{name} created\n"));
        let answer = one.admin().run(&["bucket-type", "activate", &name]);
        let told = stopped.elapsed();
        two.cont();
        if told > RUNNING {
            eprintln!("this machine is too slow just now: once more");
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
fn a_gateway_that_was_stopped_for_long_serves_nothing_of_what_it_knew() {
    let Some((one, two)) = gateways(&[]) else { return };
    one.admin().active_type("t", r#"{"props":{"allow_mult":true}}"#);
    assert!(allow_mult(&mut two.client(), "t"));
    two.stop();
    one.admin().check(&["bucket-type", "create", "u"], "u created\n");
    wait("the stopped gateway's heartbeat expired", EXPIRED_MAX, || {
        one.admin().run(&["bucket-type", "activate", "u"]).code == Some(0)
    });
    let shown = one.admin().says(&["member-status"]);
    assert!(shown.contains("Valid:1 /") && !shown.contains("two@h"), "{shown}");
    one.admin().check(&["bucket-type", "update", "t", r#"{"props":{"allow_mult":false}}"#], "t updated\n");

    // The first thing it does after it woke up is to answer these.
    let props = ask_the_stopped(&two, &Request::get("/types/t/buckets/b/props"));
    assert!(props.status == 503 || props.expect(200).json()["props"]["allow_mult"] == false, "served what was before");
    two.stop();
    let put = ask_the_stopped(&two, &Request::put("/types/u/buckets/b/keys/k", "v"));
    assert!([204, 503].contains(&put.status), "{}: the type was activated while it was stopped", put.status);
    wait("it is a member again", SEEN_MAX, || one.admin().says(&["member-status"]).contains("two@h"));
}

#[test]
fn a_killed_gateway_is_back_at_once_and_its_contexts_are_taken_everywhere() {
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
    let put = Request::put("/types/t/buckets/b/keys/k", "both").header("X-Riak-Vclock", &context);
    two.client().send(&put).expect(204);
    assert_eq!(one.client().get("/types/t/buckets/b/keys/k").expect(200).text(), "both");
}

#[test]
fn a_name_is_one_gateways() {
    let Some((one, two)) = gateways(&[]) else { return };
    let refused = one.home().beside().fails_to_start(&["--node-name", "two@h"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.lines().any(|line| line.contains("two@h") && line.contains("--node-name")), "{refused:?}");
    drop(two);
    let _again = one.beside(&["--node-name", "two@h"]);
}

#[test]
fn a_key_that_is_disabled_is_refused_by_every_gateway() {
    let Some((one, two)) = gateways(&["--s3", "127.0.0.1:0"]) else { return };
    let made = one.admin().says(&["s3", "user", "create", "ann@example.com", "Ann", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let word = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
    let (key, secret) = (word("key_id"), word("key_secret"));
    let mut ann = S3::with_key(two.s3_at(), &key, &secret);
    ann.get("/").expect(200);
    one.admin().check(&["s3", "user", "disable", &key], &format!("{key} disabled\n"));
    wait("a disabled key is refused by the other gateway", SEEN_MAX, || {
        let answer = ann.get("/");
        let denied = element(&answer.text(), "Code").as_deref() == Some("AccessDenied");
        assert!(denied || answer.status == 200, "{}", answer.text());
        denied
    });
}
