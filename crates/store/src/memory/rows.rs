//! Changes to the rows of one partition, without locks and clocks.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::{Change, Range, ReadOrder, ReadQuery, Row, RowPage, Stopped, Timestamp};

/// Rows of one partition by name.
pub type RowMap = BTreeMap<Bytes, Row>;

/// Effect of a change: the rows it removed or replaced, and the row it added.
#[derive(Default)]
pub(super) struct ChangeEffect {
    pub(super) removed: Vec<Row>,
    pub(super) added: Option<Row>,
}

/// Applies one change.
pub(super) fn change(rows: &mut RowMap, change: Change) -> ChangeEffect {
    match change {
        Change::Put(row) => put(rows, row),
        Change::Remove { name, stamp } => remove(rows, &name, stamp),
        Change::Clear { stamp } => clear(rows, stamp),
    }
}

fn put(rows: &mut RowMap, row: Row) -> ChangeEffect {
    // The stamps decide, not the order of arrival [invariant 40].
    if rows.get(&row.name).is_some_and(|present| !row.supersedes(present)) {
        return ChangeEffect::default();
    }
    let removed = rows.insert(row.name.clone(), row.clone());
    ChangeEffect { removed: removed.into_iter().collect(), added: Some(row) }
}

fn remove(rows: &mut RowMap, name: &Bytes, stamp: Timestamp) -> ChangeEffect {
    // A removal wins a tie with the stamp of the row [invariant 40].
    let taken = rows.get(name).is_some_and(|row| row.stamp <= stamp);
    let removed = if taken { rows.remove(name) } else { None };
    ChangeEffect { removed: removed.into_iter().collect(), added: None }
}

fn clear(rows: &mut RowMap, stamp: Timestamp) -> ChangeEffect {
    let removed: Vec<Row> = rows.values().filter(|row| row.stamp <= stamp).cloned().collect();
    rows.retain(|_, row| row.stamp > stamp);
    ChangeEffect { removed, added: None }
}

/// The page of `rows` that `query` reads at `now`.
#[must_use]
pub fn page(rows: &RowMap, query: &ReadQuery, now: Timestamp) -> RowPage {
    let Some(bounds) = bounds(&query.range) else {
        return RowPage { rows: Vec::new(), stopped: Stopped::End };
    };
    let live = rows.range::<Bytes, _>(bounds).map(|(_, row)| row).filter(|row| row.is_live(now));
    match query.order {
        ReadOrder::Forward => first(live, query.limit),
        ReadOrder::Reverse => first(live.rev(), query.limit),
    }
}

/// Bounds for a map lookup; `None` for an empty range, on which a map panics.
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

fn first<'a>(mut live: impl Iterator<Item = &'a Row>, limit: usize) -> RowPage {
    let rows = live.by_ref().take(limit).cloned().collect();
    let stopped = if live.next().is_some() { Stopped::Limit } else { Stopped::End };
    RowPage { rows, stopped }
}
