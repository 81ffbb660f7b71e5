//! The last writers of a head: they tell whether a compare-and-set that got no answer was applied.
//!
//! Some engines apply a compare-and-set, drop it, or let another writer finish it later, while its own writer sees
//! `TimedOut`. There a head carries the ids of its last writers. One linearizable read of the head ends every write in
//! flight, and the list in the head then decides.

use bytes::{Buf, Bytes};

/// Ids in a history: as many writers as may follow while one of them waits for the outcome of its own write.
pub const CAS_HISTORY_MAX: usize = 32;

/// The last writers of a head, newest first. Each id belongs to one compare-and-set, and no other has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CasHistory {
    ids: [u64; CAS_HISTORY_MAX],
    count: usize,
}

/// The outcome of a compare-and-set that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CasOutcome {
    /// It was applied; others may have followed.
    Applied,
    /// It was not applied, and the head is unchanged: the writer may send it again.
    NotApplied,
    /// It was not applied, and another writer changed the head.
    Lost,
    /// So many writers followed that the head does not tell.
    Unknown,
}

impl CasHistory {
    /// The history after one more write.
    #[must_use]
    pub fn followed_by(&self, id: u64) -> Self {
        let mut history = Self { count: (self.count + 1).min(CAS_HISTORY_MAX), ..Self::default() };
        history.ids[0] = id;
        history.ids[1..history.count].copy_from_slice(&self.ids[..history.count - 1]);
        history
    }

    /// Whether `id` is one of the last writers.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.ids[..self.count].contains(&id)
    }

    /// The outcome of the write `id`, which was to replace a head with the history `replaced`, when the head now has
    /// this history. `unchanged`: the head still has the stamp that the write expects.
    #[must_use]
    pub fn own_outcome(&self, id: u64, replaced: &Self, unchanged: bool) -> CasOutcome {
        if self.contains(id) {
            return CasOutcome::Applied;
        }
        if unchanged {
            return CasOutcome::NotApplied;
        }
        // The oldest id leaves the list first. If the last writer of `replaced` is still listed, `id` would be listed
        // too.
        let is_complete = self.count < CAS_HISTORY_MAX || (replaced.count > 0 && self.contains(replaced.ids[0]));
        // Race: too many writers may have followed to tell, so the caller must not send the write again [invariant 21].
        if is_complete { CasOutcome::Lost } else { CasOutcome::Unknown }
    }

    /// The stored form: eight bytes for each id.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.ids[..self.count].iter().flat_map(|id| id.to_be_bytes()).collect()
    }

    /// Reads the stored form and ignores bytes it does not understand. That costs certainty, never data.
    #[must_use]
    pub fn decode(mut stored: Bytes) -> Self {
        let mut history = Self::default();
        while history.count < CAS_HISTORY_MAX && stored.len() >= 8 {
            history.ids[history.count] = stored.get_u64();
            history.count += 1;
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(ids: impl IntoIterator<Item = u64>) -> CasHistory {
        ids.into_iter().fold(CasHistory::default(), |history, id| history.followed_by(id))
    }

    #[test]
    fn a_history_keeps_the_last_writers_and_decodes_to_itself() {
        assert!(!CasHistory::default().contains(0), "an empty history has no ids");
        for last in 1..80 {
            let history = history(1..=last);
            assert_eq!(CasHistory::decode(history.encode().into()), history);
            for id in 1..=80 {
                assert_eq!(history.contains(id), id <= last && id + 32 > last, "{id} of {last}");
            }
        }
        for length in [0, 1, 7, 8, 9, 256, 257, 800] {
            assert_eq!(CasHistory::decode(vec![7; length].into()).count, (length / 8).min(32), "{length}");
        }
    }

    #[test]
    fn a_history_tells_the_outcome_of_a_write() {
        let replaced = history([1, 2]);
        assert_eq!(replaced.own_outcome(7, &replaced, true), CasOutcome::NotApplied);
        assert_eq!(history([1, 2, 3]).own_outcome(7, &replaced, false), CasOutcome::Lost);
        for since in 0..32 {
            let others = 100..100 + since;
            assert_eq!(
                history([1, 2, 7].into_iter().chain(others)).own_outcome(7, &replaced, false),
                CasOutcome::Applied
            );
        }
        assert_eq!(
            history([1, 2].into_iter().chain(100..131)).own_outcome(7, &replaced, false),
            CasOutcome::Lost,
            "writer 2 is still listed"
        );
    }

    #[test]
    fn a_write_that_many_others_followed_is_not_called_lost() {
        let replaced = history([1, 2]);
        let applied = history([1, 2, 7].into_iter().chain(100..132));
        let not_applied = history([1, 2].into_iter().chain(100..132));
        assert_eq!(applied, not_applied, "both heads have the same history");
        assert_eq!(applied.own_outcome(7, &replaced, false), CasOutcome::Unknown);
        assert_eq!(history(100..132).own_outcome(7, &CasHistory::default(), false), CasOutcome::Unknown);
        assert_eq!(
            history(100..131).own_outcome(7, &CasHistory::default(), false),
            CasOutcome::Lost,
            "the list reaches back to the first writer"
        );
    }
}
