//! The processor time of calls that run long: while the server serves requests, they take turns of one short slice each.
//!
//! A kernel that finds a looping worker on a processor lets a thread of the server wait there for some milliseconds, whatever the
//! priority of the worker. So a worker is stopped, not slowed.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use crate::worker_process::{FREE_RUN, IDLE_LOOK, IDLE_SERVER_CPU, SLICE_PERIOD, TIME_SLICE};

/// Calls that run long, and the thread that stops and continues their workers.
///
/// Promises: a call that needs less than [`FREE_RUN`] of processor time is never stopped; while the server serves requests, all others
/// together get one [`TIME_SLICE`] per period, in turn; while it does not, they run freely.
pub(crate) struct TimeSlices {
    round: Arc<SliceRound>,
}

/// State that the calls share with the thread.
#[derive(Default)]
struct SliceRound {
    long: Mutex<LongCalls>,
    changed: Condvar,
}

#[derive(Default)]
struct LongCalls {
    /// Their workers, the one whose turn is next first.
    workers: VecDeque<Pid>,
    /// The pool is gone.
    is_closed: bool,
}

/// A long call; its worker runs on when this is dropped.
struct LongCall<'a> {
    round: &'a SliceRound,
    worker: Pid,
}

/// The processor time that the server itself has used.
struct ServerLoad {
    used: Duration,
}

impl TimeSlices {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub(crate) fn start() -> io::Result<Self> {
        let round = Arc::new(SliceRound::default());
        let shared = Arc::clone(&round);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let period = SLICE_PERIOD / u32::try_from(processors).unwrap_or(u32::MAX);
        thread::Builder::new().name("script-slices".into()).spawn(move || shared.give_slices(period))?;
        Ok(Self { round })
    }

    /// Waits for the answer to a call of this worker, which gets its slices when the call runs long.
    pub(crate) async fn share<T>(&self, worker: Pid, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = runs_long(worker) => {}
        }
        let _long = self.round.add(worker);
        call.await
    }
}

impl Drop for TimeSlices {
    fn drop(&mut self) {
        self.round.long.lock().is_closed = true;
        self.round.changed.notify_one();
    }
}

impl SliceRound {
    fn add(&self, worker: Pid) -> LongCall<'_> {
        self.long.lock().workers.push_back(worker);
        self.changed.notify_one();
        LongCall { round: self, worker }
    }

    /// The thread: it ends with the pool.
    fn give_slices(&self, period: Duration) {
        while self.wait_for_long_call() {
            let load = ServerLoad::now();
            self.signal_all(Signal::SIGCONT);
            thread::sleep(IDLE_LOOK);
            let mut is_busy = load.has_grown();
            while is_busy && self.has_long_call() {
                let load = ServerLoad::now();
                self.give_one_slice();
                thread::sleep(period.saturating_sub(TIME_SLICE));
                is_busy = load.has_grown();
            }
        }
    }

    /// Waits until a call runs long; `false` when the pool is gone.
    fn wait_for_long_call(&self) -> bool {
        let mut long = self.long.lock();
        while long.workers.is_empty() && !long.is_closed {
            self.changed.wait(&mut long);
        }
        !long.is_closed
    }

    fn has_long_call(&self) -> bool {
        !self.long.lock().workers.is_empty()
    }

    /// Stops all long calls but the next one, which runs for a slice.
    fn give_one_slice(&self) {
        self.signal_all(Signal::SIGSTOP);
        if let Some(worker) = self.rotate() {
            self.signal(worker, Signal::SIGCONT);
            thread::sleep(TIME_SLICE);
            self.signal(worker, Signal::SIGSTOP);
        }
    }

    fn rotate(&self) -> Option<Pid> {
        let workers = &mut self.long.lock().workers;
        let next = workers.pop_front()?;
        workers.push_back(next);
        Some(next)
    }

    fn signal_all(&self, signal: Signal) {
        let long = self.long.lock();
        long.workers.iter().for_each(|worker| send(*worker, signal));
    }

    /// Sends a signal to a worker whose call still runs long.
    fn signal(&self, worker: Pid, signal: Signal) {
        // Race: the call may end, and its worker get another call, at any time. The lock keeps a stop from coming after the end [invariant 142].
        let long = self.long.lock();
        if long.workers.contains(&worker) {
            send(worker, signal);
        }
    }
}

impl Drop for LongCall<'_> {
    fn drop(&mut self) {
        let mut long = self.round.long.lock();
        long.workers.retain(|worker| *worker != self.worker);
        // The worker may be stopped between its answer and its next frame.
        send(self.worker, Signal::SIGCONT);
    }
}

impl ServerLoad {
    fn now() -> Self {
        let thread = cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID);
        // Its own thread works for the scripts.
        Self { used: cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(thread) }
    }

    /// Whether the server has served requests since.
    fn has_grown(&self) -> bool {
        Self::now().used.saturating_sub(self.used) > IDLE_SERVER_CPU
    }
}

/// Returns when the worker has used [`FREE_RUN`] from now on. Time that it waits for a processor does not count.
async fn runs_long(worker: Pid) {
    let Ok(clock) = clock_getcpuclockid(worker) else { return std::future::pending().await };
    let begun = cpu_time(clock);
    let mut left = FREE_RUN;
    while !left.is_zero() {
        tokio::time::sleep(left).await;
        left = FREE_RUN.saturating_sub(cpu_time(clock).saturating_sub(begun));
    }
}

/// Processor time by this clock; none of a process that has ended.
fn cpu_time(clock: ClockId) -> Duration {
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// It fails for a process that has ended, whose call ends as well. The pool has not collected it yet, so its number is its own.
fn send(worker: Pid, signal: Signal) {
    let _ = kill(worker, signal);
}

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
