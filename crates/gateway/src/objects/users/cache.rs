//! What was read of users a moment ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_model::objects::User;
use parking_lot::Mutex;

/// How long what was read holds.
const HOLDS: Duration = Duration::from_secs(2);
/// Most things remembered at once.
const KEPT_MAX: usize = 10_000;

/// Users by access key id and their names by canonical id, each with the time it was asked for.
#[derive(Debug, Default)]
pub struct UserCache {
    pub(super) keys: Recent<Arc<User>>,
    pub(super) names: Recent<String>,
}

impl UserCache {
    /// Forgets all: a user was changed, or may have been.
    pub(super) fn clear(&self) {
        self.keys.clear();
        self.names.clear();
    }
}

/// Things by name, each with the time it was asked for.
#[derive(Debug)]
pub(super) struct Recent<T>(Mutex<Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    things: HashMap<String, (Duration, T)>,
    /// How often all was forgotten.
    cleared: u64,
}

/// Proof of when something was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    at: Duration,
    cleared: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { things: HashMap::new(), cleared: 0 }))
    }
}

impl<T: Clone> Recent<T> {
    /// What is remembered at `now`; or else proof that it was asked for now, to [`Self::keep`] the answer with.
    pub(super) fn find(&self, name: &str, now: Duration) -> Result<T, Asked> {
        let kept = self.0.lock();
        match kept.things.get(name) {
            Some((at, thing)) if now.saturating_sub(*at) < HOLDS => Ok(thing.clone()),
            _ => Err(Asked { at: now, cleared: kept.cleared }),
        }
    }

    /// Remembers an answer, unless all was forgotten since it was asked for: it may have been read before that.
    pub(super) fn keep(&self, name: &str, asked: Asked, thing: T) {
        let mut kept = self.0.lock();
        if kept.cleared != asked.cleared {
            return;
        }
        if kept.things.len() >= KEPT_MAX {
            kept.things.retain(|_, (at, _)| asked.at.saturating_sub(*at) < HOLDS);
        }
        if kept.things.len() >= KEPT_MAX {
            kept.things.clear();
        }
        kept.things.insert(name.to_owned(), (asked.at, thing));
    }

    fn clear(&self) {
        let mut kept = self.0.lock();
        kept.things.clear();
        kept.cleared += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(recent: &Recent<u32>, name: &str, now: u64) -> Asked {
        recent.find(name, Duration::from_millis(now)).unwrap_err()
    }

    #[test]
    fn what_was_read_holds_for_two_seconds() {
        let recent = Recent::default();
        recent.keep("a", asked(&recent, "a", 1000), 7);
        assert_eq!(recent.find("a", Duration::from_millis(2999)).ok(), Some(7));
        assert_eq!(recent.find("b", Duration::from_millis(1000)).ok(), None);
        assert_eq!(recent.find("a", Duration::from_millis(3000)).ok(), None);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let recent = Recent::default();
        let before = asked(&recent, "a", 0);
        recent.clear();
        recent.keep("a", before, 7);
        assert_eq!(recent.find("a", Duration::ZERO).ok(), None);
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let recent = Recent::default();
        for at in 0..3 * KEPT_MAX {
            let name = at.to_string();
            recent.keep(&name, asked(&recent, &name, 0), 7);
            assert!(recent.0.lock().things.len() <= KEPT_MAX);
        }
    }
}
