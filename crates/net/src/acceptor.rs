//! Accepting on one listener: pauses after failures of the system, and goes on by itself.

use std::future::Future;
use std::io;
use std::time::Duration;

use larder_store::RateLimitedLog;
use tokio::time::{Instant, sleep_until};

/// The first pause when the system has no descriptor or no memory for a connection; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: a listener sees free descriptors after it at the latest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Accepts connections of one listener. After a failure it pauses, longer each time, and logs at a bounded rate.
#[derive(Debug)]
pub struct Acceptor {
    listener: &'static str,
    not_before: Instant,
    pause: Duration,
    log: RateLimitedLog,
}

impl Acceptor {
    /// An acceptor for the listener of this name in log lines.
    #[must_use]
    pub fn new(listener: &'static str) -> Self {
        Self { listener, not_before: Instant::now(), pause: PAUSE_MIN, log: RateLimitedLog::new() }
    }

    /// The next connection, however long it takes. A dropped call loses no connection, and its pause continues in the next
    /// call.
    pub async fn next<C, F>(&mut self, mut accept: impl FnMut() -> F) -> C
    where
        F: Future<Output = io::Result<C>>,
    {
        loop {
            if self.not_before > Instant::now() {
                sleep_until(self.not_before).await;
            }
            match accept().await {
                Ok(connection) => {
                    self.pause = PAUSE_MIN;
                    return connection;
                }
                // The error belongs to that client alone: the next accept needs no pause.
                Err(error) if is_of_one_connection(&error) => {
                    tracing::debug!(%error, "connection not accepted: the client closed it first");
                }
                Err(error) => self.back_off(&error),
            }
        }
    }

    /// Without descriptors (EMFILE, ENFILE) or memory (ENOBUFS, ENOMEM) the next try fails too, until others release some.
    fn back_off(&mut self, error: &io::Error) {
        if let Some(line) = self.log.admit_now() {
            tracing::warn!(
                listener = self.listener,
                %error,
                left_out = line.left_out,
                "connection not accepted: the listener tries again in {} ms",
                self.pause.as_millis()
            );
        }
        self.not_before = Instant::now() + self.pause;
        self.pause = PAUSE_MAX.min(self.pause * 2);
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// "Too many open files", on Linux.
    const EMFILE: i32 = 24;

    #[tokio::test(start_paused = true)]
    async fn accept_errors_pause_longer_each_time_and_end_with_a_connection() {
        let mut acceptor = Acceptor::new("test");
        let started = Instant::now();
        let mut tries = Vec::new();
        let mut accept = || {
            tries.push(started.elapsed().as_millis());
            ready(if tries.len() < 9 { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(tries.len()) })
        };
        assert_eq!(acceptor.next(&mut accept).await, 9);
        assert_eq!(acceptor.next(&mut accept).await, 10);
        assert_eq!(tries, [0, 50, 150, 350, 750, 1550, 2550, 3550, 4550, 4550]);
        assert_eq!(acceptor.pause, PAUSE_MIN, "after a connection the first pause is short again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_does_not_shorten_the_pause() {
        let mut acceptor = Acceptor::new("test");
        let mut tries = 0;
        let mut accept = || {
            tries += 1;
            ready(Err::<(), _>(io::Error::from_raw_os_error(EMFILE)))
        };
        // As if another branch of the listener's loop became ready every millisecond.
        for _ in 0..1000 {
            let _ = tokio::time::timeout(Duration::from_millis(1), acceptor.next(&mut accept)).await;
        }
        assert!(tries <= 6, "{tries} tries in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_connection_does_not_delay_the_next_one() {
        let mut acceptor = Acceptor::new("test");
        let started = Instant::now();
        let mut tries = 0;
        let accept = || {
            tries += 1;
            ready(if tries == 1 { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) })
        };
        acceptor.next(accept).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
