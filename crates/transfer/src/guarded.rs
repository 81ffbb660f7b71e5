//! Writes partitions of guarded tables: the rows first, under a provisional head, then the head itself.
//!
//! A provisional head has a stamp near zero, so a resumed import sees that the partition is unfinished. A head with the exported
//! stamp, or a greater one, marks a finished partition.

use bytes::Bytes;
use larder_store::{CasResult, Change, HeadWrite, Kind, Partition, ReadQuery, Row, Timestamp};

use crate::derived::head_with_derived_row;
use crate::record::{GuardPosition, PartitionRows};
use crate::retry::{read, with_retries};
use crate::{Error, Result, StorePair};

const WHAT: &str = "writing a guarded partition";
/// How often a compare-and-set retries after it met another head.
const ATTEMPTS: usize = 20;

/// Writes rows of a partition, and its head if they are the last.
///
/// # Errors
/// An error of the store.
pub(crate) async fn put(stores: &StorePair, record: PartitionRows, batch_max: usize) -> Result<()> {
    let PartitionRows { partition, guard, mut rows } = record;
    let Some(GuardPosition { head: stamp, last, .. }) = guard else { return Ok(()) };
    let head = last.then(|| rows.remove(0));
    let name = head.as_ref().map_or_else(Bytes::new, |head| head.name.clone());
    let mut current = head_stamp(stores, &partition, &name).await?;
    // An earlier run finished this partition, or a client wrote it since: either is newer than the record.
    if current.is_some_and(|current| current >= stamp) {
        return Ok(());
    }
    let reserved = head.as_ref().map_or(0, |head| 2 * head.value.len() + 4096);
    // One compare-and-set per batch: a large partition does not fit one.
    let mut changes = into_batches(rows, batch_max.saturating_sub(reserved + partition.key.len() + 1024));
    let last = if head.is_some() { changes.pop().unwrap_or_default() } else { Vec::new() };
    // A crash in this loop leaves a provisional head: readers reject the partition, and the next run writes it again.
    for part in changes {
        let provisional = |current: Option<Timestamp>| HeadWrite::from(provisional_head(current));
        current = Some(compare_and_set(stores, &partition, current, part, &provisional).await?);
    }
    if let Some(head) = head {
        let head =
            head_with_derived_row(&partition, head).map_err(|error| Error::unreadable("reading a head", error))?;
        // The real head comes with the last rows, in one step: no reader sees it without them.
        compare_and_set(stores, &partition, current, last, &|_| head.clone()).await?;
    }
    Ok(())
}

/// A head that readers reject: no value has format 0.
fn provisional_head(current: Option<Timestamp>) -> Row {
    Row { name: Bytes::new(), value: Bytes::from_static(&[0]), stamp: current.unwrap_or_default() + 2, expires: None }
}

/// Tries until the partition has the wanted head, and returns its stamp.
async fn compare_and_set(
    stores: &StorePair,
    partition: &Partition,
    mut expected: Option<Timestamp>,
    changes: Vec<Change>,
    head: &(dyn Fn(Option<Timestamp>) -> HeadWrite + Send + Sync),
) -> Result<Timestamp> {
    for _ in 0..ATTEMPTS {
        let next = head(expected);
        // A timed-out write may have happened: the stamp read below tells.
        if try_compare_and_set(WHAT, stores, partition, expected, &next, &changes).await? == Some(CasResult::Applied) {
            return Ok(next.row.stamp);
        }
        let stamp = head_stamp(stores, partition, &next.row.name).await?;
        if stamp.is_some_and(|stamp| stamp >= next.row.stamp) {
            return Ok(stamp.unwrap_or_default());
        }
        expected = stamp;
    }
    Err(Error::Refused(format!(
        "a partition of {} changes all the time: is the server in use?",
        partition.table.name()
    )))
}

/// Tries a compare-and-set once; `None` when it timed out.
pub(crate) async fn try_compare_and_set(
    what: &'static str,
    stores: &StorePair,
    partition: &Partition,
    expected: Option<Timestamp>,
    head: &HeadWrite,
    changes: &[Change],
) -> Result<Option<CasResult>> {
    let store = &stores.store;
    let attempt = |options| async move {
        match store.apply_if(partition, expected, head.clone(), changes.to_vec(), &options).await {
            Err(error) if error.kind == Kind::TimedOut => Ok(None),
            other => other.map(Some),
        }
    };
    with_retries(what, attempt).await
}

/// The stamp of a partition's head, if it has one.
pub(crate) async fn head_stamp(stores: &StorePair, partition: &Partition, name: &Bytes) -> Result<Option<Timestamp>> {
    let page = read(stores, partition, &ReadQuery::one(name.clone())).await?;
    Ok(page.rows.first().map(|row| row.stamp))
}

/// Rows as changes, in batches of at most `bytes_max`; a longer row has a batch of its own. At least one batch.
pub(crate) fn into_batches(rows: Vec<Row>, bytes_max: usize) -> Vec<Vec<Change>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for row in rows {
        let more = row.name.len() + row.value.len() + 32;
        if bytes + more > bytes_max && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.push(Change::Put(row));
        }
    }
    parts
}
