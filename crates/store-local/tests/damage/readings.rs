//! Reads everything: each read must return the exact bytes, or report damage.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_store::{Blobs, Durability, Error, Kind, Partition, ReadQuery, Result, Row, Stopped, Store, Table};

use super::opened::OpenedStore;
use super::plan::ExpectedData;
use crate::common;

/// The results of all reads.
#[derive(Debug, Default)]
pub struct ReadReport {
    /// Addresses of the reads that reported damage.
    pub damaged: BTreeSet<String>,
    /// Reads that returned other data than was written.
    pub wrong: Vec<String>,
    /// Blobs that a read reported as absent though they were never removed.
    pub absent_blobs: usize,
}

impl ReadReport {
    /// Reads every partition by key, every row by name, every listing and every blob.
    pub async fn of(opened: &OpenedStore, expected: &ExpectedData) -> Self {
        let mut readings = Self::default();
        for partition in expected.rows.keys() {
            readings.partition(opened, expected, partition).await;
        }
        for table in Table::ALL {
            readings.listing(opened, expected, table).await;
        }
        readings.blobs(opened, expected).await;
        readings.blob_list(opened, expected).await;
        readings
    }

    /// Whether a partition or one of its rows is known to be damaged.
    pub fn is_damaged(&self, partition: &Partition) -> bool {
        let begin = address(partition, None);
        self.damaged.range(begin.clone()..).next().is_some_and(|found| found.starts_with(&begin))
    }

    async fn partition(&mut self, opened: &OpenedStore, expected: &ExpectedData, partition: &Partition) {
        let whole = pages(opened, partition).await;
        self.note(address(partition, None), whole, &expected.live(partition));
        for (name, row) in &expected.rows[partition] {
            let query = ReadQuery::one(name.clone());
            let page = opened.store.read(partition, &query, &common::call(Durability::Disk)).await;
            let row: Vec<Row> = row.iter().cloned().collect();
            self.note(address(partition, Some(name)), page.map(|page| page.rows), &row);
        }
    }

    async fn listing(&mut self, opened: &OpenedStore, expected: &ExpectedData, table: Table) {
        let listed = listed(opened, table).await;
        self.note(format!("listing of {}", table.name()), listed, &expected.partitions(table));
    }

    async fn blobs(&mut self, opened: &OpenedStore, expected: &ExpectedData) {
        for (id, blob) in &expected.blobs {
            let address = format!("blob {}", id.hex());
            match (opened.blob(*id).await, blob) {
                (Ok(bytes), Some((_, wanted))) if bytes == *wanted => {}
                (Ok(bytes), _) => self.wrong.push(format!("{address}: {} wrong bytes", bytes.len())),
                (Err(error), _) if error.kind == Kind::Damaged => {
                    self.damaged.insert(address);
                }
                (Err(error), None) if error.kind == Kind::NoSuchBlob => {}
                (Err(error), Some(_)) if error.kind == Kind::NoSuchBlob => self.absent_blobs += 1,
                (Err(error), _) => self.wrong.push(format!("{address}: {:?} {error}", error.kind)),
            }
        }
    }

    /// Reads the list of blobs, which may leave out unreadable blobs only.
    async fn blob_list(&mut self, opened: &OpenedStore, expected: &ExpectedData) {
        let (mut after, mut found) = (None, BTreeSet::new());
        loop {
            match opened.blobs.list(after, 7).await {
                Ok(page) if page.is_empty() => break,
                Ok(page) => {
                    after = page.last().map(|blob| blob.id);
                    for blob in page {
                        let owner = expected.blobs.get(&blob.id).and_then(Option::as_ref).map(|(owner, _)| owner);
                        if owner != Some(&blob.owner) {
                            self.wrong.push(format!("the list of blobs has {} of {:?}", blob.id.hex(), blob.owner));
                        }
                        found.insert(blob.id);
                    }
                }
                Err(error) => {
                    self.note("list of blobs".into(), Err::<Vec<()>, _>(error), &[]);
                    return;
                }
            }
        }
        let missing = expected.blobs.iter().filter(|(id, blob)| blob.is_some() && !found.contains(id));
        let silent = missing.filter(|(id, _)| !self.damaged.contains(&format!("blob {}", id.hex()))).count();
        if silent > self.absent_blobs {
            self.wrong.push(format!("the list of blobs leaves out {silent} that can be read"));
        }
    }

    fn note<T: PartialEq + std::fmt::Debug>(&mut self, address: String, read: Result<Vec<T>>, wanted: &[T]) {
        match read {
            Ok(found) if found == wanted => {}
            Ok(found) => {
                self.wrong.push(format!("{address}: {} wanted, {} read, not the same", wanted.len(), found.len()))
            }
            Err(Error { kind: Kind::Damaged, .. }) => {
                self.damaged.insert(address);
            }
            Err(error) => self.wrong.push(format!("{address}: {:?} {error}", error.kind)),
        }
    }
}

/// All rows, page by page.
async fn pages(opened: &OpenedStore, partition: &Partition) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let query = ReadQuery::after(rows.last().map(|row| &row.name), 400);
        let page = opened.store.read(partition, &query, &common::call(Durability::Disk)).await?;
        rows.extend(page.rows);
        if page.stopped == Stopped::End {
            return Ok(rows);
        }
    }
}

/// All partitions of a table, sorted: engines differ in their order.
async fn listed(opened: &OpenedStore, table: Table) -> Result<Vec<Partition>> {
    let (mut after, mut found): (Option<Bytes>, _) = (None, Vec::new());
    loop {
        let page = opened.store.partitions(table, after, 100, &common::call(Durability::Disk)).await?;
        found.extend(page.partitions);
        after = page.next;
        if after.is_none() {
            found.sort();
            return Ok(found);
        }
    }
}

fn address(partition: &Partition, name: Option<&Bytes>) -> String {
    let row = name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    format!("{}/{}/{row}", partition.table.name(), String::from_utf8_lossy(&partition.key))
}
