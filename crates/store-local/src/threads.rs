//! Threads and locks of the engine. With the feature `schedules` they belong to `shuttle`: it runs one thread at a time, and another one
//! from each lock on, in an order that a seed chooses. See `schedules`.

#[cfg(not(feature = "schedules"))]
pub(crate) use real::*;
#[cfg(feature = "schedules")]
pub(crate) use scheduled::*;

#[cfg(not(feature = "schedules"))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::thread::{Builder, JoinHandle};
    pub(crate) use tokio::task::spawn_blocking;
    pub(crate) use tokio::time::timeout_at;

    /// Waits for requests; returns their number, 0 when the other end is gone.
    pub(crate) fn receive_many<T>(
        receiver: &mut tokio::sync::mpsc::Receiver<T>,
        received: &mut Vec<T>,
        most: usize,
    ) -> usize {
        receiver.blocking_recv_many(received, most)
    }
}

#[cfg(feature = "schedules")]
mod scheduled {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    pub(crate) use shuttle_parking_lot_impl::{Mutex, MutexGuard, RwLock};

    /// As the one of `parking_lot`. A wait with a time may end at once: time is not modelled.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar {
        notices: shuttle::sync::Mutex<u64>,
        changed: shuttle::sync::Condvar,
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_all(&self) {
            *self.notices() += 1;
            self.changed.notify_all();
        }

        pub(crate) fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut waits: impl FnMut(&mut T) -> bool) {
            while waits(guard) {
                // Read before the lock is free: a notice in between ends the wait.
                let seen = *self.notices();
                MutexGuard::unlocked(guard, || {
                    drop(self.changed.wait_while(self.notices(), |notices| *notices == seen));
                });
            }
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            MutexGuard::unlocked(guard, shuttle::thread::yield_now);
        }

        fn notices(&self) -> shuttle::sync::MutexGuard<'_, u64> {
            self.notices.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// As the one of tokio.
    pub(crate) async fn spawn_blocking<T>(work: impl FnOnce() -> T) -> Result<T, ()> {
        Ok(work())
    }

    /// As the one of tokio, without an end.
    pub(crate) async fn timeout_at<T>(_: tokio::time::Instant, work: impl Future<Output = T>) -> Result<T, ()> {
        Ok(work.await)
    }

    /// Waits for requests; returns their number, 0 when the other end is gone.
    pub(crate) fn receive_many<T>(
        receiver: &mut tokio::sync::mpsc::Receiver<T>,
        received: &mut Vec<T>,
        most: usize,
    ) -> usize {
        shuttle::future::block_on(receiver.recv_many(received, most))
    }
}
