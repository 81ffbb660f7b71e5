//! What is written into a store, the same every time, and what must be read from it afterwards.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::{Batch, BlobOwner, Change, Head, Partition, Row, Shadow, Stamp, Table};

use super::harm::Random;

/// One write.
#[derive(Debug, Clone)]
pub enum Op {
    Apply(Batch),
    Swap {
        partition: Partition,
        expected: Option<Stamp>,
        head: Head,
        changes: Vec<Change>,
    },
    PutBlob {
        id: BlobId,
        owner: BlobOwner,
        bytes: Bytes,
    },
    RemoveBlob(BlobId),
    /// Closes the store and opens it again.
    Reopen,
}

/// What must be there. A name or a blob with `None` was there once.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    pub rows: BTreeMap<Partition, BTreeMap<Bytes, Option<Row>>>,
    pub blobs: BTreeMap<BlobId, Option<(BlobOwner, Bytes)>>,
}

impl Expected {
    /// Notes a write that was answered.
    pub fn note(&mut self, op: &Op) {
        match op {
            Op::Apply(batch) => {
                for part in &batch.partitions {
                    self.change(&part.partition, &part.changes);
                }
            }
            Op::Swap { partition, head, changes, .. } => {
                self.change(partition, &[&[Change::Put(head.row.clone())], &changes[..]].concat());
                if let Some((partition, change)) = head.shadow_change() {
                    self.change(&partition, &[change]);
                }
            }
            Op::PutBlob { id, owner, bytes } => {
                self.blobs.insert(*id, Some((owner.clone(), bytes.clone())));
            }
            Op::RemoveBlob(id) => {
                self.blobs.insert(*id, None);
            }
            Op::Reopen => {}
        }
    }

    /// Has a partition read, though nothing is in it yet.
    pub fn expect(&mut self, partition: Partition) {
        self.rows.entry(partition).or_default();
    }

    /// Stamps grow with every write, so the later one always stays.
    fn change(&mut self, partition: &Partition, changes: &[Change]) {
        let rows = self.rows.entry(partition.clone()).or_default();
        for change in changes {
            match change {
                Change::Put(row) => {
                    rows.insert(row.name.clone(), Some(row.clone()));
                }
                Change::Remove { name, .. } => {
                    rows.insert(name.clone(), None);
                }
                Change::Clear { .. } => rows.values_mut().for_each(|row| *row = None),
            }
        }
    }

    /// The rows of a partition that are there.
    pub fn live(&self, partition: &Partition) -> Vec<Row> {
        self.rows.get(partition).into_iter().flat_map(|rows| rows.values().flatten().cloned()).collect()
    }

    /// The partitions of a table that have rows, in order.
    pub fn partitions(&self, table: Table) -> Vec<Partition> {
        let live = self.rows.iter().filter(|(one, rows)| one.table == table && rows.values().any(Option::is_some));
        live.map(|(partition, _)| partition.clone()).collect()
    }
}

/// Writes of every sort, in rounds, so that tables of several ages hold old and new values of the same keys.
pub struct Plan {
    random: Random,
    stamp: Stamp,
    ops: Vec<Op>,
    expected: Expected,
}

const ROUNDS: u32 = 5;
const OBJECTS: usize = 300;
const HEADS: usize = 60;
/// A body that is kept beside the rows, and one that is a file of its own.
const BULK_BYTES: usize = 100_000;
const FILE_BYTES: usize = 2 << 20;

impl Plan {
    /// All writes of a base, and what they leave.
    pub fn base() -> (Vec<Op>, Expected) {
        let mut plan = Self { random: Random(11), stamp: 10, ops: Vec::new(), expected: Expected::default() };
        for round in 0..ROUNDS {
            plan.objects(round);
            plan.wide(round);
            plan.heads(round);
            plan.blobs(round);
            if round == 2 {
                plan.push(Op::Reopen);
            }
        }
        (plan.ops, plan.expected)
    }

    /// More writes to a store that holds `expected`: new keys, then new values of old keys and their removal.
    pub fn more(expected: &Expected, mut random: Random) -> Vec<Op> {
        let stamp = 10_000_000 + random.below(1000) as u64;
        let mut plan = Self { random, stamp, ops: Vec::new(), expected: expected.clone() };
        for key in 0..100 {
            let row = plan.row("slot", 2000);
            plan.push(Op::Apply(Batch::of(Partition::own(Table::Objects, format!("new-{key}")), vec![row])));
        }
        for key in 0..40 {
            let row = plan.row(&format!("new-{key}"), 300);
            plan.push(Op::Apply(Batch::of(Partition::own(Table::Keys, "many"), vec![row])));
            plan.head(Table::Heads, Table::Entries, &format!("new-{key}"), false);
        }
        plan.blob("new", BULK_BYTES);
        for _ in 0..40 {
            let key = plan.random.below(OBJECTS);
            plan.object(key);
            let row = plan.row(&format!("row-{:05}", key * 2), 80);
            plan.push(Op::Apply(Batch::of(Partition::own(Table::Keys, "many"), vec![row])));
            let (key, gone) = (plan.random.below(HEADS), plan.random.below(3) == 0);
            plan.head(Table::Heads, Table::Entries, &key.to_string(), gone);
        }
        plan.ops
    }

    fn push(&mut self, op: Op) {
        self.expected.note(&op);
        self.ops.push(op);
    }

    fn next_stamp(&mut self) -> Stamp {
        self.stamp += 4;
        self.stamp
    }

    fn row(&mut self, name: &str, length: usize) -> Change {
        let length = 1 + self.random.below(length);
        let (stamp, value) = (self.next_stamp(), self.random.bytes(length).into());
        Change::Put(Row { name: Bytes::copy_from_slice(name.as_bytes()), value, stamp, expires: None })
    }

    /// Packed partitions of several rows, each with its row in a wide one.
    fn objects(&mut self, round: u32) {
        for key in 0..OBJECTS {
            if round == 0 || self.random.below(3) == 0 {
                self.object(key);
            }
        }
        for (table, count) in [(Table::Marks, 5), (Table::Doomed, 20)] {
            for key in 0..count {
                let row = self.row("mark", 40);
                self.push(Op::Apply(Batch::of(Partition::own(table, format!("{key}")), vec![row])));
            }
        }
    }

    /// Writes a packed partition or clears it.
    fn object(&mut self, key: usize) {
        let object = Partition::own(Table::Objects, format!("object-{key:04}"));
        let listing = Partition::own(Table::Keys, format!("shard-{}", key % 4));
        let name = format!("object-{key:04}");
        let stamp = self.next_stamp();
        let mut batch = if self.random.below(5) == 0 {
            let mut batch = Batch::of(object, vec![Change::Clear { stamp }]);
            batch.add(listing, vec![Change::Remove { name: name.into(), stamp }]);
            batch
        } else {
            let slots = 1 + self.random.below(4);
            let rows = (0..slots).map(|slot| self.row(&format!("slot-{slot}"), 500)).collect();
            let mut batch = Batch::of(object, rows);
            batch.add(listing, vec![self.row(&name, 30)]);
            batch
        };
        batch.partitions.iter_mut().for_each(|part| part.rows_max = None);
        self.push(Op::Apply(batch));
    }

    /// Partitions of many rows, some of which go again.
    fn wide(&mut self, round: u32) {
        let many = Partition::own(Table::Keys, "many");
        for first in (0..300).step_by(10) {
            let name = |at: usize| format!("row-{:05}", (round as usize * 300 + first + at) * 7 % 1500);
            let changes = (0..10).map(|at| self.row(&name(at), 80)).collect();
            self.push(Op::Apply(Batch::of(many.clone(), changes)));
        }
        for at in 0..40 {
            let (stamp, name) = (self.next_stamp(), format!("row-{:05}", at * 31 % 1500));
            self.push(Op::Apply(Batch::of(many.clone(), vec![Change::Remove { name: name.into(), stamp }])));
        }
        let tables = [Table::Buckets, Table::Members, Table::Parts, Table::Manifests, Table::Usage];
        for (table, key) in tables.into_iter().flat_map(|table| (0..6).map(move |key| (table, key))) {
            let changes = (0..4).map(|name| self.row(&format!("name-{name}"), 120)).collect();
            self.push(Op::Apply(Batch::of(Partition::own(table, format!("{key}")), changes)));
        }
    }

    /// Guarded heads with rows derived from them.
    fn heads(&mut self, round: u32) {
        for key in 0..HEADS {
            if round == 0 || self.random.below(3) == 0 {
                let gone = self.random.below(6) == 0;
                self.head(Table::Heads, Table::Entries, &key.to_string(), gone);
            }
        }
        for key in 0..20 {
            self.head(Table::Uploads, Table::UploadEntries, &key.to_string(), round == 4 && key < 8);
        }
        for key in 0..40 {
            self.lone_head(Partition::own(Table::Consistent, format!("strong-{key}")));
        }
        self.lone_head(Partition::catalogue());
        self.lone_head(Partition::users());
    }

    /// A head and its derived row, which is not there when `gone`.
    fn head(&mut self, table: Table, derived: Table, key: &str, gone: bool) {
        let partition = Partition::own(table, format!("bucket-{key}"));
        let shard = key.len() % 3;
        let value = (!gone).then(|| self.random.bytes(60).into());
        let place = Partition::own(derived, format!("shard-{shard}"));
        let shadow = Some(Shadow { partition: place, name: Bytes::copy_from_slice(key.as_bytes()), value });
        self.swap(partition, shadow);
    }

    fn lone_head(&mut self, partition: Partition) {
        self.swap(partition, None);
    }

    fn swap(&mut self, partition: Partition, shadow: Option<Shadow>) {
        let head = self.expected.rows.get(&partition).and_then(|rows| rows.get(&b"head"[..])?.as_ref());
        let expected = head.map(|row| row.stamp);
        let (name, changes) = (format!("other-{}", self.random.below(3)), self.random.below(2));
        let changes = (0..changes).map(|_| self.row(&name, 100)).collect();
        let Change::Put(row) = self.row("head", 200) else { unreachable!("a row is put") };
        self.push(Op::Swap { partition, expected, head: Head { row, shadow }, changes });
    }

    fn blobs(&mut self, round: u32) {
        for number in 0..4 {
            self.blob(&format!("bulk-{round}-{number}"), BULK_BYTES + number);
        }
        let files: &[usize] = match round {
            0 => &[FILE_BYTES, (1 << 20) + 1],
            3 => &[(1 << 20) + 300_000],
            _ => &[],
        };
        for (number, length) in files.iter().enumerate() {
            self.blob(&format!("file-{round}-{number}"), *length);
        }
        if round > 0 {
            self.push(Op::RemoveBlob(blob_id(&format!("bulk-{}-0", round - 1))));
        }
        if round == 4 {
            self.push(Op::RemoveBlob(blob_id("file-0-1")));
        }
    }

    fn blob(&mut self, name: &str, length: usize) {
        let owner = BlobOwner { partition: Partition::own(Table::Objects, "blobs"), row: name.to_owned().into() };
        let bytes = self.random.bytes(length).into();
        self.push(Op::PutBlob { id: blob_id(name), owner, bytes });
    }
}

fn blob_id(name: &str) -> BlobId {
    BlobId::of(b"blobs", name.as_bytes(), 7)
}
