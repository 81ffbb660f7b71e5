//! What an element of a replication queue means for its key, beside what was moved before.
//!
//! An element is the state of a key at one moment. Queues of several nodes are read side by side, so an older moment may come
//! after a younger one, and a deletion before the write that it deleted. A clock that saw all that the moved one saw is newer,
//! whatever came in between. Wherever that does not decide, the source is asked for the state of now.

use larder_rows::{MovedRow, MovedState};

use super::vector_clock::{ClockOrder, VectorClock};

/// What is done with an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueStep {
    /// Nothing: what was moved is this state, or a newer one.
    Drop,
    /// It replaces what was moved.
    Apply,
    /// The key is read at the source: the element does not decide.
    Fetch,
}

impl QueueStep {
    /// The step for an element with this clock; `row`: what was moved before.
    #[must_use]
    pub fn behind(clock: &VectorClock, is_deleted: bool, row: Option<&MovedRow>) -> Self {
        let Some(row) = row else { return Self::Apply };
        let Ok(moved) = VectorClock::from_deflated(&row.clock) else { return Self::Fetch };
        if row.concurrent || !row.complete {
            return Self::Fetch;
        }
        // Race: a deletion was moved and its tombstone is gone at the source. A live state beside it is a write of before, which
        // another node hands out late, or one of a key that began a clock of its own [invariant 190].
        let is_back = row.state == MovedState::Deleted && !is_deleted;
        let is_gone = row.state != MovedState::Deleted && is_deleted;
        match clock.compare(&moved) {
            _ if is_back => Self::Fetch,
            ClockOrder::Newer => Self::Apply,
            // Race: the queues of two nodes hand out two writes of a key in the other order [invariant 189].
            ClockOrder::Older => Self::Drop,
            ClockOrder::Equal if is_gone => Self::Fetch,
            ClockOrder::Equal => Self::Drop,
            // Two nodes took a write each, and neither element has both: the source has, or will have.
            ClockOrder::Concurrent => Self::Fetch,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use larder_rows::Timestamp;

    use super::*;
    use crate::rules::VectorClockEntry;

    fn clock(entries: &[(&'static str, u64)]) -> VectorClock {
        let entry = |(actor, count): &(&'static str, u64)| VectorClockEntry {
            actor: Bytes::from_static(actor.as_bytes()),
            count: *count,
            seconds: 63_962_566_686,
        };
        VectorClock::new(entries.iter().map(entry).collect())
    }

    fn row(state: MovedState, entries: &[(&'static str, u64)]) -> MovedRow {
        MovedRow {
            state,
            concurrent: false,
            complete: true,
            written: 1,
            stamp: Timestamp(1),
            clock: clock(entries).to_deflated(),
        }
    }

    fn step(is_deleted: bool, entries: &[(&'static str, u64)], row: &MovedRow) -> QueueStep {
        QueueStep::behind(&clock(entries), is_deleted, Some(row))
    }

    #[test]
    fn a_newer_state_replaces_and_an_older_one_is_dropped() {
        let here = row(MovedState::Here, &[("a", 2), ("b", 1)]);
        assert_eq!(QueueStep::behind(&clock(&[("a", 1)]), false, None), QueueStep::Apply);
        assert_eq!(QueueStep::behind(&clock(&[("a", 1)]), true, None), QueueStep::Apply);
        for is_deleted in [false, true] {
            assert_eq!(step(is_deleted, &[("a", 3), ("b", 1)], &here), QueueStep::Apply);
            assert_eq!(step(is_deleted, &[("a", 2)], &here), QueueStep::Drop);
            assert_eq!(step(is_deleted, &[("a", 3)], &here), QueueStep::Fetch, "concurrent");
        }
        assert_eq!(step(false, &[("a", 2), ("b", 1)], &here), QueueStep::Drop);
        let kept = MovedRow { state: MovedState::Kept, ..here };
        assert_eq!(step(false, &[("a", 2), ("b", 2)], &kept), QueueStep::Apply);
    }

    #[test]
    fn a_live_state_beside_a_deletion_is_asked_for() {
        let deleted = row(MovedState::Deleted, &[("a", 2)]);
        for entries in [&[("a", 1)][..], &[("a", 2)], &[("a", 3)], &[("b", 1)]] {
            assert_eq!(step(false, entries, &deleted), QueueStep::Fetch);
        }
        assert_eq!(step(true, &[("a", 3)], &deleted), QueueStep::Apply);
        assert_eq!(step(true, &[("a", 2)], &deleted), QueueStep::Drop);
        assert_eq!(step(true, &[("a", 2)], &row(MovedState::Here, &[("a", 2)])), QueueStep::Fetch);
    }

    #[test]
    fn a_row_that_the_next_look_reads_again_decides_nothing() {
        let here = row(MovedState::Here, &[("a", 2)]);
        for row in [
            MovedRow { concurrent: true, ..here.clone() },
            MovedRow { complete: false, ..here.clone() },
            MovedRow { clock: Bytes::from_static(b"a context of a Larder"), ..here },
        ] {
            assert_eq!(step(false, &[("a", 3)], &row), QueueStep::Fetch);
        }
    }
}
