//! The work that the policies of one request may make, and the decisions that hold for all its keys.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::condition::PolicyCondition;

/// Steps of a request: some milliseconds.
const STEPS_MAX: usize = 8_000_000;
/// Steps for each further key: some times what a policy of 20 KiB takes whose patterns end in a star.
const STEPS_PER_KEY: usize = 20_000;

/// The work that the policies of one request may make.
///
/// Promises: beyond it every decision is a deny, also of further keys and policies of the request.
pub struct PolicyWork {
    left: AtomicUsize,
    /// Conditions that are decided; `None` for a request of one key, which asks once.
    decided: Option<Mutex<HashMap<PolicyCondition, bool>>>,
}

impl PolicyWork {
    /// The work for a request of so many keys.
    #[must_use]
    pub fn of_keys(keys: usize) -> Self {
        let left = STEPS_MAX.saturating_add(keys.saturating_mul(STEPS_PER_KEY));
        Self { left: left.into(), decided: Some(Mutex::default()) }
    }

    /// Whether matches were given up: the evaluation has no result.
    pub(super) fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Takes steps; `false` when there are too few.
    pub(super) fn take(&self, steps: usize) -> bool {
        let take = |left: usize| Some(left.saturating_sub(steps));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok_and(|left| left >= steps)
    }

    /// The decision of a condition that all keys of the request share.
    pub(super) fn decide_once(&self, condition: &PolicyCondition, decide: impl FnOnce() -> bool) -> bool {
        let Some(decided) = &self.decided else { return decide() };
        let known = decided.lock().unwrap_or_else(PoisonError::into_inner).get(condition).copied();
        known.unwrap_or_else(|| {
            let holds = decide();
            decided.lock().unwrap_or_else(PoisonError::into_inner).insert(condition.clone(), holds);
            holds
        })
    }
}

impl Default for PolicyWork {
    /// The work for a request of one key.
    fn default() -> Self {
        Self { left: STEPS_MAX.into(), decided: None }
    }
}

impl Clone for PolicyWork {
    /// The same steps left; nothing is decided.
    fn clone(&self) -> Self {
        let decided = self.decided.as_ref().map(|_| Mutex::default());
        Self { left: self.left.load(Ordering::Relaxed).into(), decided }
    }
}

impl fmt::Debug for PolicyWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyWork").field("left", &self.left).finish_non_exhaustive()
    }
}
