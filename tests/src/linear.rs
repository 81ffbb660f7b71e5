//! Whether a history of one register can be put in one order that every client agrees with.
//!
//! Linearizability of a compare-and-set register, decided by the search of Wing and Gong with Lowe's cache of configurations:
//! an operation may come next if nothing still to come had returned before it was called. An operation whose answer was lost
//! may come at any time after its call, or never.
//!
//! ```
//! use larder_tests::{Act, Op, is_linearizable};
//! let history = [
//!     Op { act: Act::Swap { expected: 0, new: 1 }, called: 0, returned: Some(10) },
//!     Op { act: Act::Read(1), called: 2, returned: Some(4) },
//!     Op { act: Act::Read(0), called: 5, returned: Some(6) },
//! ];
//! assert!(!is_linearizable(&history), "what was seen once was there before");
//! ```

use std::collections::HashSet;

/// A value of the register: every write has one of its own. 0: nothing is there.
pub type Value = u64;

/// What was asked and what was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A read that answered this.
    Read(Value),
    /// A write in place of `expected`: done, or its answer was lost.
    Swap {
        /// What had to be there.
        expected: Value,
        /// What is there afterwards.
        new: Value,
    },
    /// A write that was refused because something else than this was there.
    Refused(Value),
}

/// One operation of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// What it did.
    pub act: Act,
    /// When it was called, by a clock that all clients share.
    pub called: u64,
    /// When it was answered; `None`: never, so it may still come.
    pub returned: Option<u64>,
}

impl Act {
    /// The register after this, if this can happen to it.
    fn step(self, state: Value) -> Option<Value> {
        match self {
            Self::Read(seen) => (seen == state).then_some(state),
            Self::Swap { expected, new } => (expected == state).then_some(new),
            Self::Refused(expected) => (expected != state).then_some(state),
        }
    }
}

/// Whether the history of one register, which begins with nothing there, is linearizable.
#[must_use]
pub fn is_linearizable(history: &[Op]) -> bool {
    Search::new(history).run()
}

/// A call or a return in the order of time.
#[derive(Debug, Clone, Copy)]
struct Entry {
    op: usize,
    is_return: bool,
    before: usize,
    behind: usize,
}

/// The first and the last entry are nobody's.
const FRONT: usize = 0;

struct Search<'a> {
    history: &'a [Op],
    entries: Vec<Entry>,
    call_of: Vec<usize>,
    return_of: Vec<Option<usize>>,
    /// Operations in their places, as bits.
    placed: Vec<u64>,
    /// Answered operations that have no place yet.
    open: usize,
    seen: HashSet<(Vec<u64>, Value)>,
}

impl<'a> Search<'a> {
    fn new(history: &'a [Op]) -> Self {
        let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (op, one) in history.iter().enumerate() {
            times.push((one.called, false, op));
            times.extend(one.returned.map(|returned| (returned, true, op)));
        }
        // At one moment calls come before returns: they may have overlapped.
        times.sort_unstable();
        let (mut call_of, mut return_of) = (vec![0; history.len()], vec![None; history.len()]);
        let nobody = Entry { op: usize::MAX, is_return: true, before: 0, behind: 1 };
        let mut entries = vec![nobody];
        for (_, is_return, op) in times {
            let at = entries.len();
            if is_return {
                return_of[op] = Some(at);
            } else {
                call_of[op] = at;
            }
            entries.push(Entry { op, is_return, before: at - 1, behind: at + 1 });
        }
        let last = entries.len();
        entries.push(Entry { before: last - 1, behind: last, ..nobody });
        let open = history.iter().filter(|one| one.returned.is_some()).count();
        let placed = vec![0; history.len().div_ceil(64)];
        Self { history, entries, call_of, return_of, placed, open, seen: HashSet::new() }
    }

    fn run(mut self) -> bool {
        let mut state = 0;
        let mut path: Vec<(usize, Value)> = Vec::new();
        let mut at = self.entries[FRONT].behind;
        while self.open > 0 {
            let Entry { op, is_return, behind, .. } = self.entries[at];
            if is_return {
                // What returned here must come before whatever follows: one of those placed so far was wrong.
                let Some((op, before)) = path.pop() else { return false };
                state = before;
                self.take_back(op);
                at = self.entries[self.call_of[op]].behind;
            } else if let Some(next) = self.history[op].act.step(state).filter(|next| self.is_new(op, *next)) {
                path.push((op, state));
                state = next;
                self.place(op);
                at = self.entries[FRONT].behind;
            } else {
                at = behind;
            }
        }
        true
    }

    /// Whether nobody has been here: these operations placed, and this one, and the register like that.
    fn is_new(&mut self, op: usize, state: Value) -> bool {
        let mut placed = self.placed.clone();
        placed[op / 64] |= 1 << (op % 64);
        self.seen.insert((placed, state))
    }

    fn place(&mut self, op: usize) {
        self.placed[op / 64] |= 1 << (op % 64);
        self.unlink(self.call_of[op]);
        if let Some(at) = self.return_of[op] {
            self.unlink(at);
            self.open -= 1;
        }
    }

    fn take_back(&mut self, op: usize) {
        self.placed[op / 64] &= !(1 << (op % 64));
        if let Some(at) = self.return_of[op] {
            self.link(at);
            self.open += 1;
        }
        self.link(self.call_of[op]);
    }

    fn unlink(&mut self, at: usize) {
        let Entry { before, behind, .. } = self.entries[at];
        self.entries[before].behind = behind;
        self.entries[behind].before = before;
    }

    /// In the opposite order of [`Self::unlink`], so that its neighbours are the same.
    fn link(&mut self, at: usize) {
        let Entry { before, behind, .. } = self.entries[at];
        self.entries[before].behind = at;
        self.entries[behind].before = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(act: Act, called: u64, returned: impl Into<Option<u64>>) -> Op {
        Op { act, called, returned: returned.into() }
    }

    fn swap(expected: Value, new: Value) -> Act {
        Act::Swap { expected, new }
    }

    #[test]
    fn one_after_the_other_is_linearizable() {
        let history = [op(swap(0, 1), 0, 1), op(Act::Read(1), 2, 3), op(swap(1, 2), 4, 5), op(Act::Read(2), 6, 7)];
        assert!(is_linearizable(&history));
        assert!(is_linearizable(&[]));
    }

    #[test]
    fn a_stale_read_is_not() {
        let history = [op(swap(0, 1), 0, 1), op(swap(1, 2), 2, 3), op(Act::Read(1), 4, 5)];
        assert!(!is_linearizable(&history));
        let meanwhile = [op(swap(0, 1), 0, 1), op(swap(1, 2), 2, 9), op(Act::Read(1), 4, 5)];
        assert!(is_linearizable(&meanwhile));
    }

    #[test]
    fn of_two_swaps_of_one_value_one_is_refused() {
        let both = [op(swap(0, 1), 0, 5), op(swap(0, 2), 0, 5)];
        assert!(!is_linearizable(&both));
        let one = [op(swap(0, 1), 0, 5), op(Act::Refused(0), 0, 5)];
        assert!(is_linearizable(&one));
        assert!(!is_linearizable(&[op(Act::Refused(0), 0, 5)]), "nothing else was there");
    }

    #[test]
    fn an_unanswered_swap_may_come_late_or_never() {
        let lost = op(swap(0, 1), 0, None);
        assert!(is_linearizable(&[lost, op(Act::Read(0), 5, 6)]));
        assert!(is_linearizable(&[lost, op(Act::Read(0), 5, 6), op(Act::Read(1), 7, 8)]));
        assert!(!is_linearizable(&[lost, op(Act::Read(1), 5, 6), op(Act::Read(0), 7, 8)]));
    }

    #[test]
    fn a_wrong_guess_is_taken_back() {
        // Whoever reads from left to right places 1 before 2; only 2 before 1 goes on.
        let history = [
            op(Act::Refused(7), 0, 20),
            op(swap(3, 1), 0, 20),
            op(swap(0, 2), 1, 20),
            op(swap(2, 3), 2, 20),
            op(Act::Read(1), 21, 22),
        ];
        assert!(is_linearizable(&history));
    }

    /// All orders of few operations, one by one.
    fn by_force(history: &[Op], done: &mut Vec<usize>, state: Value) -> bool {
        let open = |op: &usize| !done.contains(op);
        let rest: Vec<usize> = (0..history.len()).filter(open).collect();
        if rest.iter().all(|&op| history[op].returned.is_none()) {
            return true;
        }
        let first = rest.iter().filter_map(|&op| history[op].returned).min().unwrap_or(u64::MAX);
        for op in rest.into_iter().filter(|&op| history[op].called <= first) {
            if let Some(next) = history[op].act.step(state) {
                done.push(op);
                let found = by_force(history, done, next);
                done.pop();
                if found {
                    return true;
                }
            }
        }
        false
    }

    #[test]
    fn it_agrees_with_trying_every_order() {
        let mut random = crate::Random::seeded(7);
        let mut value = move |bound: usize| random.below(bound) as u64;
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let history: Vec<Op> = (0..6)
                .map(|_| {
                    let act = match value(3) {
                        0 => Act::Read(value(4)),
                        1 => Act::Refused(value(4)),
                        _ => swap(value(4), value(4)),
                    };
                    let called = value(12);
                    op(act, called, (value(6) > 0).then(|| called + value(8)))
                })
                .collect();
            let found = is_linearizable(&history);
            assert_eq!(found, by_force(&history, &mut Vec::new(), 0), "{history:?}");
            if found { good += 1 } else { bad += 1 }
        }
        assert!(good > 500 && bad > 500, "{good} {bad}");
    }
}
