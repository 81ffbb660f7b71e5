//! Writers that overwrite, delete and upload while the sweepers run, and note every answer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_tests::{Client, Node, Random, Request, S3, wait};

use crate::ledger::{Api, Asked, Key, Ledger, Made, Micros};

/// The bucket type and bucket of each kind of key of Riak's interface, and how many of ten keys it has.
const KV_BUCKETS: &[(&str, usize)] = &[(PLAIN, 3), (LWW, 4), (STRONG, 2), (ONCE, 1)];
const PLAIN: &str = "/buckets/plain";
const LWW: &str = "/types/lww/buckets/b";
/// The bucket where a change names what it saw.
const STRONG: &str = "/types/strong/buckets/b";
/// The bucket where each key is written once.
const ONCE: &str = "/types/once/buckets/b";
/// The types that they need.
const TYPES: &[(&str, &str)] = &[
    ("lww", r#"{"props":{"last_write_wins":true,"dvv_enabled":false}}"#),
    ("strong", r#"{"props":{"consistent":true}}"#),
    ("once", r#"{"props":{"write_once":true}}"#),
];
/// The bucket of S3.
const S3_BUCKET: &str = "/powercut";
/// Writers of each interface.
const WRITERS: usize = 2;
/// Keys of a writer that are written again and again, in each bucket.
const KEYS: usize = 5;
/// Longest pause between two changes of a writer, in milliseconds: the sweepers have their turn.
const PAUSE_MAX: usize = 8;
/// Least size of a part that is not the last one.
const PART_MIN: usize = 5 << 20;

/// One life of a server, as its writers see it.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Whether the server answers writes from the disk unless a request says otherwise.
    pub durable: bool,
    /// Changes of each writer.
    pub changes: usize,
    /// Whether an object of two parts is uploaded in the end.
    pub two_parts: bool,
}

/// Now.
pub fn now() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as Micros)
}

/// Makes buckets and types that are not there.
pub fn prepare(node: &Node) {
    for (name, props) in TYPES {
        node.admin().run(&["bucket-type", "create", name, props]);
        node.admin().run(&["bucket-type", "activate", name]);
    }
    let made = S3::admin(node).put(S3_BUCKET, "");
    assert!([200, 409].contains(&made.status), "{}", made.text());
}

/// All writers at work; what they did is added to the ledger.
pub fn run(node: &Node, plan: Plan, random: &mut Random, ledger: &mut Ledger) {
    let asked = Mutex::new(&mut ledger.asked);
    let mut writer = |number: usize| Writer {
        client: node.client(),
        s3: S3::admin(node),
        random: Random::seeded(random.number()),
        name: format!("w{number}"),
        plan,
        objects: BTreeMap::new(),
        once: Vec::new(),
    };
    thread::scope(|scope| {
        for number in 0..2 * WRITERS {
            let (mut writer, asked) = (writer(number), &asked);
            scope.spawn(move || writer.work(number < WRITERS, asked));
        }
    });
    let calm = calm(&mut writer(0));
    asked.into_inner().expect("no writer panics").extend(calm);
}

/// How long nothing is written in the end, so that no sync of another write hides one that is missing.
const CALM: Duration = Duration::from_millis(200);
/// How long the sweepers may take to remove a body.
const SWEPT: Duration = Duration::from_secs(60);

/// Large bodies that are durable where the server is, replaced and deleted by changes that are not, and then nothing.
fn calm(writer: &mut Writer) -> Vec<Asked> {
    let once = writer.fresh();
    let keys = [("calm", LWW), ("calm", PLAIN), (once.as_str(), ONCE)];
    let mut asked = Vec::new();
    for (name, bucket) in keys {
        let made = writer.large_made();
        asked.push(writer.ask_kv(bucket, name, Some(made), false));
    }
    let large = writer.large_made();
    asked.push(match writer.plan.two_parts {
        true => writer.upload_s3("calm", Made { size: PART_MIN + 70_000, ..large }),
        false => writer.put_s3("calm", large),
    });
    let small = writer.small_made();
    asked.push(writer.put_s3("calm", small));
    let swept = writer.swept();
    for (name, bucket) in keys {
        let made = (bucket != ONCE).then(|| writer.small_made());
        asked.push(writer.ask_kv(bucket, name, made, true));
    }
    wait("a body is swept", SWEPT, || writer.swept() > swept);
    thread::sleep(CALM);
    asked
}

struct Writer {
    client: Client,
    s3: S3,
    random: Random,
    name: String,
    plan: Plan,
    /// The objects of S3 that it knows, to copy from.
    objects: BTreeMap<String, Made>,
    /// The keys it wrote once.
    once: Vec<String>,
}

impl Writer {
    /// Changes keys of one interface, one after the other.
    fn work(&mut self, is_kv: bool, asked: &Mutex<&mut Vec<Asked>>) {
        for _ in 0..self.plan.changes {
            let done = if is_kv { self.change_kv() } else { self.change_s3() };
            asked.lock().expect("no writer panics").push(done);
            thread::sleep(Duration::from_millis(self.random.below(PAUSE_MAX) as u64));
        }
    }

    fn change_kv(&mut self) -> Asked {
        let bucket = self.kv_bucket();
        let buffered = bucket != STRONG && self.random.below(5) < 2;
        if bucket == ONCE {
            return self.change_once(buffered);
        }
        let name = format!("{}-{}", self.name, self.random.below(KEYS));
        let to = (self.random.below(10) >= 2).then(|| self.made());
        self.ask_kv(bucket, &name, to, buffered)
    }

    /// Puts a key that was never there, or deletes one that was put so.
    fn change_once(&mut self, buffered: bool) -> Asked {
        if self.random.below(4) == 0
            && let Some(name) = self.once.pop()
        {
            return self.ask_kv(ONCE, &name, None, buffered);
        }
        let name = self.fresh();
        self.once.push(name.clone());
        let made = self.made();
        self.ask_kv(ONCE, &name, Some(made), buffered)
    }

    /// A name that no life of any server had before.
    fn fresh(&mut self) -> String {
        format!("{}-{:x}", self.name, self.random.number())
    }

    /// Puts or deletes a key; `buffered` asks not to wait for the disk.
    fn ask_kv(&mut self, bucket: &str, name: &str, to: Option<Made>, buffered: bool) -> Asked {
        let url = format!("{bucket}/keys/{name}");
        let (method, body) = to.map_or(("DELETE", Vec::new()), |made| ("PUT", made.bytes()));
        let target = if buffered { format!("{url}?dw=0") } else { url.clone() };
        let mut request = Request::new(method, &target).header("Content-Type", "application/octet-stream").body(body);
        if bucket == STRONG
            && let Some(context) = self.client.get(&url).header("X-Riak-Vclock")
        {
            request = request.header("X-Riak-Vclock", context);
        }
        let sent = now();
        let answer = self.client.send(&request);
        assert!([204, 404].contains(&answer.status), "{method} {target}: {} {}", answer.status, answer.text());
        let key = Key { api: Api::Kv, bucket: bucket.to_owned(), name: name.to_owned() };
        Asked { key, to, sent, answered: Some(now()), durable: self.plan.durable && !buffered }
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

    fn change_s3(&mut self) -> Asked {
        let name = format!("{}-{}", self.name, self.random.below(2 * KEYS));
        let copied = self.objects.iter().find(|(other, _)| **other != name).map(|(name, made)| (name.clone(), *made));
        let made = self.made();
        let asked = match (self.random.below(10), copied) {
            (0..=1, _) => self.delete_s3(&name),
            (2, Some((source, made))) => self.copy_s3(&source, &name, made),
            (8..=9, _) => self.upload_s3(&name, made),
            _ => self.put_s3(&name, made),
        };
        match asked.to {
            Some(made) => drop(self.objects.insert(name, made)),
            None => drop(self.objects.remove(&name)),
        }
        asked
    }

    fn put_s3(&mut self, name: &str, made: Made) -> Asked {
        let sent = now();
        self.s3.put(&format!("{S3_BUCKET}/{name}"), made.bytes()).expect(200);
        self.asked_s3(name, Some(made), sent)
    }

    fn delete_s3(&mut self, name: &str) -> Asked {
        let sent = now();
        self.s3.delete(&format!("{S3_BUCKET}/{name}")).expect(204);
        self.asked_s3(name, None, sent)
    }

    fn copy_s3(&mut self, source: &str, name: &str, made: Made) -> Asked {
        let source = format!("{S3_BUCKET}/{source}");
        let sent = now();
        self.s3.call("PUT", &format!("{S3_BUCKET}/{name}"), &[("x-amz-copy-source", &source)], "").expect(200);
        self.asked_s3(name, Some(made), sent)
    }

    /// Uploads in parts, the first of them put twice. The change is sent with the completion.
    fn upload_s3(&mut self, name: &str, made: Made) -> Asked {
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
        self.asked_s3(name, Some(made), sent)
    }

    fn asked_s3(&self, name: &str, to: Option<Made>, sent: Micros) -> Asked {
        let key = Key { api: Api::S3, bucket: S3_BUCKET.to_owned(), name: name.to_owned() };
        Asked { key, to, sent, answered: Some(now()), durable: self.plan.durable }
    }

    /// How many bodies the sweeper of the key-value store has removed.
    fn swept(&mut self) -> u64 {
        let text = self.client.get("/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix("larder_blob_swept_total "));
        line.and_then(|count| count.parse().ok()).expect("the sweeper is counted")
    }

    fn made(&mut self) -> Made {
        let size = match self.random.below(100) {
            0..=3 => self.large(),
            4..=14 => 66_000 + self.random.below(60_000),
            _ => self.random.below(2000),
        };
        Made { seed: self.random.number(), size }
    }

    fn large_made(&mut self) -> Made {
        Made { seed: self.random.number(), size: (1 << 20) + 1 + self.random.below(100_000) }
    }

    fn small_made(&mut self) -> Made {
        Made { seed: self.random.number(), size: self.random.below(2000) }
    }

    /// A size whose body is a file of its own, or is not by little.
    fn large(&mut self) -> usize {
        (1 << 20) - 20_000 + self.random.below(200_000)
    }
}
