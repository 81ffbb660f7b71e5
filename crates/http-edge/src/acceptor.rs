//! Accepting, whatever the system says: a listener never ends because a connection could not be accepted, and never spins.

use std::future::Future;
use std::io;
use std::time::Duration;

use larder_store::RateLimitedLog;
use tokio::time::{Instant, sleep_until};

/// The first pause when the system has no descriptor or no memory for a connection; each that follows is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: how late a listener may notice that there are descriptors again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Accepts connections of one listener. When that fails it waits, longer each time, and says so once in a while.
#[derive(Debug)]
pub struct Acceptor {
    listener: &'static str,
    started: Instant,
    not_before: Instant,
    pause: Duration,
    log: RateLimitedLog,
}

impl Acceptor {
    /// For the listener that log lines call by this name.
    #[must_use]
    pub fn new(listener: &'static str) -> Self {
        let started = Instant::now();
        Self { listener, started, not_before: started, pause: PAUSE_MIN, log: RateLimitedLog::new() }
    }

    /// The next connection, however long it takes. To drop the wait loses no connection, and a pause under way goes on at the
    /// next call.
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
                // That client has gone: the next one is no worse for it.
                Err(error) if is_of_one_connection(&error) => tracing::debug!(%error, "a client went before its turn"),
                Err(error) => self.hold_back(&error),
            }
        }
    }

    /// Without descriptors (EMFILE, ENFILE) or memory (ENOBUFS, ENOMEM) the next try fails as well: others have to let go first.
    fn hold_back(&mut self, error: &io::Error) {
        let now = Instant::now();
        if let Some(line) = self.log.admit(now - self.started) {
            tracing::warn!(
                listener = self.listener,
                %error,
                left_out = line.left_out,
                "connection not accepted: the listener tries again in {} ms",
                self.pause.as_millis()
            );
        }
        self.not_before = now + self.pause;
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
    async fn without_descriptors_it_waits_longer_each_time_and_then_goes_on() {
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
    async fn a_wait_that_is_dropped_does_not_shorten_the_pause() {
        let mut acceptor = Acceptor::new("test");
        let mut tries = 0;
        let mut accept = || {
            tries += 1;
            ready(Err::<(), _>(io::Error::from_raw_os_error(EMFILE)))
        };
        // As when something else in the listener's loop is ready first, every millisecond.
        for _ in 0..1000 {
            let _ = tokio::time::timeout(Duration::from_millis(1), acceptor.next(&mut accept)).await;
        }
        assert!(tries <= 6, "{tries} tries in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_went_away_delays_nobody() {
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
