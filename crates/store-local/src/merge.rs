//! What a change does to rows: pure, the one place where stamps decide.

use larder_store::{Change, Micros, Row, Stamp};

/// Applies a change to the rows of a packed partition, which are in the order of their names and stay so.
/// Answers whether anything is different now.
pub(crate) fn change_rows(rows: &mut Vec<Row>, change: &Change) -> bool {
    match change {
        Change::Put(row) => put_row(rows, row),
        Change::Remove { name, stamp } => match rows.binary_search_by(|row| row.name.cmp(name)) {
            Ok(at) if falls(&rows[at], *stamp) => {
                rows.remove(at);
                true
            }
            _ => false,
        },
        Change::Clear { stamp } => retain(rows, |row| !falls(row, *stamp)),
    }
}

/// Takes out the rows that are not there any more. Answers whether there were any.
pub(crate) fn purge(rows: &mut Vec<Row>, now: Micros) -> bool {
    retain(rows, |row| row.is_live(now))
}

/// Whether a removal at `stamp` takes this row: it wins a tie.
pub(crate) fn falls(row: &Row, stamp: Stamp) -> bool {
    row.stamp <= stamp
}

/// Whether writing `new` over `old` changes anything.
pub(crate) fn stays(new: &Row, old: &Row) -> bool {
    new.supersedes(old) && new != old
}

fn put_row(rows: &mut Vec<Row>, row: &Row) -> bool {
    match rows.binary_search_by(|old| old.name.cmp(&row.name)) {
        Ok(at) if stays(row, &rows[at]) => rows[at] = row.clone(),
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

    fn row(name: &'static str, stamp: Stamp, value: &'static str) -> Row {
        Row { name: name.into(), value: value.into(), stamp, expires: None }
    }

    fn after(changes: &[Change]) -> Vec<Row> {
        let mut rows = Vec::new();
        for change in changes {
            change_rows(&mut rows, change);
        }
        rows
    }

    #[test]
    fn the_newer_stamp_stays_then_the_greater_value() {
        let (old, new, greater) = (row("a", 1, "z"), row("a", 2, "b"), row("a", 2, "c"));
        let mut orders = [old, new, greater.clone()].map(Change::Put).to_vec();
        for _ in 0..3 {
            orders.rotate_left(1);
            assert_eq!(after(&orders), vec![greater.clone()]);
        }
    }

    #[test]
    fn a_removal_wins_a_tie_and_spares_what_is_newer() {
        let put = Change::Put(row("a", 5, "x"));
        assert!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: 5 }]).is_empty());
        assert_eq!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: 4 }]).len(), 1);
        assert!(after(&[put.clone(), Change::Clear { stamp: 5 }]).is_empty());
        assert_eq!(after(&[put, Change::Clear { stamp: 4 }]).len(), 1);
    }
}
