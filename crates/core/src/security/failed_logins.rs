//! The failed log-ins of each source that are paused now. Above a bound, further ones of the source are refused unseen.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use larder_admission::{FairBudget, HeldUnits, client_key};
use parking_lot::Mutex;

/// Most failures of a source at a time.
const PER_SOURCE_MAX: usize = 8;
/// Most failures in all; an address has no more of them than are left.
const ALL_MAX: usize = 4096;

/// The source of log-ins: an address, and a name.
///
/// A user is not refused for the failures of others at its address, such as behind one router. That goes for names without a user,
/// too: the answer must not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginSource {
    /// The address, or its network where a client has many.
    pub(super) address: IpAddr,
    /// The name.
    pub(super) name: u64,
}

/// Failed log-ins by source.
#[derive(Debug)]
pub(super) struct FailedLogins {
    /// Drawn at each start: no client knows which names fall together.
    names: RandomState,
    all: FairBudget<IpAddr>,
    failed: Mutex<HashMap<LoginSource, usize>>,
}

impl Default for FailedLogins {
    fn default() -> Self {
        Self { names: RandomState::new(), all: FairBudget::new(ALL_MAX), failed: Mutex::default() }
    }
}

impl FailedLogins {
    /// The source of a log-in.
    pub(super) fn source(&self, address: IpAddr, user: &[u8]) -> LoginSource {
        LoginSource { address: client_key(address), name: self.names.hash_one(user) }
    }

    /// Whether the source may try.
    pub(super) fn may_try(&self, source: LoginSource) -> bool {
        let has_place = self.failed.lock().get(&source).is_none_or(|count| *count < PER_SOURCE_MAX);
        has_place && self.all.try_take(&source.address, 1).is_some()
    }

    /// Counts a failure until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, source: LoginSource) -> FailureGuard {
        // One that began while a place was left counts beyond the last.
        let unit = self.all.try_take_any(&source.address, 1);
        *self.failed.lock().entry(source).or_default() += 1;
        FailureGuard { failed: Arc::clone(self), source, _unit: unit }
    }
}

/// A failure that counts.
#[must_use = "a failure counts as long as this lives"]
pub(super) struct FailureGuard {
    failed: Arc<FailedLogins>,
    source: LoginSource,
    _unit: Option<HeldUnits<IpAddr>>,
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        let mut failed = self.failed.failed.lock();
        if let Some(count) = failed.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                failed.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_few_failures_at_a_time() {
        let failed = Arc::new(FailedLogins::default());
        let [one, near, far, v4] = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "127.0.0.1"]
            .map(|address| failed.source(address.parse().unwrap(), b"u"));
        let guards: Vec<_> = (0..PER_SOURCE_MAX).map(|_| failed.begin(one)).collect();
        assert_eq!([one, near, far, v4].map(|source| failed.may_try(source)), [false, false, true, true]);
        drop(guards);
        assert!(failed.may_try(one) && failed.failed.lock().is_empty());
    }

    #[test]
    fn wrong_log_ins_of_one_user_once_refused_the_others_of_its_address() {
        let failed = Arc::new(FailedLogins::default());
        let of = |user: usize| failed.source("192.0.2.1".parse().unwrap(), format!("user {user}").as_bytes());
        let _guards: Vec<_> = (0..PER_SOURCE_MAX).map(|_| failed.begin(of(0))).collect();
        assert!(!failed.may_try(of(0)));
        // Names once fell together with one of 64: so many of the others were refused, too.
        assert!((1..1000).all(|user| failed.may_try(of(user))));
    }

    #[test]
    fn failures_of_one_address_leave_places_for_others() {
        let failed = Arc::new(FailedLogins::default());
        let of = |address: u32, user: usize| failed.source(IpAddr::V4(address.into()), &user.to_be_bytes());
        let tried = |address| (0..ALL_MAX).map(move |user| (address, user));
        let fill = |address| {
            let may_try = tried(address).take_while(|(address, user)| failed.may_try(of(*address, *user)));
            may_try.map(|(address, user)| failed.begin(of(address, user))).collect::<Vec<_>>()
        };
        let (first, second) = (fill(1), fill(2));
        assert_eq!((first.len(), second.len()), (ALL_MAX / 2, ALL_MAX / 4));
        assert!(!failed.may_try(of(1, ALL_MAX)) && failed.may_try(of(3, 0)));
        drop((first, second));
        assert!(failed.may_try(of(1, 0)) && failed.failed.lock().is_empty());
    }
}
