//! The writes of a store, the same in every run, and the data that must be read afterwards.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{Batch, BlobOwner, Change, DerivedRow, HeadWrite, Partition, Row, Table, Timestamp};
use larder_testkit::SplitMix64;

/// One write.
#[derive(Debug, Clone)]
pub enum PlannedWrite {
    Apply(Batch),
    Swap {
        partition: Partition,
        expected: Option<Timestamp>,
        head: Box<HeadWrite>,
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

/// The expected data. A name or a blob with `None` was removed.
#[derive(Debug, Clone, Default)]
pub struct ExpectedData {
    pub rows: BTreeMap<Partition, BTreeMap<Bytes, Option<Row>>>,
    pub blobs: BTreeMap<BlobId, Option<(BlobOwner, Bytes)>>,
}

impl ExpectedData {
    /// Notes an acknowledged write.
    pub fn note(&mut self, op: &PlannedWrite) {
        match op {
            PlannedWrite::Apply(batch) => {
                for part in &batch.partitions {
                    self.change(&part.partition, &part.changes);
                }
            }
            PlannedWrite::Swap { partition, head, changes, .. } => {
                self.change(partition, &[&[Change::Put(head.row.clone())], &changes[..]].concat());
                if let Some((partition, change)) = head.derived_change() {
                    self.change(&partition, &[change]);
                }
            }
            PlannedWrite::PutBlob { id, owner, bytes } => {
                self.blobs.insert(*id, Some((owner.clone(), bytes.clone())));
            }
            PlannedWrite::RemoveBlob(id) => {
                self.blobs.insert(*id, None);
            }
            PlannedWrite::Reopen => {}
        }
    }

    /// Adds an empty partition to the ones that are read.
    pub fn expect(&mut self, partition: Partition) {
        self.rows.entry(partition).or_default();
    }

    /// Applies changes. Stamps grow with every write, so the later write always wins.
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

    /// The live rows of a partition.
    pub fn live(&self, partition: &Partition) -> Vec<Row> {
        self.rows.get(partition).into_iter().flat_map(|rows| rows.values().flatten().cloned()).collect()
    }

    /// The partitions of a table that have rows, sorted.
    pub fn partitions(&self, table: Table) -> Vec<Partition> {
        let live = self.rows.iter().filter(|(one, rows)| one.table == table && rows.values().any(Option::is_some));
        live.map(|(partition, _)| partition.clone()).collect()
    }
}

/// Writes of every kind, in rounds, so that tables of several ages hold old and new values of the same keys.
pub struct WritePlan {
    random: SplitMix64,
    stamp: Timestamp,
    ops: Vec<PlannedWrite>,
    expected: ExpectedData,
}

const ROUNDS: u32 = 5;
const OBJECTS: usize = 300;
const HEADS: usize = 60;
/// The length of a body that is a bulk row, and of one that is a file.
const BULK_BYTES: usize = 100_000;
const FILE_BYTES: usize = 2 << 20;

impl WritePlan {
    /// All writes of a stopped store, and the data that they leave.
    pub fn base() -> (Vec<PlannedWrite>, ExpectedData) {
        let mut plan = Self {
            random: SplitMix64::new(11),
            stamp: Timestamp(10),
            ops: Vec::new(),
            expected: ExpectedData::default(),
        };
        for round in 0..ROUNDS {
            plan.objects(round);
            plan.wide(round);
            plan.heads(round);
            plan.blobs(round);
            if round == 2 {
                plan.push(PlannedWrite::Reopen);
            }
        }
        (plan.ops, plan.expected)
    }

    /// More writes to a store that holds `expected`: new keys, then new values and removals of old keys.
    pub fn more(expected: &ExpectedData, mut random: SplitMix64) -> Vec<PlannedWrite> {
        let stamp = 10_000_000 + random.below(1000) as u64;
        let mut plan = Self { random, stamp: Timestamp(stamp), ops: Vec::new(), expected: expected.clone() };
        for key in 0..100 {
            let row = plan.row("slot", 2000);
            plan.push(PlannedWrite::Apply(Batch::single(
                Partition::new(Table::Objects, format!("new-{key}")),
                vec![row],
            )));
        }
        for key in 0..40 {
            let row = plan.row(&format!("new-{key}"), 300);
            plan.push(PlannedWrite::Apply(Batch::single(Partition::new(Table::Keys, "many"), vec![row])));
            plan.head(Table::Heads, Table::Entries, &format!("new-{key}"), false);
        }
        plan.blob("new", BULK_BYTES);
        for _ in 0..40 {
            let key = plan.random.below(OBJECTS);
            plan.object(key);
            let row = plan.row(&format!("row-{:05}", key * 2), 80);
            plan.push(PlannedWrite::Apply(Batch::single(Partition::new(Table::Keys, "many"), vec![row])));
            let (key, gone) = (plan.random.below(HEADS), plan.random.below(3) == 0);
            plan.head(Table::Heads, Table::Entries, &key.to_string(), gone);
        }
        plan.ops
    }

    fn push(&mut self, op: PlannedWrite) {
        self.expected.note(&op);
        self.ops.push(op);
    }

    fn next_stamp(&mut self) -> Timestamp {
        self.stamp += 4;
        self.stamp
    }

    fn row(&mut self, name: &str, length: usize) -> Change {
        let length = 1 + self.random.below(length);
        let (stamp, value) = (self.next_stamp(), self.random.bytes(length).into());
        Change::Put(Row { name: Bytes::copy_from_slice(name.as_bytes()), value, stamp, expires: None })
    }

    /// Packed partitions of several rows, each with a row in a wide partition.
    fn objects(&mut self, round: u32) {
        for key in 0..OBJECTS {
            if round == 0 || self.random.below(3) == 0 {
                self.object(key);
            }
        }
        for (table, count) in [(Table::Marks, 5), (Table::GcMarks, 20)] {
            for key in 0..count {
                let row = self.row("mark", 40);
                self.push(PlannedWrite::Apply(Batch::single(Partition::new(table, format!("{key}")), vec![row])));
            }
        }
    }

    /// Writes a packed partition or clears it.
    fn object(&mut self, key: usize) {
        let object = Partition::new(Table::Objects, format!("object-{key:04}"));
        let listing = Partition::new(Table::Keys, format!("shard-{}", key % 4));
        let name = format!("object-{key:04}");
        let stamp = self.next_stamp();
        let mut batch = if self.random.below(5) == 0 {
            let mut batch = Batch::single(object, vec![Change::Clear { stamp }]);
            batch.add(listing, vec![Change::Remove { name: name.into(), stamp }]);
            batch
        } else {
            let slots = 1 + self.random.below(4);
            let rows = (0..slots).map(|slot| self.row(&format!("slot-{slot}"), 500)).collect();
            let mut batch = Batch::single(object, rows);
            batch.add(listing, vec![self.row(&name, 30)]);
            batch
        };
        batch.partitions.iter_mut().for_each(|part| part.rows_max = None);
        self.push(PlannedWrite::Apply(batch));
    }

    /// Partitions of many rows, some of which are removed again.
    fn wide(&mut self, round: u32) {
        let many = Partition::new(Table::Keys, "many");
        for first in (0..300).step_by(10) {
            let name = |at: usize| format!("row-{:05}", (round as usize * 300 + first + at) * 7 % 1500);
            let changes = (0..10).map(|at| self.row(&name(at), 80)).collect();
            self.push(PlannedWrite::Apply(Batch::single(many.clone(), changes)));
        }
        for at in 0..40 {
            let (stamp, name) = (self.next_stamp(), format!("row-{:05}", at * 31 % 1500));
            self.push(PlannedWrite::Apply(Batch::single(
                many.clone(),
                vec![Change::Remove { name: name.into(), stamp }],
            )));
        }
        let tables = [Table::Buckets, Table::Members, Table::Parts, Table::Manifests, Table::Usage];
        for (table, key) in tables.into_iter().flat_map(|table| (0..6).map(move |key| (table, key))) {
            let changes = (0..4).map(|name| self.row(&format!("name-{name}"), 120)).collect();
            self.push(PlannedWrite::Apply(Batch::single(Partition::new(table, format!("{key}")), changes)));
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
            self.single_head(Partition::new(Table::Consistent, format!("strong-{key}")));
        }
        self.single_head(Partition::catalogue());
        self.single_head(Partition::users());
    }

    /// A head and its derived row, which is removed when `gone`.
    fn head(&mut self, table: Table, derived: Table, key: &str, gone: bool) {
        let partition = Partition::new(table, format!("bucket-{key}"));
        let shard = key.len() % 3;
        let value = (!gone).then(|| self.random.bytes(60).into());
        let place = Partition::new(derived, format!("shard-{shard}"));
        let derived = Some(DerivedRow { partition: place, name: Bytes::copy_from_slice(key.as_bytes()), value });
        self.swap(partition, derived);
    }

    fn single_head(&mut self, partition: Partition) {
        self.swap(partition, None);
    }

    fn swap(&mut self, partition: Partition, derived: Option<DerivedRow>) {
        let head = self.expected.rows.get(&partition).and_then(|rows| rows.get(&b"head"[..])?.as_ref());
        let expected = head.map(|row| row.stamp);
        let (name, changes) = (format!("other-{}", self.random.below(3)), self.random.below(2));
        let changes = (0..changes).map(|_| self.row(&name, 100)).collect();
        let Change::Put(row) = self.row("head", 200) else { unreachable!("a row is put") };
        self.push(PlannedWrite::Swap {
            partition,
            expected,
            head: Box::new(HeadWrite { derived, ..HeadWrite::from(row) }),
            changes,
        });
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
            self.push(PlannedWrite::RemoveBlob(blob_id(&format!("bulk-{}-0", round - 1))));
        }
        if round == 4 {
            self.push(PlannedWrite::RemoveBlob(blob_id("file-0-1")));
        }
    }

    fn blob(&mut self, name: &str, length: usize) {
        let owner = BlobOwner { partition: Partition::new(Table::Objects, "blobs"), row: name.to_owned().into() };
        let bytes = self.random.bytes(length).into();
        self.push(PlannedWrite::PutBlob { id: blob_id(name), owner, bytes });
    }
}

fn blob_id(name: &str) -> BlobId {
    BlobId::for_row(b"blobs", name.as_bytes(), Timestamp(7))
}
