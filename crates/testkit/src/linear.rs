//! Checks whether the history of one register fits in one order that agrees with every client.
//!
//! Linearizability of a compare-and-set register, decided by the search of Wing and Gong with Lowe's cache of configurations:
//! an operation may come next if every operation that returned before its call has its place. An operation without an answer
//! may take effect at any time after its call, or never.
//!
//! ```text
//! let history = [
//!     RegisterOperation { act: RegisterAction::Swap { expected: 0, new: 1 }, called: 0, returned: Some(10) },
//!     RegisterOperation { act: RegisterAction::Read(1), called: 2, returned: Some(4) },
//!     RegisterOperation { act: RegisterAction::Read(0), called: 5, returned: Some(6) },
//! ];
//! is_linearizable(&history) is false: a later read returns an older value
//! ```

use std::collections::HashSet;

/// A value of the register. Each write has its own; 0 is the empty register.
pub type RegisterValue = u64;

/// A request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAction {
    /// A read that returned this value.
    Read(RegisterValue),
    /// A compare-and-set: it succeeded, or its answer was lost.
    Swap {
        /// The value that it replaces.
        expected: RegisterValue,
        /// The value that it writes.
        new: RegisterValue,
    },
    /// A compare-and-set that was refused because the register did not hold this value.
    Refused(RegisterValue),
}

/// One operation of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterOperation {
    /// The request and its answer.
    pub act: RegisterAction,
    /// The time of its call, by a clock that all clients share.
    pub called: u64,
    /// The time of its answer; `None` when there was none, so it may still take effect.
    pub returned: Option<u64>,
}

impl RegisterAction {
    /// The register after this action, if the action fits its value.
    fn step(self, state: RegisterValue) -> Option<RegisterValue> {
        match self {
            Self::Read(seen) => (seen == state).then_some(state),
            Self::Swap { expected, new } => (expected == state).then_some(new),
            Self::Refused(expected) => (expected != state).then_some(state),
        }
    }
}

/// Whether the history of one register, which begins empty, is linearizable.
#[must_use]
pub fn is_linearizable(history: &[RegisterOperation]) -> bool {
    OrderSearch::new(history).run()
}

/// A call or a return in the list ordered by time.
#[derive(Debug, Clone, Copy)]
struct HistoryEntry {
    op: usize,
    is_return: bool,
    previous: usize,
    next: usize,
}

/// The entry before all others. It and the last entry belong to no operation.
const FRONT: usize = 0;

struct OrderSearch<'a> {
    history: &'a [RegisterOperation],
    entries: Vec<HistoryEntry>,
    call_of: Vec<usize>,
    return_of: Vec<Option<usize>>,
    /// The operations that have a place, as bits.
    placed: Vec<u64>,
    /// The number of answered operations without a place.
    open: usize,
    seen: HashSet<(Vec<u64>, RegisterValue)>,
}

impl<'a> OrderSearch<'a> {
    fn new(history: &'a [RegisterOperation]) -> Self {
        let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (op, one) in history.iter().enumerate() {
            times.push((one.called, false, op));
            times.extend(one.returned.map(|returned| (returned, true, op)));
        }
        // At the same time calls come before returns: the operations may have overlapped.
        times.sort_unstable();
        let (mut call_of, mut return_of) = (vec![0; history.len()], vec![None; history.len()]);
        let sentinel = HistoryEntry { op: usize::MAX, is_return: true, previous: 0, next: 1 };
        let mut entries = vec![sentinel];
        for (_, is_return, op) in times {
            let at = entries.len();
            if is_return {
                return_of[op] = Some(at);
            } else {
                call_of[op] = at;
            }
            entries.push(HistoryEntry { op, is_return, previous: at - 1, next: at + 1 });
        }
        let last = entries.len();
        entries.push(HistoryEntry { previous: last - 1, next: last, ..sentinel });
        let open = history.iter().filter(|one| one.returned.is_some()).count();
        let placed = vec![0; history.len().div_ceil(64)];
        Self { history, entries, call_of, return_of, placed, open, seen: HashSet::new() }
    }

    fn run(mut self) -> bool {
        let mut state = 0;
        let mut path: Vec<(usize, RegisterValue)> = Vec::new();
        let mut at = self.entries[FRONT].next;
        while self.open > 0 {
            let HistoryEntry { op, is_return, next, .. } = self.entries[at];
            if is_return {
                // This operation must have its place before any later one: undo the last choice.
                let Some((op, before)) = path.pop() else { return false };
                state = before;
                self.undo(op);
                at = self.entries[self.call_of[op]].next;
            } else if let Some(next) = self.history[op].act.step(state).filter(|next| self.is_new(op, *next)) {
                path.push((op, state));
                state = next;
                self.place(op);
                at = self.entries[FRONT].next;
            } else {
                at = next;
            }
        }
        true
    }

    /// Whether the search has not reached this configuration: the placed operations with this one, and this value.
    fn is_new(&mut self, op: usize, state: RegisterValue) -> bool {
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

    fn undo(&mut self, op: usize) {
        self.placed[op / 64] &= !(1 << (op % 64));
        if let Some(at) = self.return_of[op] {
            self.link(at);
            self.open += 1;
        }
        self.link(self.call_of[op]);
    }

    fn unlink(&mut self, at: usize) {
        let HistoryEntry { previous, next, .. } = self.entries[at];
        self.entries[previous].next = next;
        self.entries[next].previous = previous;
    }

    /// Undoes [`Self::unlink`]; the calls are in the opposite order, so its neighbours are the same.
    fn link(&mut self, at: usize) {
        let HistoryEntry { previous, next, .. } = self.entries[at];
        self.entries[previous].next = at;
        self.entries[next].previous = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(act: RegisterAction, called: u64, returned: impl Into<Option<u64>>) -> RegisterOperation {
        RegisterOperation { act, called, returned: returned.into() }
    }

    fn swap(expected: RegisterValue, new: RegisterValue) -> RegisterAction {
        RegisterAction::Swap { expected, new }
    }

    #[test]
    fn a_sequential_history_is_linearizable() {
        let history = [
            op(swap(0, 1), 0, 1),
            op(RegisterAction::Read(1), 2, 3),
            op(swap(1, 2), 4, 5),
            op(RegisterAction::Read(2), 6, 7),
        ];
        assert!(is_linearizable(&history));
        assert!(is_linearizable(&[]));
    }

    #[test]
    fn a_read_during_a_swap_binds_the_later_reads() {
        let history = [op(swap(0, 1), 0, 10), op(RegisterAction::Read(1), 2, 4), op(RegisterAction::Read(0), 5, 6)];
        assert!(!is_linearizable(&history));
    }

    #[test]
    fn a_stale_read_is_not_linearizable() {
        let history = [op(swap(0, 1), 0, 1), op(swap(1, 2), 2, 3), op(RegisterAction::Read(1), 4, 5)];
        assert!(!is_linearizable(&history));
        let overlapping = [op(swap(0, 1), 0, 1), op(swap(1, 2), 2, 9), op(RegisterAction::Read(1), 4, 5)];
        assert!(is_linearizable(&overlapping));
    }

    #[test]
    fn of_two_swaps_of_one_value_one_is_refused() {
        let both = [op(swap(0, 1), 0, 5), op(swap(0, 2), 0, 5)];
        assert!(!is_linearizable(&both));
        let one = [op(swap(0, 1), 0, 5), op(RegisterAction::Refused(0), 0, 5)];
        assert!(is_linearizable(&one));
        assert!(!is_linearizable(&[op(RegisterAction::Refused(0), 0, 5)]), "the register held the expected value");
    }

    #[test]
    fn an_unanswered_swap_may_take_effect_late_or_never() {
        let lost = op(swap(0, 1), 0, None);
        assert!(is_linearizable(&[lost, op(RegisterAction::Read(0), 5, 6)]));
        assert!(is_linearizable(&[lost, op(RegisterAction::Read(0), 5, 6), op(RegisterAction::Read(1), 7, 8)]));
        assert!(!is_linearizable(&[lost, op(RegisterAction::Read(1), 5, 6), op(RegisterAction::Read(0), 7, 8)]));
    }

    #[test]
    fn a_wrong_choice_is_undone() {
        // The order of calls places 1 before 2, but only 2 before 1 fits.
        let history = [
            op(RegisterAction::Refused(7), 0, 20),
            op(swap(3, 1), 0, 20),
            op(swap(0, 2), 1, 20),
            op(swap(2, 3), 2, 20),
            op(RegisterAction::Read(1), 21, 22),
        ];
        assert!(is_linearizable(&history));
    }

    /// Tries all orders of a few operations, one by one.
    fn by_force(history: &[RegisterOperation], done: &mut Vec<usize>, state: RegisterValue) -> bool {
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
    fn the_search_agrees_with_trying_every_order() {
        let mut random = crate::SplitMix64::new(7);
        let mut value = move |bound: u64| random.number_below(bound);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let history: Vec<RegisterOperation> = (0..6)
                .map(|_| {
                    let act = match value(3) {
                        0 => RegisterAction::Read(value(4)),
                        1 => RegisterAction::Refused(value(4)),
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
