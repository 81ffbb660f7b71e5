//! `kv-admin export` and `import` move all data from one server to another and back: checksums and the answers to clients
//! stay the same. A second test kills the servers during each transfer.
//!
//! With `LARDER_CASSANDRA=host:port` the data goes from the embedded engine to that cluster and back; without it, from one
//! embedded engine to another.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Home, HttpRequest, KvAdmin, LarderNode, NamedKeyspaces, Process, ProcessEnd, Scale, SplitMix64, figure,
};

/// The longest time of an export or an import.
const TRANSFER: Duration = Duration::from_secs(300);
const KV: &str = "/types/t/buckets/b/keys";

/// The engine of one side of a transfer.
#[derive(Debug)]
enum TransferSide {
    Local,
    Cluster(NamedKeyspaces),
}

impl TransferSide {
    /// The cluster of this run with keyspaces of its own, or the embedded engine.
    fn far() -> Self {
        match std::env::var("LARDER_CASSANDRA") {
            Ok(node) => {
                let node = node.parse().expect("LARDER_CASSANDRA is an address");
                Self::Cluster(NamedKeyspaces::new(node, "transfer"))
            }
            Err(_) => Self::Local,
        }
    }

    /// Starts a server; each has a name of its own, so that none waits for the heartbeat of a killed one to expire.
    fn start(&self, home: Home) -> LarderNode {
        static STARTS: AtomicU32 = AtomicU32::new(0);
        let number = STARTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("larder{number}@127.0.0.1");
        let args = ["--s3", "127.0.0.1:0", "--node-name", &name];
        match self {
            Self::Local => LarderNode::start_in(home, &[&args[..], &["--engine", "local"]].concat()),
            Self::Cluster(keyspaces) => keyspaces.start(home, &args),
        }
    }
}

/// The contexts, the upload and the part that a client got from the first server.
pub(crate) struct ClientContexts {
    siblings: String,
    strong: String,
    gone: String,
    upload: String,
    part: String,
}

/// Puts data of every kind, of which `keys` are plain objects.
pub(crate) fn fill(node: &LarderNode, keys: usize) -> ClientContexts {
    let (admin, mut client, mut s3) = (node.admin(), node.client(), node.s3_admin());
    let mut random = SplitMix64::new(7);
    admin.active_type("t", r#"{"props":{"n_val":1,"allow_mult":true}}"#);
    admin.active_type("once", r#"{"props":{"write_once":true}}"#);
    admin.active_type("strong", r#"{"props":{"consistent":true,"n_val":1}}"#);
    admin.check(&["bucket-type", "create", "waits"], "waits created\n");
    client.put_json("/buckets/own/props", r#"{"props":{"allow_mult":true,"r":1}}"#).expect(204);
    for key in 0..keys {
        let length = [10, 300, 3000, 20_000][key % 4];
        client.put(&format!("{KV}/{key}"), random.bytes(length)).expect(204);
    }
    for (key, length) in [("inline", 60_000), ("row", 200_000), ("file", 2_500_000)] {
        client.put(&format!("/types/t/buckets/large/keys/{key}"), random.bytes(length)).expect(204);
    }
    client.put("/buckets/own/keys/k", "default type").expect(204);
    client.put("/types/once/buckets/b/keys/k", "once").expect(204);
    client.put("/types/strong/buckets/b/keys/k", "one").expect(204);
    client.put("/types/strong/buckets/b/keys/large", random.bytes(150_000)).expect(204);
    for value in ["tea", "milk"] {
        client.put(&format!("{KV}/siblings"), value).expect(204);
    }
    client.put(&format!("{KV}/gone"), "x").expect(204);
    let gone = client.get(&format!("{KV}/gone")).context().to_owned();
    client.delete(&format!("{KV}/gone")).expect(204);

    admin.output(&["s3", "user", "create", "ann@example.com", "Ann"]);
    for bucket in ["/photos", "/kept"] {
        s3.put(bucket, "").expect(200);
    }
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/kept?versioning", versioning).expect(200);
    for (key, length) in [("small", 11), ("row", 100_000), ("file", 1_500_000)] {
        for _ in 0..2 {
            s3.put(&format!("/kept/{key}"), random.bytes(length)).expect(200);
            s3.put(&format!("/photos/{key}"), random.bytes(length)).expect(200);
        }
    }
    s3.delete("/kept/small").expect(204);
    let whole = s3.begin("/photos/parts");
    let parts = [(1, 5 * 1024 * 1024 + 3), (2, 70_000)];
    let parts = parts.map(|(number, length)| (number, s3.part("/photos/parts", &whole, number, random.bytes(length))));
    s3.complete("/photos/parts", &whole, &parts).expect(200);
    let upload = s3.begin("/photos/open");
    let part = s3.part("/photos/open", &upload, 1, random.bytes(80_000));
    let siblings = client.get(&format!("{KV}/siblings")).expect(300).context().to_owned();
    let strong = client.get("/types/strong/buckets/b/keys/k").expect(200).context().to_owned();
    ClientContexts { siblings, strong, gone, upload, part }
}

/// The answers to clients, by target.
pub(crate) fn answers(node: &LarderNode, keys: usize, held: &ClientContexts) -> BTreeMap<String, (u16, Vec<u8>)> {
    let (mut client, mut s3) = (node.client(), node.s3_admin());
    let mut answers = BTreeMap::new();
    let listing = |client: &mut crate::harness::HttpClient, target: &str| {
        let mut json = client.get(target).expect(200).json();
        for list in ["keys", "buckets"] {
            if let Some(names) = json.get_mut(list).and_then(serde_json::Value::as_array_mut) {
                names.sort_by_key(ToString::to_string);
            }
        }
        json.to_string().into_bytes()
    };
    for target in [
        "/types/t/buckets/b/keys?keys=true",
        "/types/t/buckets?buckets=true",
        "/types/once/props",
        "/buckets/own/props",
        "/types/strong/buckets/b/keys?keys=true",
    ] {
        answers.insert(target.to_owned(), (200, listing(&mut client, target)));
    }
    let mut plain: Vec<String> = (0..keys).map(|key| format!("{KV}/{key}")).collect();
    plain.extend(["siblings", "gone"].map(|key| format!("{KV}/{key}")));
    plain.extend(["inline", "row", "file"].map(|key| format!("/types/t/buckets/large/keys/{key}")));
    plain.extend(["/buckets/own/keys/k", "/types/once/buckets/b/keys/k"].map(str::to_owned));
    plain.extend(["k", "large"].map(|key| format!("/types/strong/buckets/b/keys/{key}")));
    for target in plain {
        let mut answer = client.get(&target);
        let context = answer.header("X-Riak-Vclock").unwrap_or_default().as_bytes().to_vec();
        // A tombstone is removed after three seconds, and its context with it.
        answer.body.extend(context.iter().filter(|_| answer.status != 404));
        answers.insert(target, (answer.status, answer.body));
    }
    let (open, parts) = (format!("/photos/open?uploadId={}", held.upload), ["small", "row", "file", "parts"]);
    let objects = parts
        .iter()
        .map(|key| format!("/photos/{key}"))
        .chain(["row", "file", "small"].map(|key| format!("/kept/{key}")));
    let lists =
        ["/", "/photos", "/kept?versions", "/photos?uploads", "/photos?acl", "/photos?list-type=2&prefix=r", &open];
    for target in lists.into_iter().map(str::to_owned).chain(objects) {
        let answer = s3.get(&target);
        // The body of an error holds a request id, which differs each time.
        let body = if answer.status == 200 { answer.body } else { Vec::new() };
        answers.insert(target, (answer.status, body));
    }
    answers
}

/// Fails unless both have the same answers; prints the target and the beginning of the bodies.
#[track_caller]
pub(crate) fn assert_same(one: &BTreeMap<String, (u16, Vec<u8>)>, other: &BTreeMap<String, (u16, Vec<u8>)>) {
    for (target, (status, body)) in one {
        let (found, bytes) = &other[target];
        let start = |body: &[u8]| String::from_utf8_lossy(&body[..body.len().min(600)]).into_owned();
        assert_eq!((status, body.len()), (found, bytes.len()), "{target}\n{}\n{}", start(body), start(bytes));
        assert!(body == bytes, "{target}\n{}\n{}", start(body), start(bytes));
    }
}

fn begin(node: &LarderNode, words: &[&str], dir: &Path) -> Process {
    Process::start(Command::new(KvAdmin::binary()).arg("--socket").arg(node.home().socket()).args(words).arg(dir))
}

/// Runs a command, which must succeed, and returns its stdout.
#[track_caller]
pub(crate) fn run(node: &LarderNode, words: &[&str], dir: &Path) -> String {
    let ProcessEnd { code, stdout, stderr } = begin(node, words, dir).wait_for_end(TRANSFER);
    assert_eq!(code, Some(0), "{words:?}: {stdout}{stderr}\n{}", node.log());
    stdout
}

/// The name, the count and the checksum of every table, except the usage of S3 users, which goes on changing.
pub(crate) fn checksums(stdout: &str) -> BTreeMap<String, (String, String)> {
    let lines = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let tables = lines.filter(|words| words.len() == 5 && words[4].len() == 32 && words[0] != "usage");
    let tables: BTreeMap<_, _> =
        tables.map(|words| (words[0].to_owned(), (words[1].to_owned(), words[4].to_owned()))).collect();
    assert!(tables.len() > 10, "{stdout}");
    tables
}

#[test]
fn data_is_unchanged_after_a_transfer_to_the_cluster_and_back() {
    let keys = Scale::current().pick(400, 5000);
    let (near, far) = (TransferSide::Local, TransferSide::far());
    let first = near.start(Home::new());
    let held = fill(&first, keys);
    let before = answers(&first, keys, &held);
    let (out, back) = (Home::new(), Home::new());
    let begun = Instant::now();
    let exported = run(&first, &["export"], out.path());
    figure("transfer: export from the embedded engine", &format!("{:.1?}", begun.elapsed()));
    let again = run(&first, &["export", "--verify"], out.path());
    assert_eq!(checksums(&again), checksums(&exported));
    drop(first);

    let second = far.start(Home::new());
    let begun = Instant::now();
    let imported = run(&second, &["import"], out.path());
    figure("transfer: import and verification", &format!("{:.1?}", begun.elapsed()));
    assert_eq!(checksums(&imported), checksums(&exported));
    assert!(imported.contains("verified: counts and checksums are those of the export"), "{imported}");
    std::thread::sleep(Duration::from_secs(3)); // Servers cache users for two seconds.
    assert_same(&before, &answers(&second, keys, &held));

    assert_eq!(checksums(&run(&second, &["export"], back.path())), checksums(&exported));
    let third = near.start(Home::new());
    assert_eq!(checksums(&run(&third, &["import"], back.path())), checksums(&exported));
    std::thread::sleep(Duration::from_secs(3));
    assert_same(&before, &answers(&third, keys, &held));
    drop(third);
    contexts_hold(&second, &held);
}

/// Contexts, uploads and parts of the first server work at another.
pub(crate) fn contexts_hold(node: &LarderNode, held: &ClientContexts) {
    let (mut client, mut s3) = (node.client(), node.s3_admin());
    let siblings = format!("{KV}/siblings");
    client.send(&HttpRequest::put(&siblings, "both").header("X-Riak-Vclock", &held.siblings)).expect(204);
    assert_eq!(client.get(&siblings).expect(200).text(), "both");
    let strong = "/types/strong/buckets/b/keys/k";
    client.send(&HttpRequest::put(strong, "two").header("X-Riak-Vclock", &held.strong)).expect(204);
    let refused = client.send(&HttpRequest::put(strong, "three").header("X-Riak-Vclock", &held.strong));
    assert!(refused.status >= 400, "a replaced context is accepted: {}", refused.status);
    let gone = format!("{KV}/gone");
    client.send(&HttpRequest::put(&gone, "again").header("X-Riak-Vclock", &held.gone)).expect(204);
    assert_eq!(client.get(&gone).expect(200).text(), "again");
    s3.complete("/photos/open", &held.upload, &[(1, held.part.clone())]).expect(200);
    assert_eq!(s3.get("/photos/open").expect(200).body.len(), 80_000);
    node.admin().check(&["bucket-type", "activate", "waits"], "waits has been activated\n");
}

/// Begins a command several times and kills its server at a random moment each time; then runs the command to its end.
fn with_kills(
    place: &TransferSide,
    mut node: LarderNode,
    words: &[&str],
    dir: &Path,
    random: &mut SplitMix64,
) -> (LarderNode, String) {
    let rounds = Scale::current().pick(2, 40);
    let mut killed = 0;
    for _ in 0..rounds {
        let mut command = begin(&node, words, dir);
        std::thread::sleep(Duration::from_millis(20 + random.below(900) as u64));
        killed += usize::from(command.status().is_none());
        node.kill();
        let _ = command.wait_for_end(TRANSFER);
        node = place.start(node.into_home());
    }
    figure(&format!("transfer: {} that a kill interrupted", words[0]), &format!("{killed} of {rounds}"));
    let last = begin(&node, words, dir).wait_for_end(TRANSFER);
    let stdout = match last.code {
        // The kill came after the end of the export and before its answer.
        Some(1) if last.stderr.contains("holds a complete export already") => run(&node, &["export", "--verify"], dir),
        code => {
            assert_eq!(code, Some(0), "{words:?}: {}{}", last.stdout, last.stderr);
            last.stdout
        }
    };
    (node, stdout)
}

#[test]
fn a_transfer_that_is_killed_many_times_has_the_same_result() {
    let keys = Scale::current().pick(3000, 30_000);
    let mut random = SplitMix64::from_environment("transfer");
    let (near, far) = (TransferSide::Local, TransferSide::far());
    let first = near.start(Home::new());
    let held = fill(&first, keys);
    let mut s3 = first.s3_admin();
    for number in 0..Scale::current().pick(8, 40) {
        s3.put(&format!("/photos/more-{number}"), random.bytes(6_000_000)).expect(200);
    }
    let (whole, out, back) = (Home::new(), Home::new(), Home::new());
    let wanted = checksums(&run(&first, &["export"], whole.path()));
    let (first, exported) = with_kills(&near, first, &["export"], out.path(), &mut random);
    assert_eq!(checksums(&exported), wanted);
    let before = answers(&first, 50, &held);
    drop(first);

    let (second, imported) = with_kills(&far, far.start(Home::new()), &["import"], out.path(), &mut random);
    assert_eq!(checksums(&imported), wanted);
    std::thread::sleep(Duration::from_secs(3));
    assert_same(&before, &answers(&second, 50, &held));
    let (second, exported) = with_kills(&far, second, &["export"], back.path(), &mut random);
    assert_eq!(checksums(&exported), wanted);
    drop(second);
    let third = near.start(Home::new());
    let (third, imported) = with_kills(&near, third, &["import"], back.path(), &mut random);
    assert_eq!(checksums(&imported), wanted);
    drop(third);
}

#[test]
fn a_transfer_that_would_overwrite_data_is_refused() {
    let node = TransferSide::Local.start(Home::new());
    let (admin, home) = (node.admin(), Home::new());
    admin.refused(&["export"], "Usage: kv-admin export <directory>\n");
    let line = "give the whole path of the directory: it is one of the server's machine\n";
    admin.refused(&["export", "backup"], line);
    admin.refused(&["import", "backup"], line);
    let none = home.path().join("none");
    let none = none.to_str().unwrap();
    admin.refused(&["import", none], &format!("there is no export in {none}\n"));
    run(&node, &["export"], home.path());
    let twice = begin(&node, &["export"], home.path()).wait_for_end(TRANSFER);
    assert_eq!((twice.code, twice.stdout.as_str()), (Some(1), ""));
    assert!(twice.stderr.contains("holds a complete export already"), "{}", twice.stderr);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    let refused = begin(&node, &["import"], home.path()).wait_for_end(TRANSFER);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert_eq!(refused.stderr, "the target is not empty: it has buckets, keys, objects\n");
    let differs = begin(&node, &["export", "--verify"], home.path()).wait_for_end(TRANSFER);
    assert!(differs.code == Some(1) && differs.stderr.contains("objects: exported 0 "), "{}", differs.stderr);
}
