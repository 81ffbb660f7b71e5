//! The failed log-ins of each source that are paused now. Above a bound, further ones of the source are refused unseen.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use larder_admission::client_key;
use parking_lot::Mutex;

/// Most failures of a source at a time.
const PER_SOURCE_MAX: usize = 8;
/// Most failures in all.
const ALL_MAX: usize = 4096;
/// Names of users that an address has. Two that fall together share their failures; who guesses names gets no more than these.
const NAMES: u64 = 64;

/// The source of log-ins: an address, and one of its names.
///
/// A user is not refused for the failures of others at its address, such as behind one router. That goes for names without a user,
/// too: the answer must not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginSource {
    address: IpAddr,
    name: u64,
}

/// Failed log-ins by source.
#[derive(Debug, Default)]
pub(super) struct FailedLogins {
    /// Drawn at each start: no client knows which names fall together.
    names: RandomState,
    failed: Mutex<HashMap<LoginSource, usize>>,
}

impl FailedLogins {
    /// The source of a log-in.
    pub(super) fn source(&self, address: IpAddr, user: &[u8]) -> LoginSource {
        LoginSource { address: client_key(address), name: self.names.hash_one(user) % NAMES }
    }

    /// Whether the source may try.
    pub(super) fn may_try(&self, source: LoginSource) -> bool {
        let failed = self.failed.lock();
        // Each source has one failure at least, so their number bounds the map.
        failed.len() < ALL_MAX && failed.get(&source).is_none_or(|count| *count < PER_SOURCE_MAX)
    }

    /// Counts a failure until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, source: LoginSource) -> FailureGuard {
        *self.failed.lock().entry(source).or_default() += 1;
        FailureGuard { failed: Arc::clone(self), source }
    }
}

/// A failure that counts.
#[must_use = "a failure counts as long as this lives"]
pub(super) struct FailureGuard {
    failed: Arc<FailedLogins>,
    source: LoginSource,
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
        let refused = (1..1000).filter(|user| !failed.may_try(of(*user))).count();
        assert!(refused < 60, "{refused} of 999 fall together with it");
    }

    #[test]
    fn the_number_of_sources_is_bounded() {
        let failed = Arc::new(FailedLogins::default());
        let source = |at: usize| failed.source(IpAddr::V4(u32::try_from(at).unwrap().into()), b"u");
        let guards: Vec<_> = (0..ALL_MAX).map(|at| failed.begin(source(at))).collect();
        assert!(!failed.may_try(source(ALL_MAX)));
        drop(guards);
        assert!(failed.may_try(source(ALL_MAX)));
    }
}
