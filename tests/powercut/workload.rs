//! Writers that overwrite, delete and upload while the sweepers run, and record every answer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{HttpClient, HttpRequest, LarderNode, S3Client, SplitMix64, wait};

use crate::powercut::datatypes::DatatypeWriter;
use crate::powercut::ledger::{CutApi, CutBody, CutKey, CutLedger, SentChange, WallMicros};

/// The buckets of the key-value interface, and how many of ten keys each has.
const KV_BUCKETS: &[(&str, usize)] = &[(PLAIN, 3), (LWW, 4), (STRONG, 2), (ONCE, 1)];
const PLAIN: &str = "/buckets/plain";
const LWW: &str = "/types/lww/buckets/b";
/// The bucket where a change carries the context that it read.
const STRONG: &str = "/types/strong/buckets/b";
/// The bucket where each key is written once.
const ONCE: &str = "/types/once/buckets/b";
/// The types of these buckets.
const TYPES: &[(&str, &str)] = &[
    ("lww", r#"{"props":{"last_write_wins":true,"dvv_enabled":false}}"#),
    ("strong", r#"{"props":{"consistent":true}}"#),
    ("once", r#"{"props":{"write_once":true}}"#),
    ("counters", r#"{"props":{"datatype":"counter"}}"#),
    ("sets", r#"{"props":{"datatype":"set"}}"#),
    ("maps", r#"{"props":{"datatype":"map"}}"#),
];
/// The header and the field of the term that each object has: the seed of its body.
pub const INDEX_HEADER: &str = "X-Riak-Index-body_int";
pub const INDEX_FIELD: &str = "body_int";
/// The bucket of S3.
const S3_BUCKET: &str = "/powercut";
/// Writers of each interface.
const WRITERS: usize = 2;
/// Keys that a writer overwrites in each bucket.
const KEYS: usize = 5;
/// The longest pause between two changes of a writer, in milliseconds: time for the sweepers.
pub const PAUSE_MAX: usize = 8;
/// The least size of a part that is not the last one.
const PART_MIN: usize = 5 << 20;

/// The work of the writers in one life of a server.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadPlan {
    /// Whether the server syncs before it answers, unless a request asks otherwise.
    pub durable: bool,
    /// The number of changes of each writer.
    pub changes: usize,
    /// Whether a writer uploads an object of two parts at the end.
    pub two_parts: bool,
}

/// The time now.
pub fn now() -> WallMicros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as WallMicros)
}

/// Makes the buckets and types, unless they exist.
pub fn prepare(node: &LarderNode) {
    for (name, props) in TYPES {
        node.admin().run(&["bucket-type", "create", name, props]);
        node.admin().run(&["bucket-type", "activate", name]);
    }
    let made = node.s3_admin().put(S3_BUCKET, "");
    assert!([200, 409].contains(&made.status), "{}", made.text());
}

/// Runs all writers and adds their changes to the ledger.
pub fn run(node: &LarderNode, plan: WorkloadPlan, random: &mut SplitMix64, ledger: &mut CutLedger) {
    let changes = Mutex::new(&mut ledger.changes);
    let datatype_writer = |name| DatatypeWriter::new(name, node.client(), plan, random);
    let mut of_datatypes = ["w", "v"].map(datatype_writer);
    let mut writer = |number: usize| WorkloadWriter {
        client: node.client(),
        s3: node.s3_admin(),
        random: SplitMix64::new(random.number()),
        name: format!("w{number}"),
        plan,
        objects: BTreeMap::new(),
        once: Vec::new(),
    };
    thread::scope(|scope| {
        for writer in &mut of_datatypes {
            scope.spawn(|| writer.work(&changes));
        }
        for number in 0..2 * WRITERS {
            let (mut writer, changes) = (writer(number), &changes);
            scope.spawn(move || writer.work(number < WRITERS, changes));
        }
    });
    let last = end_quietly(&mut writer(0));
    changes.into_inner().expect("no writer panics").extend(last);
}

/// The pause without writes at the end, so that no sync of another write hides a missing one.
const CALM: Duration = Duration::from_millis(200);
/// The longest time until the sweepers have removed a body.
const SWEPT: Duration = Duration::from_secs(60);

/// Writes large bodies as durable as the server allows, replaces and deletes them with buffered changes, and then pauses.
fn end_quietly(writer: &mut WorkloadWriter) -> Vec<SentChange> {
    let once = writer.fresh();
    let keys = [("calm", LWW), ("calm", PLAIN), (once.as_str(), ONCE)];
    let mut changes = Vec::new();
    for (name, bucket) in keys {
        let made = writer.large_body();
        changes.push(writer.send_kv(bucket, name, Some(made), false));
    }
    let large = writer.large_body();
    changes.push(match writer.plan.two_parts {
        true => writer.upload_s3("calm", CutBody { size: PART_MIN + 70_000, ..large }),
        false => writer.put_s3("calm", large),
    });
    let small = writer.small_body();
    changes.push(writer.put_s3("calm", small));
    let swept = writer.swept();
    for (name, bucket) in keys {
        let made = (bucket != ONCE).then(|| writer.small_body());
        changes.push(writer.send_kv(bucket, name, made, true));
    }
    wait("a body is swept", SWEPT, || writer.swept() > swept);
    thread::sleep(CALM);
    changes
}

struct WorkloadWriter {
    client: HttpClient,
    s3: S3Client,
    random: SplitMix64,
    name: String,
    plan: WorkloadPlan,
    /// Its S3 objects, as sources of copies.
    objects: BTreeMap<String, CutBody>,
    /// The keys that it wrote once.
    once: Vec<String>,
}

impl WorkloadWriter {
    /// Sends changes to one interface, one after the other.
    fn work(&mut self, is_kv: bool, changes: &Mutex<&mut Vec<SentChange>>) {
        for _ in 0..self.plan.changes {
            let done = if is_kv { self.change_kv() } else { self.change_s3() };
            changes.lock().expect("no writer panics").push(done);
            thread::sleep(Duration::from_millis(self.random.below(PAUSE_MAX) as u64));
        }
    }

    fn change_kv(&mut self) -> SentChange {
        let bucket = self.kv_bucket();
        let buffered = bucket != STRONG && self.random.below(5) < 2;
        if bucket == ONCE {
            return self.change_once(buffered);
        }
        let name = format!("{}-{}", self.name, self.random.below(KEYS));
        let to = (self.random.below(10) >= 2).then(|| self.body());
        self.send_kv(bucket, &name, to, buffered)
    }

    /// Puts a new key, or deletes one that this writer put.
    fn change_once(&mut self, buffered: bool) -> SentChange {
        if self.random.below(4) == 0
            && let Some(name) = self.once.pop()
        {
            return self.send_kv(ONCE, &name, None, buffered);
        }
        let name = self.fresh();
        self.once.push(name.clone());
        let made = self.body();
        self.send_kv(ONCE, &name, Some(made), buffered)
    }

    /// A name that no writer has used before.
    fn fresh(&mut self) -> String {
        format!("{}-{:x}", self.name, self.random.number())
    }

    /// Puts or deletes a key; with `buffered` the answer does not wait for the disk.
    fn send_kv(&mut self, bucket: &str, name: &str, to: Option<CutBody>, buffered: bool) -> SentChange {
        let key = CutKey { api: CutApi::Kv, bucket: bucket.to_owned(), name: name.to_owned() };
        let url = key.path();
        let (method, body) = to.map_or(("DELETE", Vec::new()), |made| ("PUT", made.bytes()));
        let target = if buffered { format!("{url}?dw=0") } else { url.clone() };
        let mut request =
            HttpRequest::new(method, &target).header("Content-Type", "application/octet-stream").body(body);
        if let Some(made) = to {
            request = request.header(INDEX_HEADER, &made.seed.to_string());
        }
        if bucket == STRONG
            && let Some(context) = self.client.get(&url).header("X-Riak-Vclock")
        {
            request = request.header("X-Riak-Vclock", context);
        }
        let sent = now();
        let answer = self.client.send(&request);
        assert!([204, 404].contains(&answer.status), "{method} {target}: {} {}", answer.status, answer.text());
        SentChange { key, to, sent, answered: Some(now()), durable: self.plan.durable && !buffered }
    }

    fn kv_bucket(&mut self) -> &'static str {
        let mut at = self.random.below(KV_BUCKETS.iter().map(|(_, share)| share).sum());
        for (bucket, share) in KV_BUCKETS {
            match at.checked_sub(*share) {
                Some(less) => at = less,
                None => return bucket,
            }
        }
        ONCE
    }

    fn change_s3(&mut self) -> SentChange {
        let name = format!("{}-{}", self.name, self.random.below(2 * KEYS));
        let copied = self.objects.iter().find(|(other, _)| **other != name).map(|(name, made)| (name.clone(), *made));
        let made = self.body();
        let change = match (self.random.below(10), copied) {
            (0..=1, _) => self.delete_s3(&name),
            (2, Some((source, made))) => self.copy_s3(&source, &name, made),
            (8..=9, _) => self.upload_s3(&name, made),
            _ => self.put_s3(&name, made),
        };
        match change.to {
            Some(made) => drop(self.objects.insert(name, made)),
            None => drop(self.objects.remove(&name)),
        }
        change
    }

    fn put_s3(&mut self, name: &str, made: CutBody) -> SentChange {
        let sent = now();
        self.s3.put(&format!("{S3_BUCKET}/{name}"), made.bytes()).expect(200);
        self.sent_s3(name, Some(made), sent)
    }

    fn delete_s3(&mut self, name: &str) -> SentChange {
        let sent = now();
        self.s3.delete(&format!("{S3_BUCKET}/{name}")).expect(204);
        self.sent_s3(name, None, sent)
    }

    fn copy_s3(&mut self, source: &str, name: &str, made: CutBody) -> SentChange {
        let source = format!("{S3_BUCKET}/{source}");
        let sent = now();
        self.s3.call("PUT", &format!("{S3_BUCKET}/{name}"), &[("x-amz-copy-source", &source)], "").expect(200);
        self.sent_s3(name, Some(made), sent)
    }

    /// Uploads in parts, the first of them twice. The change counts as sent with the completion.
    fn upload_s3(&mut self, name: &str, made: CutBody) -> SentChange {
        let path = format!("{S3_BUCKET}/{name}");
        let upload = self.s3.begin(&path);
        self.s3.part(&path, &upload, 1, "put again below");
        let body = made.bytes();
        let chunks = if body.is_empty() { vec![&body[..]] } else { body.chunks(PART_MIN).collect() };
        let parts: Vec<(u32, String)> = chunks
            .into_iter()
            .zip(1..)
            .map(|(part, number)| (number, self.s3.part(&path, &upload, number, part)))
            .collect();
        let sent = now();
        self.s3.complete(&path, &upload, &parts).expect(200);
        self.sent_s3(name, Some(made), sent)
    }

    fn sent_s3(&self, name: &str, to: Option<CutBody>, sent: WallMicros) -> SentChange {
        let key = CutKey { api: CutApi::S3, bucket: S3_BUCKET.to_owned(), name: name.to_owned() };
        SentChange { key, to, sent, answered: Some(now()), durable: self.plan.durable }
    }

    /// The number of bodies that the sweeper of the key-value store has removed.
    fn swept(&mut self) -> u64 {
        let text = self.client.get("/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix("larder_blob_swept_total "));
        line.and_then(|count| count.parse().ok()).expect("the sweeper is counted")
    }

    fn body(&mut self) -> CutBody {
        let size = match self.random.below(100) {
            0..=3 => self.large(),
            4..=14 => 66_000 + self.random.below(60_000),
            // In a row, beside its table.
            15..=34 => 2_048 + self.random.below(60_000),
            _ => self.random.below(2000),
        };
        CutBody { seed: self.random.number(), size }
    }

    fn large_body(&mut self) -> CutBody {
        CutBody { seed: self.random.number(), size: (1 << 20) + 1 + self.random.below(100_000) }
    }

    fn small_body(&mut self) -> CutBody {
        CutBody { seed: self.random.number(), size: self.random.below(2000) }
    }

    /// A size around the limit above which a body is a file of its own.
    fn large(&mut self) -> usize {
        (1 << 20) - 20_000 + self.random.below(200_000)
    }
}
