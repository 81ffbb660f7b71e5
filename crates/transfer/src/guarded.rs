//! Partitions of guarded tables: the rows first, under a head that says nothing, then the head itself.
//!
//! The heads in between have stamps near zero, so whoever goes on with an interrupted import sees that the partition is not
//! done; one with the head's own stamp, or a greater one, is.

use bytes::Bytes;
use larder_store::{Change, Head, Kind, Partition, ReadQuery, Row, Stamp, Swap};

use crate::calls::{patiently, read};
use crate::record::{Guard, Rows};
use crate::shadow::head_of;
use crate::{Ends, Error, Result};

const WHAT: &str = "writing a guarded partition";
/// How often a swap is tried that meets another head than expected.
const ATTEMPTS: usize = 20;

/// Writes rows of a partition, and its head if they are the last.
///
/// # Errors
/// What the store answers.
pub(crate) async fn put(ends: &Ends, record: Rows, batch_max: usize) -> Result<()> {
    let Rows { partition, guard, mut rows } = record;
    let Some(Guard { head: stamp, last, .. }) = guard else { return Ok(()) };
    let head = last.then(|| rows.remove(0));
    let name = head.as_ref().map_or_else(Bytes::new, |head| head.name.clone());
    let mut current = head_stamp(ends, &partition, &name).await?;
    if current.is_some_and(|current| current >= stamp) {
        return Ok(());
    }
    let reserved = head.as_ref().map_or(0, |head| 2 * head.value.len() + 4096);
    let mut changes = in_parts(rows, batch_max.saturating_sub(reserved + partition.key.len() + 1024));
    let last = if head.is_some() { changes.pop().unwrap_or_default() } else { Vec::new() };
    for part in changes {
        let provisional = |current: Option<Stamp>| Head::from(nothing_yet(current));
        current = Some(swap(ends, &partition, current, part, &provisional).await?);
    }
    if let Some(head) = head {
        let head = head_of(&partition, head).map_err(|error| Error::unreadable("reading a head", error))?;
        swap(ends, &partition, current, last, &|_| head.clone()).await?;
    }
    Ok(())
}

/// A head that no reader takes for one: format 0 is none.
fn nothing_yet(current: Option<Stamp>) -> Row {
    Row { name: Bytes::new(), value: Bytes::from_static(&[0]), stamp: current.unwrap_or(0) + 2, expires: None }
}

/// Swaps until the partition has the head that is asked for; answers its stamp.
async fn swap(
    ends: &Ends,
    partition: &Partition,
    mut expected: Option<Stamp>,
    changes: Vec<Change>,
    head: &(dyn Fn(Option<Stamp>) -> Head + Send + Sync),
) -> Result<Stamp> {
    for _ in 0..ATTEMPTS {
        let next = head(expected);
        let (store, sent, rows) = (&ends.store, &next, &changes);
        let try_it = |options| async move {
            match store.apply_if(partition, expected, sent.clone(), rows.clone(), &options).await {
                // Whether it happened the head says: it is asked below.
                Err(error) if error.kind == Kind::TimedOut => Ok(None),
                other => other.map(Some),
            }
        };
        if patiently(WHAT, try_it).await? == Some(Swap::Applied) {
            return Ok(next.row.stamp);
        }
        let found = head_stamp(ends, partition, &next.row.name).await?;
        if found.is_some_and(|found| found >= next.row.stamp) {
            return Ok(found.unwrap_or_default());
        }
        expected = found;
    }
    Err(Error::Refused(format!(
        "a partition of {} changes all the time: is the server in use?",
        partition.table.name()
    )))
}

/// The stamp of a partition's head, if it has one.
pub(crate) async fn head_stamp(ends: &Ends, partition: &Partition, name: &Bytes) -> Result<Option<Stamp>> {
    let page = read(ends, partition, &ReadQuery::one(name.clone())).await?;
    Ok(page.rows.first().map(|row| row.stamp))
}

/// Rows as changes, in parts of at most so many bytes; a row that is longer has a part of its own. At least one part.
pub(crate) fn in_parts(rows: Vec<Row>, bytes_max: usize) -> Vec<Vec<Change>> {
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
