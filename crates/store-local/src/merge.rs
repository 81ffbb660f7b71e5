//! Applies changes to rows: pure, the one place that compares stamps (last write wins).

use larder_store::{Change, Row, Timestamp};

/// Applies a change to the rows of a packed partition, which stay sorted by name. Returns whether a row changed.
pub(crate) fn apply_change(rows: &mut Vec<Row>, change: &Change) -> bool {
    match change {
        Change::Put(row) => put_row(rows, row),
        Change::Remove { name, stamp } => match rows.binary_search_by(|row| row.name.cmp(name)) {
            Ok(at) if is_removed_by(&rows[at], *stamp) => {
                rows.remove(at);
                true
            }
            _ => false,
        },
        Change::Clear { stamp } => retain(rows, |row| !is_removed_by(row, *stamp)),
    }
}

/// Removes expired rows. Returns whether there were any.
pub(crate) fn drop_expired(rows: &mut Vec<Row>, now: Timestamp) -> bool {
    retain(rows, |row| row.is_live(now))
}

/// Whether a removal at `stamp` removes this row; the removal wins a tie.
pub(crate) fn is_removed_by(row: &Row, stamp: Timestamp) -> bool {
    row.stamp <= stamp
}

/// Whether a write of `new` over `old` changes the row.
pub(crate) fn changes_row(new: &Row, old: &Row) -> bool {
    new.supersedes(old) && new != old
}

fn put_row(rows: &mut Vec<Row>, row: &Row) -> bool {
    match rows.binary_search_by(|old| old.name.cmp(&row.name)) {
        Ok(at) if changes_row(row, &rows[at]) => rows[at] = row.clone(),
        Ok(_) => return false,
        Err(at) => rows.insert(at, row.clone()),
    }
    true
}

fn retain(rows: &mut Vec<Row>, keep: impl Fn(&Row) -> bool) -> bool {
    let before = rows.len();
    rows.retain(keep);
    rows.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, stamp: Timestamp, value: &'static str) -> Row {
        Row { name: name.into(), value: value.into(), stamp, expires: None }
    }

    fn after(changes: &[Change]) -> Vec<Row> {
        let mut rows = Vec::new();
        for change in changes {
            apply_change(&mut rows, change);
        }
        rows
    }

    #[test]
    fn the_newer_stamp_wins_and_then_the_greater_value() {
        let (old, new, greater) =
            (row("a", Timestamp(1), "z"), row("a", Timestamp(2), "b"), row("a", Timestamp(2), "c"));
        let mut orders = [old, new, greater.clone()].map(Change::Put).to_vec();
        for _ in 0..3 {
            orders.rotate_left(1);
            assert_eq!(after(&orders), vec![greater.clone()]);
        }
    }

    #[test]
    fn a_removal_wins_a_tie_and_spares_newer_rows() {
        let put = Change::Put(row("a", Timestamp(5), "x"));
        assert!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: Timestamp(5) }]).is_empty());
        assert_eq!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: Timestamp(4) }]).len(), 1);
        assert!(after(&[put.clone(), Change::Clear { stamp: Timestamp(5) }]).is_empty());
        assert_eq!(after(&[put, Change::Clear { stamp: Timestamp(4) }]).len(), 1);
    }
}
