//! The rules of one partition, without locks and time of their own.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::{Change, Micros, Order, Page, Range, ReadQuery, Row, Stamp, Stopped};

/// Rows of one partition by name.
pub(crate) type Rows = BTreeMap<Bytes, Row>;

/// What a change did: rows that are not there any more, and the one that is there now.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) gone: Vec<Row>,
    pub(super) came: Option<Row>,
}

/// Makes one change.
pub(super) fn change(rows: &mut Rows, change: Change) -> Outcome {
    match change {
        Change::Put(row) => put(rows, row),
        Change::Remove { name, stamp } => remove(rows, &name, stamp),
        Change::Clear { stamp } => clear(rows, stamp),
    }
}

fn put(rows: &mut Rows, row: Row) -> Outcome {
    if rows.get(&row.name).is_some_and(|present| !row.supersedes(present)) {
        return Outcome::default();
    }
    let gone = rows.insert(row.name.clone(), row.clone());
    Outcome { gone: gone.into_iter().collect(), came: Some(row) }
}

fn remove(rows: &mut Rows, name: &Bytes, stamp: Stamp) -> Outcome {
    let taken = rows.get(name).is_some_and(|row| row.stamp <= stamp);
    let gone = if taken { rows.remove(name) } else { None };
    Outcome { gone: gone.into_iter().collect(), came: None }
}

fn clear(rows: &mut Rows, stamp: Stamp) -> Outcome {
    let gone: Vec<Row> = rows.values().filter(|row| row.stamp <= stamp).cloned().collect();
    rows.retain(|_, row| row.stamp > stamp);
    Outcome { gone, came: None }
}

/// The page of `rows` that `query` asks for at `now`.
pub(crate) fn page(rows: &Rows, query: &ReadQuery, now: Micros) -> Page {
    let Some(bounds) = bounds(&query.range) else {
        return Page { rows: Vec::new(), stopped: Stopped::End };
    };
    let live = rows.range::<Bytes, _>(bounds).map(|(_, row)| row).filter(|row| row.is_live(now));
    match query.order {
        Order::Forward => first(live, query.limit),
        Order::Reverse => first(live.rev(), query.limit),
    }
}

/// Bounds that a map takes; `None` when nothing lies between them.
fn bounds(range: &Range) -> Option<(Bound<&Bytes>, Bound<&Bytes>)> {
    if let (Some(from), Some(to)) = (&range.from, &range.to)
        && from >= to
    {
        return None;
    }
    let from = range.from.as_ref().map_or(Bound::Unbounded, Bound::Included);
    let to = range.to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    Some((from, to))
}

fn first<'a>(mut live: impl Iterator<Item = &'a Row>, limit: usize) -> Page {
    let rows = live.by_ref().take(limit).cloned().collect();
    let stopped = if live.next().is_some() { Stopped::Limit } else { Stopped::End };
    Page { rows, stopped }
}
