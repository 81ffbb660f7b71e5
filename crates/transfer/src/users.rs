//! The users of the S3 interface: every server that serves S3 has made an admin when it was first started, so they are
//! replaced, not added. Only the order of their stamps matters, so they get new ones where theirs are older than what is there.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_store::{Change, Head, Kind, Partition, ReadQuery, Row, Stopped, Swap};

use crate::calls::{patiently, read};
use crate::guarded::in_parts;
use crate::record::{Guard, Rows};
use crate::{Ends, Error, Result};

const WHAT: &str = "writing the S3 users";
/// Rows of one user, the head among them: the admin made at the first start has no more.
const FIRST_ADMIN_ROWS: usize = 5;
const PAGE_ROWS: usize = 1000;
const ATTEMPTS: usize = 20;

/// Whether there are more users than the admin every server makes.
///
/// # Errors
/// What the store answers.
pub(crate) async fn are_there(ends: &Ends) -> Result<bool> {
    let page = read(ends, &Partition::users(), &ReadQuery::all(FIRST_ADMIN_ROWS + 1)).await?;
    Ok(page.rows.len() > FIRST_ADMIN_ROWS)
}

/// Writes users. With the first of them all that are there go.
///
/// # Errors
/// What the store answers.
pub(crate) async fn put(ends: &Ends, record: Rows, batch_max: usize) -> Result<()> {
    let Rows { guard: Some(Guard { first, last, .. }), mut rows, .. } = record else { return Ok(()) };
    let head = last.then(|| rows.remove(0));
    if first {
        let wanted: BTreeSet<Bytes> = rows.iter().map(|row| row.name.clone()).collect();
        let gone: Vec<Row> = all(ends).await?.into_iter().filter(|row| !wanted.contains(&row.name)).collect();
        let gone = gone.into_iter().filter(|row| !row.name.is_empty());
        let gone: Vec<Change> = gone.map(|row| Change::Remove { name: row.name, stamp: row.stamp }).collect();
        swap(ends, &gone, None).await?;
    }
    let mut parts = in_parts(rows, batch_max / 2);
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        swap(ends, &part, None).await?;
    }
    swap(ends, &end, head.as_ref()).await
}

async fn all(ends: &Ends) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
        let page = read(ends, &Partition::users(), &query).await?;
        rows.extend(page.rows);
        if page.stopped == Stopped::End {
            return Ok(rows);
        }
    }
}

/// Makes changes under a head that is newer than the one that is there, and newer than all rows: `head`, or the same again.
async fn swap(ends: &Ends, changes: &[Change], head: Option<&Row>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let page = read(ends, &Partition::users(), &ReadQuery::one(Bytes::new())).await?;
        let current = page.rows.into_iter().next();
        let (expected, value) = match (&current, head) {
            (current, Some(head)) => (current.as_ref().map(|row| row.stamp), head.value.clone()),
            (Some(current), None) => (Some(current.stamp), current.value.clone()),
            // Nobody is there yet, so nothing has to go.
            (None, None) => (None, Bytes::from_static(&[1])),
        };
        let newest = changes.iter().map(|change| if let Change::Put(row) = change { row.stamp } else { 0 }).max();
        let stamp = (expected.unwrap_or(0) + 2).max(newest.unwrap_or(0)).max(head.map_or(0, |head| head.stamp));
        let restamped = |change: &Change| match change {
            Change::Put(row) => Change::Put(Row { stamp, ..row.clone() }),
            other => other.clone(),
        };
        let changes: Vec<Change> = changes.iter().map(restamped).collect();
        let next = Head::from(Row { name: Bytes::new(), value, stamp, expires: None });
        let (store, next, changes, partition) = (&ends.store, &next, &changes, &Partition::users());
        let try_it = |options| async move {
            match store.apply_if(partition, expected, next.clone(), changes.clone(), &options).await {
                // Doing it once more does no harm.
                Err(error) if error.kind == Kind::TimedOut => Ok(None),
                other => other.map(Some),
            }
        };
        if patiently(WHAT, try_it).await? == Some(Swap::Applied) {
            return Ok(());
        }
    }
    Err(Error::Refused("the S3 users change all the time: is the server in use?".to_owned()))
}
