//! Draws the faults of calls and applies them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{LATE_MAX, StoreFaults, unavailable};
use crate::SplitMix64;
use larder_store::{CallOptions, Error, Kind, Result};

/// State that all calls through one [`super::Faulty`] share.
pub(super) struct StoreFaultInjector {
    state: Mutex<FaultState>,
    frozen: watch::Sender<bool>,
}

struct FaultState {
    random: SplitMix64,
    /// A generator of its own, so that late writes do not change the other faults of a seed.
    late: SplitMix64,
    faults: StoreFaults,
    cut: bool,
}

/// The faults of one call. They are drawn at its start, always with the same number of draws: the faults of one call do
/// not depend on the duration of another.
pub(super) struct CallFate {
    pause_before: Option<Duration>,
    pause_after: Option<Duration>,
    fails: bool,
    fails_late: bool,
    lost: bool,
}

/// The deadline of a call, and the errors it may fail with.
pub(super) struct FaultTerms {
    /// When the call gives up, if ever.
    pub(super) deadline: Option<Instant>,
    /// The error of a call that was not made.
    pub(super) refused: Kind,
    /// The error of a call that may have been made.
    pub(super) lost: Kind,
}

impl FaultTerms {
    /// The terms of a call to a store.
    pub(super) fn from_options(options: &CallOptions) -> Self {
        Self { deadline: Some(options.deadline), refused: unavailable(options.level), lost: Kind::TimedOut }
    }
}

impl StoreFaultInjector {
    pub(super) fn new(seed: u64) -> Self {
        let late = SplitMix64::new(seed ^ 0x1a7e);
        let state = FaultState { random: SplitMix64::new(seed), late, faults: StoreFaults::none(), cut: false };
        Self { state: Mutex::new(state), frozen: watch::Sender::new(false) }
    }

    pub(super) fn set_faults(&self, faults: StoreFaults) {
        self.state.lock().faults = faults;
    }

    pub(super) fn faults(&self) -> StoreFaults {
        self.state.lock().faults
    }

    pub(super) fn cut(&self, cut: bool) {
        self.state.lock().cut = cut;
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Draws the faults of the next call.
    pub(super) fn draw_call(&self) -> CallFate {
        let FaultState { random, faults, .. } = &mut *self.state.lock();
        CallFate {
            pause_before: draw_pause(random, faults),
            pause_after: draw_pause(random, faults),
            fails: random.chance(faults.fail_per_mille),
            fails_late: random.chance(500),
            lost: random.chance(faults.lose_per_mille),
        }
    }

    /// Delay of the next write; `None` for a write that is made at once.
    pub(super) fn draw_delay(&self) -> Option<Duration> {
        let FaultState { late, faults, .. } = &mut *self.state.lock();
        let micros = late.number_below(LATE_MAX.as_micros() as u64);
        late.chance(faults.late_per_mille).then_some(Duration::from_micros(micros))
    }

    /// Lag of a stale read, up to `max`; `None` for a current read.
    pub(super) fn draw_lag(&self, max: Duration) -> Option<Duration> {
        let FaultState { random, faults, .. } = &mut *self.state.lock();
        let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
        let lag = Duration::from_micros(random.number_below(micros) + 1);
        random.chance(faults.stale_per_mille).then_some(lag)
    }

    /// Applies the faults before a call; after an error the call is not made.
    pub(super) async fn inject_before(&self, fate: &CallFate, terms: &FaultTerms) -> Result<()> {
        self.pause(fate.pause_before, terms).await?;
        if self.state.lock().cut {
            return Err(Error::new(terms.refused, "injected: cut off"));
        }
        if fate.fails {
            let kind = if fate.fails_late { terms.lost } else { terms.refused };
            return Err(Error::new(kind, "injected: not done"));
        }
        Ok(())
    }

    /// Applies the faults to the answer of a call that was made.
    pub(super) async fn inject_after(&self, fate: &CallFate, terms: &FaultTerms) -> Result<()> {
        self.pause(fate.pause_after, terms).await?;
        if fate.lost || self.state.lock().cut {
            return Err(Error::new(terms.lost, "injected: the answer is lost"));
        }
        Ok(())
    }

    async fn pause(&self, pause: Option<Duration>, terms: &FaultTerms) -> Result<()> {
        self.wait_until_thawed().await;
        if let Some(pause) = pause {
            let end = Instant::now() + pause;
            sleep_until(terms.deadline.map_or(end, |deadline| end.min(deadline))).await;
            self.wait_until_thawed().await;
        }
        if terms.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::new(Kind::TimedOut, "injected: paused beyond the deadline"));
        }
        Ok(())
    }

    async fn wait_until_thawed(&self) {
        // `self` owns the sender, so this cannot fail while it waits.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }
}

fn draw_pause(random: &mut SplitMix64, faults: &StoreFaults) -> Option<Duration> {
    let pause = Duration::from_millis(random.number_below(faults.pause_ms_max) + 1);
    (random.chance(faults.pause_per_mille) && faults.pause_ms_max > 0).then_some(pause)
}
