//! A budget of places or bytes that sources share: a source has no more of it than is free. One that takes all it can leaves half
//! to the others, two leave a third, and so on.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ShareSource;

/// Units that sources share. Clones are the same.
#[derive(Debug, Clone)]
pub struct FairBudget<S: ShareSource>(Arc<BudgetState<S>>);

#[derive(Debug)]
struct BudgetState<S: ShareSource> {
    total: usize,
    held: Mutex<HeldBySource<S>>,
    /// Notified when units are given back.
    released: Notify,
}

#[derive(Debug)]
struct HeldBySource<S: ShareSource> {
    all: usize,
    /// Sources that hold any.
    sources: HashMap<S, usize>,
}

/// Units of a source; dropping this gives them back.
#[derive(Debug)]
#[must_use = "the units are given back when this is dropped"]
pub struct HeldUnits<S: ShareSource> {
    budget: FairBudget<S>,
    source: S,
    units: usize,
}

impl<S: ShareSource> FairBudget<S> {
    /// A budget of so many units.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let held = Mutex::new(HeldBySource { all: 0, sources: HashMap::new() });
        Self(Arc::new(BudgetState { total, held, released: Notify::new() }))
    }

    /// Units that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.lock().all
    }

    /// Takes units for a source; `None` where it would have more than are free then.
    #[must_use]
    pub fn try_take(&self, source: &S, units: usize) -> Option<HeldUnits<S>> {
        self.add(source, units, true).then(|| self.held_by(source, units))
    }

    /// Takes units that the source holds already in another way, as far as any are free.
    #[must_use]
    pub fn try_take_any(&self, source: &S, units: usize) -> Option<HeldUnits<S>> {
        self.add(source, units, false).then(|| self.held_by(source, units))
    }

    /// As [`Self::try_take`]; it waits until they are free. The caller bounds the time.
    pub async fn take(&self, source: &S, units: usize) -> HeldUnits<S> {
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            // Race: units that come back after the try below would not wake a wait that is not begun.
            released.as_mut().enable();
            if let Some(held) = self.try_take(source, units) {
                return held;
            }
            released.await;
        }
    }

    /// Waits until none are held.
    pub async fn wait_until_free(&self) {
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            released.as_mut().enable();
            if self.held() == 0 {
                return;
            }
            released.await;
        }
    }

    fn held_by(&self, source: &S, units: usize) -> HeldUnits<S> {
        HeldUnits { budget: self.clone(), source: source.clone(), units }
    }

    /// Adds units to those of a source; `false` where they do not fit.
    fn add(&self, source: &S, units: usize, is_shared: bool) -> bool {
        let mut held = self.0.held.lock();
        let all = held.all.saturating_add(units);
        let per_source = held.sources.get(source).copied().unwrap_or(0).saturating_add(units);
        let most = if is_shared { all.saturating_add(per_source) } else { all };
        if most > self.0.total {
            return false;
        }
        held.all = all;
        held.sources.insert(source.clone(), per_source);
        true
    }
}

impl<S: ShareSource> HeldUnits<S> {
    /// The units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Takes more units for its source; `false` where they would be more than are free then.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let grown = self.budget.add(&self.source, more, true);
        self.units += if grown { more } else { 0 };
        grown
    }
}

impl<S: ShareSource> Drop for HeldUnits<S> {
    fn drop(&mut self) {
        let mut held = self.budget.0.held.lock();
        held.all -= self.units;
        if let Some(per_source) = held.sources.get_mut(&self.source) {
            *per_source -= self.units;
            if *per_source == 0 {
                held.sources.remove(&self.source);
            }
        }
        drop(held);
        self.budget.0.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn fill(budget: &FairBudget<u8>, source: u8) -> Vec<HeldUnits<u8>> {
        std::iter::from_fn(|| budget.try_take(&source, 1)).collect()
    }

    #[test]
    fn a_source_that_takes_all_it_can_leaves_as_much() {
        let budget = FairBudget::new(1000);
        let of_a = fill(&budget, b'a');
        let of_b = fill(&budget, b'b');
        assert_eq!((of_a.len(), of_b.len(), budget.held()), (500, 250, 750));
        drop(of_a);
        assert_eq!(fill(&budget, b'c').len(), 375);
        drop(of_b);
        assert_eq!((budget.held(), budget.0.held.lock().sources.len()), (0, 0));
    }

    #[test]
    fn units_grow_and_any_are_taken_up_to_all() {
        let budget = FairBudget::new(10);
        let mut held = budget.try_take(&b'a', 3).unwrap();
        assert!(!held.try_grow(3) && held.try_grow(2) && held.units() == 5);
        assert!(budget.try_take(&b'a', 1).is_none() && budget.try_take_any(&b'a', 6).is_none());
        let remaining_units = budget.try_take_any(&b'a', 5).unwrap();
        assert_eq!(budget.held(), 10);
        drop((held, remaining_units));
        assert_eq!(budget.held(), 0);
        assert!(budget.try_take(&b'a', usize::MAX).is_none());
    }

    #[test]
    fn a_wait_ends_when_units_come_back() {
        let budget = FairBudget::new(10);
        let held = budget.try_take(&b'a', 5).unwrap();
        let mut waits = Box::pin(budget.take(&b'a', 2));
        let mut free = Box::pin(budget.wait_until_free());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending() && free.as_mut().poll(&mut context).is_pending());
        drop(held);
        let Poll::Ready(taken) = waits.as_mut().poll(&mut context) else { panic!("two are free") };
        assert!(free.as_mut().poll(&mut context).is_pending(), "two are held again");
        drop(taken);
        assert!(free.as_mut().poll(&mut context).is_ready());
    }
}
