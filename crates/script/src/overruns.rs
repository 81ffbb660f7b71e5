//! Clients whose calls run too long, one after the other: further ones are refused for a while, before they take a worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Calls in a row that may run too long.
const FREE_OVERRUNS: u32 = 3;
/// How long a client is refused after those. Each further call that runs too long doubles it, up to the longest.
const REFUSED_FIRST: Duration = Duration::from_secs(10);
const REFUSED_LAST: Duration = Duration::from_secs(300);
/// Clients kept at least before those are forgotten that rested as long as the longest refusal.
const CLIENTS_KEPT_MIN: usize = 1024;

/// The clients whose last call ran too long.
#[derive(Debug, Default)]
pub(crate) struct Overruns(Mutex<HashMap<Arc<str>, OverrunClient>>);

#[derive(Debug, Clone, Copy)]
struct OverrunClient {
    in_a_row: u32,
    refused_until: Instant,
}

impl Overruns {
    /// Whether a call of this client is refused now.
    pub(crate) fn refuses(&self, client: &str, now: Instant) -> bool {
        self.0.lock().get(client).is_some_and(|client| now < client.refused_until)
    }

    /// Notes how a call ended.
    pub(crate) fn note(&self, client: &Arc<str>, ran_too_long: bool, now: Instant) {
        let mut clients = self.0.lock();
        if !ran_too_long {
            clients.remove(client);
            return;
        }
        if clients.len() >= CLIENTS_KEPT_MIN {
            clients.retain(|_, client| now < client.refused_until + REFUSED_LAST);
        }
        let noted = clients.entry(Arc::clone(client)).or_insert(OverrunClient { in_a_row: 0, refused_until: now });
        noted.in_a_row += 1;
        if let Some(further) = noted.in_a_row.checked_sub(FREE_OVERRUNS) {
            let refused = REFUSED_FIRST.saturating_mul(2_u32.saturating_pow(further)).min(REFUSED_LAST);
            noted.refused_until = now + refused;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_calls_always_run_too_long_takes_few_workers() {
        let (overruns, begun) = (Overruns::default(), Instant::now());
        let (client, mut now, mut calls) = (Arc::from("b"), begun, 0);
        while now < begun + Duration::from_secs(600) {
            if !overruns.refuses(&client, now) {
                calls += 1;
                overruns.note(&client, true, now);
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(calls, 8, "3 at once, then after 10, 20, 40, 80, 160 seconds");
        assert!(!overruns.refuses("c", now));
    }

    #[test]
    fn a_call_that_ends_in_time_forgives_those_before() {
        let (overruns, now, client) = (Overruns::default(), Instant::now(), Arc::from("b"));
        for _ in 0..10 {
            overruns.note(&client, true, now);
            overruns.note(&client, true, now);
            overruns.note(&client, false, now);
        }
        assert!(!overruns.refuses(&client, now) && overruns.0.lock().is_empty());
    }
}
