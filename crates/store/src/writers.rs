//! Who wrote a head last: how a swap that was not answered finds out what became of it. On an engine whose swaps may be done, not
//! done, or done later by somebody else while their writer hears `TimedOut`, a head carries this list; one linearizable read of
//! the head, which ends whatever was under way, then decides.

use bytes::{Buf, Bytes};

/// Writers that a head names: as many as may follow while one of them waits to hear what became of its swap.
pub const WRITERS_MAX: usize = 32;

/// The last writers of a head, newest first. Each is the id of a swap, which no other swap has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Writers {
    ids: [u64; WRITERS_MAX],
    count: usize,
}

/// What became of a swap that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is done, though others may have followed.
    Done,
    /// It is not, and nobody else was faster: it may be sent again.
    Open,
    /// It is not, and somebody else was faster.
    Lost,
    /// So many have written since that its head does not say.
    Forgotten,
}

impl Writers {
    /// The list after one more.
    #[must_use]
    pub fn followed_by(&self, id: u64) -> Self {
        let mut writers = Self { count: (self.count + 1).min(WRITERS_MAX), ..Self::default() };
        writers.ids[0] = id;
        writers.ids[1..writers.count].copy_from_slice(&self.ids[..writers.count - 1]);
        writers
    }

    /// Whether `id` is among them.
    #[must_use]
    pub fn names(&self, id: u64) -> bool {
        self.ids[..self.count].contains(&id)
    }

    /// What became of the swap `own` that was to replace a head with the list `replaced`, when the head has this list now;
    /// `unchanged`: and still the stamp that the swap expects.
    #[must_use]
    pub fn verdict(&self, own: u64, replaced: &Self, unchanged: bool) -> Verdict {
        if self.names(own) {
            return Verdict::Done;
        }
        if unchanged {
            return Verdict::Open;
        }
        // Had it been done, it would stand before the writer whose head it replaced, who would go first.
        let is_whole = self.count < WRITERS_MAX || (replaced.count > 0 && self.names(replaced.ids[0]));
        if is_whole { Verdict::Lost } else { Verdict::Forgotten }
    }

    /// The stored form: eight bytes for each.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.ids[..self.count].iter().flat_map(|id| id.to_be_bytes()).collect()
    }

    /// Reads the stored form; what is not understood is left out, which costs certainty and no data.
    #[must_use]
    pub fn decode(mut stored: Bytes) -> Self {
        let mut writers = Self::default();
        while writers.count < WRITERS_MAX && stored.len() >= 8 {
            writers.ids[writers.count] = stored.get_u64();
            writers.count += 1;
        }
        writers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ids: impl IntoIterator<Item = u64>) -> Writers {
        ids.into_iter().fold(Writers::default(), |writers, id| writers.followed_by(id))
    }

    #[test]
    fn a_list_names_the_last_and_comes_back() {
        assert!(!Writers::default().names(0), "an empty list names nobody");
        for last in 1..80 {
            let writers = after(1..=last);
            assert_eq!(Writers::decode(writers.encode().into()), writers);
            for id in 1..=80 {
                assert_eq!(writers.names(id), id <= last && id + 32 > last, "{id} of {last}");
            }
        }
        for length in [0, 1, 7, 8, 9, 256, 257, 800] {
            assert_eq!(Writers::decode(vec![7; length].into()).count, (length / 8).min(32), "{length}");
        }
    }

    #[test]
    fn a_list_says_what_became_of_a_swap() {
        let replaced = after([1, 2]);
        assert_eq!(replaced.verdict(7, &replaced, true), Verdict::Open);
        assert_eq!(after([1, 2, 3]).verdict(7, &replaced, false), Verdict::Lost);
        for since in 0..32 {
            let others = 100..100 + since;
            assert_eq!(after([1, 2, 7].into_iter().chain(others)).verdict(7, &replaced, false), Verdict::Done);
        }
        assert_eq!(
            after([1, 2].into_iter().chain(100..131)).verdict(7, &replaced, false),
            Verdict::Lost,
            "2 is there still"
        );
    }

    #[test]
    fn a_swap_that_many_others_followed_is_not_called_lost() {
        let replaced = after([1, 2]);
        let done = after([1, 2, 7].into_iter().chain(100..132));
        let not_done = after([1, 2].into_iter().chain(100..132));
        assert_eq!(done, not_done, "the heads are alike");
        assert_eq!(done.verdict(7, &replaced, false), Verdict::Forgotten);
        assert_eq!(after(100..132).verdict(7, &Writers::default(), false), Verdict::Forgotten);
        assert_eq!(after(100..131).verdict(7, &Writers::default(), false), Verdict::Lost, "it goes back to the first");
    }
}
