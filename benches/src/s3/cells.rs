//! The cells of S3: their operations and bounds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bucket::{BucketJob, S3Subject, before_half, loaded, made};
use super::driver::{PAGE_MAX, S3Driver};
use super::xml;
use crate::cells::{Cell, CellResult, OperationLabel, measure};
use crate::limits::{CELL_OPERATIONS_MAX, CELL_WRITTEN_BYTES_MAX};
use crate::worker::{MeasureWindow, RepeatedOperation, UnexpectedAnswer, expect};

/// The value sizes of the cells.
pub(crate) const VALUE_BYTES: [usize; 3] = [4 * 1_024, 1_024 * 1_024, 64 * 1_024 * 1_024];

/// The size of every part but the last.
const PART_BYTES: usize = 5 * 1_024 * 1_024;

/// The largest range; of smaller values a quarter is read.
const RANGE_BYTES_MAX: usize = 1_024 * 1_024;

/// The operation that a connection repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum S3BenchOperation {
    /// PUT of a new key.
    Put,
    /// GET of a loaded key.
    Get,
    /// GET of a range of a loaded key at a random offset.
    RangeGet,
    /// A full page of ListObjectsV2 after a random key.
    List,
    /// Initiate, all parts one after the other, complete, counted as one operation.
    Multipart,
    /// DELETE of a key that a PUT made.
    Delete,
}

impl S3BenchOperation {
    /// All operations in the order of the run: the deletes remove the keys of the PUTs before the uploads make more.
    pub(crate) const IN_TURN: [Self; 6] =
        [Self::Put, Self::Get, Self::RangeGet, Self::List, Self::Delete, Self::Multipart];

    /// The label of its cells.
    pub(crate) fn label(self) -> OperationLabel {
        let name = match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::RangeGet => "range get",
            Self::List => "list, page of 1000",
            Self::Multipart => "multipart",
            Self::Delete => "delete",
        };
        OperationLabel { rank: self as u8, name, has_size: self != Self::List }
    }

    /// Whether it is run with values of this size.
    pub(crate) fn is_run_with(self, value_bytes: usize) -> bool {
        match self {
            Self::List => value_bytes == VALUE_BYTES[0],
            Self::Multipart => value_bytes == VALUE_BYTES[2],
            _ => true,
        }
    }

    /// The bytes of bodies that one operation moves.
    fn moved_bytes(self, value_bytes: usize) -> usize {
        match self {
            Self::Put | Self::Get | Self::Multipart => value_bytes,
            Self::RangeGet => range_bytes(value_bytes),
            Self::List | Self::Delete => 0,
        }
    }

    /// The most operations of a cell: its writes are bounded, and the keys that it deletes must exist.
    fn bound(self, value_bytes: usize, connections: u64, made: u64) -> u64 {
        let all = match self {
            Self::Get | Self::RangeGet | Self::List => CELL_OPERATIONS_MAX,
            Self::Put | Self::Multipart => CELL_OPERATIONS_MAX.min(CELL_WRITTEN_BYTES_MAX / value_bytes as u64),
            // The first of the two cells leaves half of the keys to the other.
            Self::Delete if connections == 1 => made / 2,
            Self::Delete => made,
        };
        all / connections
    }
}

/// The numbers of connections of the cells of this size.
pub(crate) fn connections(value_bytes: usize) -> [u64; 2] {
    if value_bytes == VALUE_BYTES[2] { [1, 4] } else { [1, 16] }
}

fn range_bytes(value_bytes: usize) -> usize {
    (value_bytes / 4).clamp(1, RANGE_BYTES_MAX)
}

/// The sizes of the parts of a value: all but the last are equal.
fn parts(value_bytes: usize) -> impl Iterator<Item = usize> {
    (0..value_bytes).step_by(PART_BYTES).map(move |from| PART_BYTES.min(value_bytes - from))
}

/// The numbers of the keys that cells made and have not deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct CreatedKeys(Arc<Mutex<Vec<u64>>>);

impl CreatedKeys {
    fn add(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    fn take(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// The number of these keys.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Makes keys until `count` exist.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub(crate) async fn fill_up(&self, subject: &S3Subject, value_bytes: usize, count: u64) -> Result<()> {
        let missing = count.saturating_sub(self.count());
        // Loads use numbers below those of cells, so the keys do not collide: see [`run`].
        subject.work(BucketJob::Make(value_bytes), missing).await?;
        (0..missing).for_each(|number| self.add(number));
        Ok(())
    }

    /// Deletes them all.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub(crate) async fn delete(&self, subject: &S3Subject) -> Result<()> {
        let keys: Vec<String> = std::iter::from_fn(|| self.take()).map(made).collect();
        let count = keys.len() as u64;
        subject.work(BucketJob::Delete(Arc::new(keys)), count).await.map(drop)
    }
}

/// Runs one cell.
///
/// # Errors
///
/// When a connection cannot be made. Later failures are part of the result.
pub(crate) async fn run(
    subject: &S3Subject,
    cell: Cell,
    operation: S3BenchOperation,
    loaded: u64,
    made: &CreatedKeys,
    length: Duration,
) -> Result<CellResult> {
    let first = subject.new_keys.fetch_add(CELL_OPERATIONS_MAX, Ordering::Relaxed);
    let step = cell.connections as u64;
    let bound = operation.bound(cell.value_bytes, step, made.count());
    let mut workers = Vec::with_capacity(cell.connections);
    for index in 0..step {
        let driver = subject.connect(first + index).await?;
        let (value_bytes, new_key, made) = (cell.value_bytes, first + index, made.clone());
        workers.push(S3Worker { driver, operation, value_bytes, loaded, new_key, step, made });
    }
    let window = match operation {
        S3BenchOperation::Delete => MeasureWindow::at_once(Instant::now(), length),
        _ => MeasureWindow::after_warming_up(Instant::now(), length),
    };
    measure(subject.pid, cell, workers, bound, window).await
}

/// The cell of an operation.
pub(crate) fn cell(operation: S3BenchOperation, value_bytes: usize, connections: u64) -> Cell {
    Cell {
        operation: operation.label(),
        value_bytes,
        connections: connections as usize,
        moved_bytes: operation.moved_bytes(value_bytes),
    }
}

/// A connection that repeats one operation.
struct S3Worker {
    driver: S3Driver,
    operation: S3BenchOperation,
    value_bytes: usize,
    loaded: u64,
    new_key: u64,
    step: u64,
    made: CreatedKeys,
}

impl RepeatedOperation for S3Worker {
    async fn once(&mut self) -> Result<UnexpectedAnswer> {
        match self.operation {
            S3BenchOperation::Put => self.put().await,
            S3BenchOperation::Get => {
                let key = self.loaded_key();
                Ok(expect(200, Some(self.value_bytes as u64), self.driver.get(&key).await?))
            }
            S3BenchOperation::RangeGet => self.range_get().await,
            S3BenchOperation::List => self.list().await,
            S3BenchOperation::Multipart => self.multipart().await,
            S3BenchOperation::Delete => match self.made.take() {
                Some(number) => Ok(expect(204, None, self.driver.delete(&made(number)).await?)),
                None => Ok(Some("nothing left to delete".to_owned())),
            },
        }
    }
}

impl S3Worker {
    fn loaded_key(&mut self) -> String {
        loaded(self.driver.random.below(self.loaded))
    }

    fn next_key(&mut self) -> u64 {
        let number = self.new_key;
        self.new_key += self.step;
        number
    }

    async fn put(&mut self) -> Result<UnexpectedAnswer> {
        let number = self.next_key();
        let unexpected = expect(200, None, self.driver.put(&made(number), self.value_bytes).await?);
        if unexpected.is_none() {
            self.made.add(number);
        }
        Ok(unexpected)
    }

    async fn range_get(&mut self) -> Result<UnexpectedAnswer> {
        let key = self.loaded_key();
        let bytes = range_bytes(self.value_bytes) as u64;
        let from = self.driver.random.below(self.value_bytes as u64 - bytes + 1);
        Ok(expect(206, Some(bytes), self.driver.get_range(&key, from..from + bytes).await?))
    }

    async fn list(&mut self) -> Result<UnexpectedAnswer> {
        let from = before_half(self.driver.random.next());
        let unexpected = expect(200, None, self.driver.list(None, &from).await?);
        let keys = xml::count(self.driver.page(), "Key");
        Ok(unexpected.or_else(|| (keys != PAGE_MAX).then(|| format!("a page of {keys} keys"))))
    }

    async fn multipart(&mut self) -> Result<UnexpectedAnswer> {
        let number = self.next_key();
        let key = made(number);
        let upload = self.driver.initiate(&key).await?;
        let mut etags = Vec::new();
        for (part, bytes) in (1..).zip(parts(self.value_bytes)) {
            etags.push(self.driver.part(&key, &upload, part, bytes).await?);
        }
        self.driver.complete(&key, &upload, &etags).await?;
        self.made.add(number);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        let sizes: Vec<usize> = parts(VALUE_BYTES[2]).collect();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (13, VALUE_BYTES[2]));
        assert!(sizes[..12].iter().all(|bytes| *bytes == PART_BYTES));
    }

    #[test]
    fn writes_and_deletes_of_a_cell_are_bounded() {
        let bytes = VALUE_BYTES[2];
        assert_eq!(S3BenchOperation::Put.bound(bytes, 4, 0) * 4 * bytes as u64, CELL_WRITTEN_BYTES_MAX);
        assert_eq!(S3BenchOperation::Delete.bound(bytes, 1, 64), 32);
        assert_eq!(S3BenchOperation::Delete.bound(bytes, 4, 32) * 4, 32);
    }

    #[test]
    fn every_operation_is_run_once() {
        let mut in_turn = S3BenchOperation::IN_TURN;
        in_turn.sort_unstable();
        assert!((0..).zip(in_turn).all(|(rank, operation)| operation.label().rank == rank));
    }
}
