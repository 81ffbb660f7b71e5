//! What each kind of request answers with one node of three down and with two, and how fast: the table of docs/operations.md.
//!
//! ```text
//! one down   no request that a quorum can answer is refused
//! two down   the last node answers what needs one copy; all else is refused at once, not after a wait
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clusters::load::BUCKET;
use crate::clusters::plot::quantile_of;
use crate::harness::{HttpClient, HttpRequest, HttpResponse, LarderNode, S3Client, figure};

/// Time in which a gateway learns that nodes do not answer.
const LEARNED: Duration = Duration::from_secs(5);
/// How long each kind of request is sent, before and after that.
const MEASURED: Duration = Duration::from_secs(3);
/// Pause between two requests of one kind: nodes that share their processors with the test are not to be busy.
const PAUSE: Duration = Duration::from_millis(100);

const SETS: &str = "/types/rows/buckets/b/datatypes";
const COUNTERS: &str = "/types/tallies/buckets/b/datatypes";
const STRONG: &str = "/types/first/buckets/down/keys";
const S3_BUCKET: &str = "/down";
/// Objects that deletes remove, one each.
const DOOMED: usize = 400;

/// The clients of one kind of request, and the context of its last answer.
struct DownClient {
    http: HttpClient,
    s3: S3Client,
    context: Option<String>,
}

/// A kind of request: its name, the statuses with one node down and with two, and how it is sent; each has a number of its own.
type RequestKind = (&'static str, u16, u16, fn(&mut DownClient, usize) -> HttpResponse);

/// Every kind of request.
const KINDS: &[RequestKind] = &[
    ("read", 200, 200, |at, _| at.http.get(&format!("{BUCKET}/down"))),
    ("read with r=all", 200, 200, |at, _| at.http.get(&format!("{BUCKET}/down?r=all"))),
    ("write", 204, 204, |at, number| at.put(&format!("{BUCKET}/down-{number}"), 100)),
    ("write with pw=quorum", 204, 503, |at, number| at.put(&format!("{BUCKET}/strict-{number}?pw=quorum"), 100)),
    ("write that replaces a term", 200, 200, |at, number| at.replace_term("small", 100, number)),
    ("write of 20 kB that replaces a term", 200, 503, |at, number| at.replace_term("large", 20_000, number)),
    ("delete", 204, 503, |at, number| at.http.delete(&format!("{BUCKET}/doomed-{}", number % DOOMED))),
    ("write of a consistent key", 204, 503, |at, number| at.put(&format!("{STRONG}/{number}"), 100)),
    ("counter: an increment", 204, 503, |at, _| at.update(&format!("{COUNTERS}/one"), r#"{"increment":1}"#)),
    ("set: an addition", 204, 503, |at, number| {
        at.update(&format!("{SETS}/more"), &format!(r#"{{"add":"e{number}"}}"#))
    }),
    ("set: a read", 200, 503, |at, _| at.http.get(&format!("{SETS}/one"))),
    ("index query", 200, 503, |at, _| at.http.get("/types/kept/buckets/load/index/down_bin/a/z?max_results=5")),
    ("list of keys", 200, 503, |at, _| at.http.get("/types/kept/buckets/few/keys?keys=true")),
    ("MapReduce over a key", 200, 200, |at, _| at.map()),
    ("S3: PutObject", 200, 503, |at, number| at.s3.put(&format!("{S3_BUCKET}/key-{number}"), "x")),
    ("S3: GetObject", 200, 503, |at, _| at.s3.get(&format!("{S3_BUCKET}/one"))),
    ("S3: ListObjectsV2", 200, 503, |at, _| at.s3.get(&format!("{S3_BUCKET}?list-type=2&max-keys=5"))),
];

impl DownClient {
    fn new(gateway: &LarderNode) -> Self {
        Self { http: gateway.client(), s3: gateway.s3_admin(), context: None }
    }

    fn put(&mut self, target: &str, bytes: usize) -> HttpResponse {
        self.http.send(&HttpRequest::put(target, vec![b'x'; bytes]).header("Content-Type", "text/plain"))
    }

    /// Writes a key with a term that its last write did not have, by the context of that.
    fn replace_term(&mut self, key: &str, bytes: usize, number: usize) -> HttpResponse {
        let request = HttpRequest::put(&format!("{BUCKET}/{key}?returnbody=true"), vec![b'x'; bytes])
            .header("Content-Type", "text/plain")
            .header("x-riak-index-down_bin", &format!("t{number}"));
        let request = self.context.iter().fold(request, |request, context| request.header("X-Riak-Vclock", context));
        let answer = self.http.send(&request);
        if let Some(context) = answer.header("X-Riak-Vclock") {
            self.context = Some(context.to_owned());
        }
        answer
    }

    fn update(&mut self, target: &str, operation: &str) -> HttpResponse {
        self.http.send(&HttpRequest::post_json(target, operation))
    }

    fn map(&mut self) -> HttpResponse {
        let map = r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}"#;
        let job = format!(r#"{{"inputs":[["few","key-0","","kept"]],"query":[{map}]}}"#);
        self.http.send(&HttpRequest::post_json("/mapred", &job))
    }
}

/// Writes what the requests need.
pub(crate) fn prepare(gateway: &LarderNode) {
    let admin = gateway.admin();
    for (name, datatype) in [("tallies", "counter"), ("rows", "set")] {
        admin.active_type(name, &format!(r#"{{"props":{{"datatype":"{datatype}"}}}}"#));
    }
    let mut client = DownClient::new(gateway);
    client.put(&format!("{BUCKET}/down"), 100).expect(204);
    for number in 0..DOOMED {
        client.put(&format!("{BUCKET}/doomed-{number}"), 100).expect(204);
    }
    for number in 0..3 {
        client.put(&format!("/types/kept/buckets/few/keys/key-{number}"), 100).expect(204);
    }
    client.update(&format!("{SETS}/one"), r#"{"add":"e"}"#).expect(204);
    client.s3.put(S3_BUCKET, "").expect(200);
    client.s3.put(&format!("{S3_BUCKET}/one"), "x").expect(200);
}

/// Every kind of request is answered as its row says, once the gateway knows of the nodes that have just gone `down`.
pub(crate) fn answer_as_the_table_says(gateway: &LarderNode, down: usize) {
    let numbers = AtomicUsize::new(down * 1_000_000);
    let gone = Instant::now();
    let at_once = measure(gateway, &numbers);
    thread::sleep(LEARNED.saturating_sub(gone.elapsed()));
    let later = measure(gateway, &numbers);
    for (name, one, two, _) in KINDS {
        let expected = if down == 1 { *one } else { *two };
        let other = later[name].iter().filter(|answer| !is_expected(answer.status, expected));
        let other: Vec<String> = other.map(|answer| format!("{} {}", answer.status, answer.text)).collect();
        assert!(other.is_empty(), "{down} down, {name}: not {expected}, but {other:#?}");
        let figures = [&at_once, &later].map(|answers| show(&answers[name]));
        figure(&format!("nodes down: {down}, {name}: at once, after five seconds"), &figures.join("; "));
    }
}

/// A delete may find its key gone, and clients may have left siblings.
fn is_expected(status: u16, expected: u16) -> bool {
    status == expected || matches!((expected, status), (204, 404) | (200, 300))
}

/// An answer and its latency.
struct Answered {
    status: u16,
    took: Duration,
    text: String,
}

/// Sends requests of every kind at the same time.
fn measure(gateway: &LarderNode, numbers: &AtomicUsize) -> BTreeMap<&'static str, Vec<Answered>> {
    thread::scope(|scope| {
        let running: Vec<_> = KINDS
            .iter()
            .map(|(name, _, _, send)| {
                let mut client = DownClient::new(gateway);
                (
                    *name,
                    scope.spawn(move || {
                        let (begun, mut answers) = (Instant::now(), Vec::new());
                        while begun.elapsed() < MEASURED {
                            let sent = Instant::now();
                            let answer = send(&mut client, numbers.fetch_add(1, Ordering::Relaxed));
                            let text = answer.text().chars().take(80).collect();
                            answers.push(Answered { status: answer.status, took: sent.elapsed(), text });
                            thread::sleep(PAUSE);
                        }
                        answers
                    }),
                )
            })
            .collect();
        running.into_iter().map(|(name, requests)| (name, requests.join().expect("requests"))).collect()
    })
}

/// The statuses, the median and the longest latency of answers.
fn show(answers: &[Answered]) -> String {
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for answer in answers {
        *statuses.entry(answer.status).or_default() += 1;
    }
    let mut took: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    took.sort_unstable();
    let [median, longest] = [0.5, 1.0].map(|share| quantile_of(&took, share).as_millis());
    format!("{statuses:?} {median} ms, {longest} ms")
}
