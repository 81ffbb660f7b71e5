//! The work that the policies of one request may make, and the decisions that hold for all its keys.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::condition::PolicyCondition;

/// Steps of a request: some milliseconds.
const STEPS_MAX: usize = 8_000_000;
/// Steps for each further key: some times what a policy of 20 KiB takes whose patterns end in a star.
const STEPS_PER_KEY: usize = 20_000;

/// The work that the policies of one request may make.
///
/// Promises: beyond it every decision is a deny, also of further keys and policies of the request. The copies of one for many keys
/// share it.
#[derive(Clone)]
pub struct PolicyWork(WorkScope);

enum WorkScope {
    OneKey(AtomicUsize),
    ManyKeys {
        shared: Arc<SharedWork>,
        /// Condition keys that have another value here than in the request.
        own: Vec<&'static str>,
    },
}

struct SharedWork {
    left: AtomicUsize,
    decided: Mutex<HashMap<PolicyCondition, bool>>,
}

impl PolicyWork {
    /// The work for a request of so many keys.
    #[must_use]
    pub fn from_keys(keys: usize) -> Self {
        let left = STEPS_MAX.saturating_add(keys.saturating_mul(STEPS_PER_KEY)).into();
        let shared = Arc::new(SharedWork { left, decided: Mutex::default() });
        Self(WorkScope::ManyKeys { shared, own: Vec::new() })
    }

    /// Notes condition keys that have another value from here on: their conditions are not decided for the others.
    pub fn set_own(&mut self, names: impl Iterator<Item = &'static str>) {
        if let WorkScope::ManyKeys { own, .. } = &mut self.0 {
            own.extend(names);
        }
    }

    fn left(&self) -> &AtomicUsize {
        match &self.0 {
            WorkScope::OneKey(left) => left,
            WorkScope::ManyKeys { shared, .. } => &shared.left,
        }
    }

    /// Whether matches were given up: the evaluation has no result.
    pub(super) fn is_spent(&self) -> bool {
        self.left().load(Ordering::Relaxed) == 0
    }

    /// Takes steps; `false` when there are too few.
    pub(super) fn take(&self, steps: usize) -> bool {
        let take = |left: usize| Some(left.saturating_sub(steps));
        self.left().fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok_and(|left| left >= steps)
    }

    /// The decision of a condition, which all keys of the request share unless it reads a value of their own.
    pub(super) fn decide(&self, condition: &PolicyCondition, decide: impl FnOnce() -> bool) -> bool {
        let WorkScope::ManyKeys { shared, own } = &self.0 else { return decide() };
        if condition.reads(|key| own.iter().any(|name| key.eq_ignore_ascii_case(name))) {
            return decide();
        }
        let decided = || shared.decided.lock().unwrap_or_else(PoisonError::into_inner);
        let known = decided().get(condition).copied();
        known.unwrap_or_else(|| {
            let holds = decide();
            decided().insert(condition.clone(), holds);
            holds
        })
    }
}

impl Default for PolicyWork {
    /// The work for a request of one key.
    fn default() -> Self {
        Self(WorkScope::OneKey(STEPS_MAX.into()))
    }
}

impl Clone for WorkScope {
    fn clone(&self) -> Self {
        match self {
            Self::OneKey(left) => Self::OneKey(left.load(Ordering::Relaxed).into()),
            Self::ManyKeys { shared, own } => Self::ManyKeys { shared: Arc::clone(shared), own: own.clone() },
        }
    }
}

impl fmt::Debug for PolicyWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyWork").field("left", self.left()).finish_non_exhaustive()
    }
}
