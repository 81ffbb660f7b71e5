//! Clients that ask for a response and do not read it.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::arriving_body::Pace;

/// How often the check for slow readers runs.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Returns when a client takes its responses below the least rate for too long. `activity` tells whether bytes wait for the
/// client, and how many went out.
pub(crate) async fn wait_for_slow_reader(activity: impl Fn() -> (bool, u64)) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since: Option<(Pace, u64)> = None;
    loop {
        ticks.tick().await;
        let (is_blocked, sent) = activity();
        if !is_blocked {
            since = None;
            continue;
        }
        let (pace, before) = since.get_or_insert_with(|| (Pace::begin(), sent));
        pace.count(sent.saturating_sub(*before));
        *before = sent;
        // Bound: a client that reads almost nothing would hold the memory of its response for ever.
        if Instant::now() > pace.deadline() {
            tracing::debug!("response too slow: the client reads below the least rate, so the connection is closed");
            return;
        }
    }
}
