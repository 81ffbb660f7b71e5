//! Turns at something that few may do at a time: sources have them one after the other, however many each of them asks for.
//!
//! ```text
//! source A   ▮▮▮▮▮▮  ┐
//! source B   ▮       ├─ one of each in rotation ──> at once, and fewer of one source
//! source C   ▮▮      ┘
//! ```
//!
//! The parts of a source have its turns in the same way, such as the users of one address.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ShareSource;

/// Bounds of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// Turns at a time.
    pub at_once: usize,
    /// Turns of one source at a time.
    pub per_source: usize,
    /// Waiting turns of one source.
    pub waiting: usize,
}

/// Turns that sources share.
///
/// Promises: a source that waits has the next turn that is free once each other waiting source has had one; a caller that goes away
/// gives its place up. Entries of sources go with their last turn.
pub struct FairTurns<S: ShareSource>(Arc<TurnState<S>>);

struct TurnState<S: ShareSource> {
    limits: TurnLimits,
    queues: Mutex<TurnQueues<S>>,
}

struct TurnQueues<S: ShareSource> {
    free: usize,
    sources: HashMap<S, SourceTurns<S>>,
    /// The sources that wait, the next one first.
    rotation: VecDeque<S>,
}

struct SourceTurns<S: ShareSource> {
    held: usize,
    /// By round.
    waiting: VecDeque<WaitingTurn<S>>,
}

struct WaitingTurn<S: ShareSource> {
    part: u64,
    /// How many of its part waited before it.
    round: usize,
    give: oneshot::Sender<HeldTurn<S>>,
}

/// A turn; dropping this ends it.
#[must_use = "the turn ends when this is dropped"]
pub struct HeldTurn<S: ShareSource> {
    state: Arc<TurnState<S>>,
    source: S,
}

/// Too many callers of this source wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnsTaken;

impl<S: ShareSource> FairTurns<S> {
    /// Turns within these bounds, each of which is one at least.
    #[must_use]
    pub fn new(limits: TurnLimits) -> Self {
        let queues = TurnQueues { free: limits.at_once.max(1), sources: HashMap::new(), rotation: VecDeque::new() };
        let limits = TurnLimits { per_source: limits.per_source.max(1), ..limits };
        Self(Arc::new(TurnState { limits, queues: Mutex::new(queues) }))
    }

    /// Waits for a turn of this source. The caller bounds the time.
    ///
    /// # Errors
    /// [`TurnsTaken`] at once.
    pub async fn take(&self, source: S) -> Result<HeldTurn<S>, TurnsTaken> {
        self.take_for(source, 0).await
    }

    /// As [`Self::take`], for a part of the source: parts that wait have its turns one after the other.
    ///
    /// # Errors
    /// [`TurnsTaken`], at once or when another part takes the last waiting place of one that has several.
    pub async fn take_for(&self, source: S, part: u64) -> Result<HeldTurn<S>, TurnsTaken> {
        let turn = {
            let queues = &mut *self.0.queues.lock();
            let turns = queues.sources.entry(source.clone()).or_default();
            if queues.free > 0 && turns.held < self.0.limits.per_source {
                turns.held += 1;
                queues.free -= 1;
                return Ok(HeldTurn { state: Arc::clone(&self.0), source });
            }
            turns.waiting.retain(|waiting| !waiting.give.is_closed());
            let round = turns.waiting.iter().filter(|waiting| waiting.part == part).count();
            if turns.waiting.len() >= self.0.limits.waiting && !turns.drop_after(round) {
                if turns.held == 0 && turns.waiting.is_empty() {
                    queues.sources.remove(&source);
                }
                return Err(TurnsTaken);
            }
            if turns.waiting.is_empty() && !queues.rotation.contains(&source) {
                queues.rotation.push_back(source);
            }
            let (give, turn) = oneshot::channel();
            turns.push(WaitingTurn { part, round, give });
            turn
        };
        // The sender lives in the state, which this turn keeps.
        turn.await.map_err(|_| TurnsTaken)
    }
}

impl<S: ShareSource> TurnState<S> {
    fn end(self: &Arc<Self>, source: &S) {
        let mut queues = self.queues.lock();
        queues.free += 1;
        if let Some(turns) = queues.sources.get_mut(source) {
            turns.held -= 1;
            if turns.held == 0 && turns.waiting.is_empty() {
                queues.sources.remove(source);
            }
        }
        drop(queues);
        self.hand_out();
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let next = self.queues.lock().next(self.limits.per_source);
            let Some((source, give)) = next else { return };
            // A caller that went away gives the turn back, outside the lock.
            drop(give.send(HeldTurn { state: Arc::clone(self), source }));
        }
    }
}

impl<S: ShareSource> TurnQueues<S> {
    /// The caller that has the next turn, if one is free; it is counted as held.
    fn next(&mut self, per_source: usize) -> Option<(S, oneshot::Sender<HeldTurn<S>>)> {
        if self.free == 0 {
            return None;
        }
        for _ in 0..self.rotation.len() {
            let source = self.rotation.pop_front()?;
            let Some(turns) = self.sources.get_mut(&source) else { continue };
            turns.waiting.retain(|waiting| !waiting.give.is_closed());
            let give = if turns.held < per_source { turns.waiting.pop_front() } else { None };
            match (turns.waiting.is_empty(), turns.held) {
                (false, _) => self.rotation.push_back(source.clone()),
                (true, 0) if give.is_none() => drop(self.sources.remove(&source)),
                (true, _) => {}
            }
            if let Some(give) = give {
                self.free -= 1;
                self.sources.entry(source.clone()).or_default().held += 1;
                return Some((source, give.give));
            }
        }
        None
    }
}

impl<S: ShareSource> SourceTurns<S> {
    /// Adds a turn behind those of its round.
    fn push(&mut self, turn: WaitingTurn<S>) {
        let at = self.waiting.partition_point(|waiting| waiting.round <= turn.round);
        self.waiting.insert(at, turn);
    }

    /// Gives up the last place, if it is of a later round.
    fn drop_after(&mut self, round: usize) -> bool {
        let is_later = self.waiting.back().is_some_and(|last| last.round > round);
        is_later && self.waiting.pop_back().is_some()
    }
}

impl<S: ShareSource> Default for SourceTurns<S> {
    fn default() -> Self {
        Self { held: 0, waiting: VecDeque::new() }
    }
}

impl<S: ShareSource> Drop for HeldTurn<S> {
    fn drop(&mut self) {
        self.state.end(&self.source);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Taking<'a> = Pin<Box<dyn Future<Output = Result<HeldTurn<u8>, TurnsTaken>> + 'a>>;

    fn turns(at_once: usize, per_source: usize, waiting: usize) -> FairTurns<u8> {
        FairTurns::new(TurnLimits { at_once, per_source, waiting })
    }

    fn look(taking: &mut Taking<'_>) -> Option<Result<HeldTurn<u8>, TurnsTaken>> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    fn begin(turns: &FairTurns<u8>, source: u8) -> Taking<'_> {
        let mut taking: Taking<'_> = Box::pin(turns.take(source));
        assert!(look(&mut taking).is_none(), "no turn is free");
        taking
    }

    fn now(turns: &FairTurns<u8>, source: u8) -> HeldTurn<u8> {
        let mut taking: Taking<'_> = Box::pin(turns.take(source));
        look(&mut taking).expect("a turn is free").expect("few wait")
    }

    #[test]
    fn a_source_that_asks_once_does_not_wait_for_all_turns_of_another() {
        let turns = turns(1, 1, 100);
        let first = now(&turns, b'a');
        let mut of_a: Vec<_> = (0..50).map(|_| begin(&turns, b'a')).collect();
        let mut of_b = begin(&turns, b'b');
        drop(first);
        let second = look(&mut of_a[0]).expect("the first that waits").unwrap();
        assert!(look(&mut of_b).is_none());
        drop(second);
        assert!(look(&mut of_b).is_some(), "after one turn of the other");
    }

    #[test]
    fn parts_of_a_source_have_its_turns_and_its_places_in_rounds() {
        let turns = turns(1, 1, 4);
        let begin_for = |part: u64| {
            let mut taking: Taking<'_> = Box::pin(turns.take_for(b'a', part));
            assert!(look(&mut taking).is_none(), "no turn is free, and a place is");
            taking
        };
        let held = now(&turns, b'a');
        let mut of_one: Vec<_> = (0..4).map(|_| begin_for(1)).collect();
        let mut of_two = begin_for(2);
        assert!(matches!(look(&mut of_one[3]), Some(Err(TurnsTaken))), "its place is the other part's");
        let mut fifth: Taking<'_> = Box::pin(turns.take_for(b'a', 1));
        assert!(matches!(look(&mut fifth), Some(Err(TurnsTaken))));
        drop(held);
        drop(look(&mut of_one[0]).expect("the first round").unwrap());
        drop(look(&mut of_two).expect("the first round, too").unwrap());
        assert!(look(&mut of_one[1]).is_some_and(|taken| taken.is_ok()));
    }

    #[test]
    fn one_source_never_has_all_turns() {
        let turns = turns(3, 2, 10);
        let _held = [now(&turns, b'a'), now(&turns, b'a')];
        let mut third = begin(&turns, b'a');
        let of_b = now(&turns, b'b');
        drop(of_b);
        assert!(look(&mut third).is_none(), "its own turns are taken");
    }

    #[test]
    fn a_caller_that_goes_away_gives_up_its_place_and_its_turn() {
        let turns = turns(1, 1, 2);
        let held = now(&turns, b'a');
        let gone = [begin(&turns, b'a'), begin(&turns, b'a')];
        let mut refused: Taking<'_> = Box::pin(turns.take(b'a'));
        assert!(matches!(look(&mut refused), Some(Err(TurnsTaken))), "two wait");
        drop(gone);
        let late = begin(&turns, b'a');
        let mut other = begin(&turns, b'b');
        drop(held);
        // It has the turn, and goes away before it sees that.
        drop(late);
        drop(look(&mut other).expect("the turn that was given up").unwrap());
        assert_eq!(turns.0.queues.lock().sources.len(), 0);
        drop(now(&turns, b'a'));
        let queues = turns.0.queues.lock();
        assert_eq!((queues.free, queues.sources.len(), queues.rotation.len()), (1, 0, 0));
    }

    #[test]
    fn random_callers_never_lose_a_turn() {
        let mut state = 7_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let turns = turns(3, 2, 4);
        let (mut held, mut waiting): (Vec<HeldTurn<u8>>, Vec<Taking<'_>>) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            match below(4) {
                0 | 1 => {
                    let mut taking: Taking<'_> = Box::pin(turns.take(below(5) as u8));
                    match look(&mut taking) {
                        Some(Ok(turn)) => held.push(turn),
                        Some(Err(_)) => {}
                        None => waiting.push(taking),
                    }
                }
                2 if !held.is_empty() => drop(held.swap_remove(below(held.len() as u64) as usize)),
                3 if !waiting.is_empty() && below(3) == 0 => {
                    drop(waiting.swap_remove(below(waiting.len() as u64) as usize));
                }
                _ => {}
            }
            for at in (0..waiting.len()).rev() {
                if let Some(Ok(turn)) = look(&mut waiting[at]) {
                    held.push(turn);
                    drop(waiting.swap_remove(at));
                }
            }
            assert!(held.len() <= 3);
            let is_idle = turns.0.queues.lock().free > 0;
            let of = |source: u8| held.iter().filter(|turn| turn.source == source).count();
            assert!(
                !is_idle || waiting.is_empty() || (0..5).any(|source| of(source) == 2),
                "a free turn beside one that waits"
            );
        }
        drop((held, waiting));
        let queues = turns.0.queues.lock();
        assert_eq!((queues.free, queues.sources.len()), (3, 0));
    }
}
