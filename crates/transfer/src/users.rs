//! The users of the S3 interface. Each server with S3 creates an admin at its first start, so an import replaces the target's
//! users. Readers use only the order of user stamps, so an imported row gets a new stamp where its own is not the newest.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_store::{CasResult, Change, HeadWrite, Partition, ReadQuery, Row, Stopped};

use crate::guarded::{into_batches, try_compare_and_set};
use crate::record::{GuardPosition, PartitionRows};
use crate::retry::read;
use crate::{Error, Result, StorePair};

const WHAT: &str = "writing the S3 users";
/// Rows of the admin that a first start creates, its head among them.
const FIRST_ADMIN_ROWS: usize = 5;
const PAGE_ROWS: usize = 1000;
const ATTEMPTS: usize = 20;

/// Whether the target has more users than the admin of its first start.
///
/// # Errors
/// An error of the store.
pub(crate) async fn has_users(stores: &StorePair) -> Result<bool> {
    let page = read(stores, &Partition::users(), &ReadQuery::all(FIRST_ADMIN_ROWS + 1)).await?;
    Ok(page.rows.len() > FIRST_ADMIN_ROWS)
}

/// Writes users. The first rows also remove every user that is not among them.
///
/// # Errors
/// An error of the store.
pub(crate) async fn put(stores: &StorePair, record: PartitionRows, batch_max: usize) -> Result<()> {
    let PartitionRows { guard: Some(GuardPosition { first, last, .. }), mut rows, .. } = record else { return Ok(()) };
    let head = last.then(|| rows.remove(0));
    if first {
        let names: BTreeSet<Bytes> = rows.iter().map(|row| row.name.clone()).collect();
        let gone: Vec<Row> = all(stores).await?.into_iter().filter(|row| !names.contains(&row.name)).collect();
        let gone = gone.into_iter().filter(|row| !row.name.is_empty());
        let gone: Vec<Change> = gone.map(|row| Change::Remove { name: row.name, stamp: row.stamp }).collect();
        compare_and_set(stores, &gone, None).await?;
    }
    // Until the last rows the target keeps the value of its own head, under a newer stamp.
    let mut parts = into_batches(rows, batch_max / 2);
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        compare_and_set(stores, &part, None).await?;
    }
    compare_and_set(stores, &end, head.as_ref()).await
}

async fn all(stores: &StorePair) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
        let page = read(stores, &Partition::users(), &query).await?;
        rows.extend(page.rows);
        if page.stopped == Stopped::End {
            return Ok(rows);
        }
    }
}

/// Applies changes under a head newer than the current one and than all rows: `head`, or the current value again.
async fn compare_and_set(stores: &StorePair, changes: &[Change], head: Option<&Row>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let page = read(stores, &Partition::users(), &ReadQuery::one(Bytes::new())).await?;
        let current = page.rows.into_iter().next();
        let (expected, value) = match (&current, head) {
            (current, Some(head)) => (current.as_ref().map(|row| row.stamp), head.value.clone()),
            (Some(current), None) => (Some(current.stamp), current.value.clone()),
            // No user exists yet, so the changes remove none.
            (None, None) => (None, Bytes::from_static(&[1])),
        };
        let newest =
            changes.iter().map(|change| if let Change::Put(row) = change { row.stamp } else { Timestamp::ZERO }).max();
        // Above the head and above every row: readers order users by stamp alone.
        let stamp = (expected.unwrap_or_default() + 2)
            .max(newest.unwrap_or_default())
            .max(head.map_or(Timestamp::ZERO, |head| head.stamp));
        let restamped = |change: &Change| match change {
            Change::Put(row) => Change::Put(Row { stamp, ..row.clone() }),
            other => other.clone(),
        };
        let changes: Vec<Change> = changes.iter().map(restamped).collect();
        let next = HeadWrite::from(Row { name: Bytes::new(), value, stamp, expires: None });
        // A timed-out write may have happened; a second one has the same result.
        let partition = Partition::users();
        if try_compare_and_set(WHAT, stores, &partition, expected, &next, &changes).await? == Some(CasResult::Applied) {
            return Ok(());
        }
    }
    Err(Error::Refused("the S3 users change all the time: is the server in use?".to_owned()))
}
