//! Many clients that write one key at the same moment, through two gateways. A healthy cluster serves them all.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpClient, HttpRequest, LarderNode, Scale, figure};

/// Writers of a key.
const WRITERS: usize = 30;
const STRONG: &str = "/types/first/buckets/b/keys";

/// Every put of an S3 object succeeds; of the creators of a `consistent` key one succeeds, and the others get a 412.
pub(crate) fn all_are_served(gateways: [&LarderNode; 2]) {
    gateways[0].s3_admin().put("/contended", "").expect(200);
    let puts = Scale::current().pick(3, 20);
    let took = each_writer(|number| {
        let mut client = gateways[number % 2].s3_admin();
        let put = |round: usize| {
            let begun = Instant::now();
            client.put("/contended/key", format!("{number}-{round}")).expect(200);
            begun.elapsed()
        };
        (0..puts).map(put).collect()
    });
    longest("30 writers of one S3 key: puts, longest", &took);

    gateways[0].admin().active_type("first", r#"{"props":{"consistent":true}}"#);
    let barrier = Barrier::new(WRITERS);
    let keys = Scale::current().pick(5, 30);
    let answers = each_writer(|number| {
        let mut client = gateways[number % 2].client();
        (0..keys).map(|key| create(&mut client, &barrier, key)).collect()
    });
    for key in 0..keys {
        let created = answers.iter().filter(|(of, status, _)| (*of, *status) == (key, 204)).count();
        assert_eq!(created, 1, "key {key} was created {created} times");
    }
    longest("30 creators of one consistent key: longest", &answers.iter().map(|answer| answer.2).collect::<Vec<_>>());
}

/// Creates a key at the same moment as all other writers; returns the key, the status and the latency.
fn create(client: &mut HttpClient, barrier: &Barrier, key: usize) -> (usize, u16, Duration) {
    barrier.wait();
    let begun = Instant::now();
    let answer = client.send(&HttpRequest::put(&format!("{STRONG}/{key}"), "x"));
    assert!([204, 412].contains(&answer.status), "{} {}", answer.status, answer.text());
    (key, answer.status, begun.elapsed())
}

fn each_writer<T: Send>(work: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        running.into_iter().flat_map(|writer| writer.join().expect("a writer is served")).collect()
    })
}

fn longest(what: &str, took: &[Duration]) {
    figure(what, &format!("{}, {:?}", took.len(), took.iter().max().expect("there are some")));
}
