//! Decides what goes wrong, and makes it so.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Faults, LATE_MAX, unavailable};
use crate::wrappers::random::SplitMix64;
use crate::{Error, Kind, Options, Result};

/// What every call through one [`super::Faulty`] shares.
pub(super) struct Hand {
    state: Mutex<State>,
    frozen: watch::Sender<bool>,
}

struct State {
    random: SplitMix64,
    /// Its own numbers, so that late writes do not change what else happens.
    late: SplitMix64,
    faults: Faults,
    cut: bool,
}

/// What happens to one call. Drawn at its beginning, always with as many numbers: what one call meets does not depend on how
/// long another takes.
pub(super) struct Fate {
    pause_before: Option<Duration>,
    pause_after: Option<Duration>,
    fails: bool,
    fails_late: bool,
    lost: bool,
}

/// What a call may be answered when it goes wrong.
pub(super) struct Terms {
    /// When it gives up, if ever.
    pub(super) deadline: Option<Instant>,
    /// Not done.
    pub(super) refused: Kind,
    /// Done, perhaps.
    pub(super) lost: Kind,
}

impl Terms {
    /// Those of a call to a store.
    pub(super) fn of(options: &Options) -> Self {
        Self { deadline: Some(options.deadline), refused: unavailable(options.level), lost: Kind::TimedOut }
    }
}

impl Hand {
    pub(super) fn new(seed: u64) -> Self {
        let late = SplitMix64::new(seed ^ 0x1a7e);
        let state = State { random: SplitMix64::new(seed), late, faults: Faults::none(), cut: false };
        Self { state: Mutex::new(state), frozen: watch::Sender::new(false) }
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    pub(super) fn faults(&self) -> Faults {
        self.state.lock().faults
    }

    pub(super) fn cut(&self, cut: bool) {
        self.state.lock().cut = cut;
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// The fate of the next call.
    pub(super) fn draw(&self) -> Fate {
        let State { random, faults, .. } = &mut *self.state.lock();
        Fate {
            pause_before: pause(random, faults),
            pause_after: pause(random, faults),
            fails: random.chance(faults.fail_per_mille),
            fails_late: random.chance(500),
            lost: random.chance(faults.lose_per_mille),
        }
    }

    /// How late the next write is made; `None` for one that is made in time.
    pub(super) fn late(&self) -> Option<Duration> {
        let State { late, faults, .. } = &mut *self.state.lock();
        let micros = late.below(LATE_MAX.as_micros() as u64);
        late.chance(faults.late_per_mille).then_some(Duration::from_micros(micros))
    }

    /// How far a read lags, up to `max`; `None` for one that does not.
    pub(super) fn lag(&self, max: Duration) -> Option<Duration> {
        let State { random, faults, .. } = &mut *self.state.lock();
        let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
        let lag = Duration::from_micros(random.below(micros) + 1);
        random.chance(faults.stale_per_mille).then_some(lag)
    }

    /// What happens before a call is made; not made after an error.
    pub(super) async fn before(&self, fate: &Fate, terms: &Terms) -> Result<()> {
        self.delay(fate.pause_before, terms).await?;
        if self.state.lock().cut {
            return Err(Error::new(terms.refused, "injected: cut off"));
        }
        if fate.fails {
            let kind = if fate.fails_late { terms.lost } else { terms.refused };
            return Err(Error::new(kind, "injected: not done"));
        }
        Ok(())
    }

    /// What happens to the answer of a call that was made.
    pub(super) async fn after(&self, fate: &Fate, terms: &Terms) -> Result<()> {
        self.delay(fate.pause_after, terms).await?;
        if fate.lost || self.state.lock().cut {
            return Err(Error::new(terms.lost, "injected: the answer is lost"));
        }
        Ok(())
    }

    async fn delay(&self, pause: Option<Duration>, terms: &Terms) -> Result<()> {
        self.thawed().await;
        if let Some(pause) = pause {
            let end = Instant::now() + pause;
            sleep_until(terms.deadline.map_or(end, |deadline| end.min(deadline))).await;
            self.thawed().await;
        }
        if terms.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::new(Kind::TimedOut, "injected: paused beyond the deadline"));
        }
        Ok(())
    }

    async fn thawed(&self) {
        // The sender is ours, so this cannot fail while we wait.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }
}

fn pause(random: &mut SplitMix64, faults: &Faults) -> Option<Duration> {
    let pause = Duration::from_millis(random.below(faults.pause_ms_max) + 1);
    (random.chance(faults.pause_per_mille) && faults.pause_ms_max > 0).then_some(pause)
}
