//! Hedged requests: a request is sent again while its answer is awaited, so a node that hangs delays it by tenths of a
//! second.
//!
//! ```text
//! sent ──300 ms──> sent again ──300 ms──> once more        the first answer counts
//! ```
//! The driver's own speculative execution keeps asking after a node has answered that too few replicas are up, and
//! drops that node's error.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

/// Delay until the next request is sent, to any node that holds the rows.
const HEDGE_AFTER: Duration = Duration::from_millis(300);
/// Most requests for one call.
const REQUESTS_MAX: usize = 3;

/// Sends a request up to [`REQUESTS_MAX`] times; returns the first result and the number of requests. An error counts
/// if no other request is running, or if `is_final` says that the others would fail alike. The other requests may still
/// be executed: if a write was sent more than once, an error does not tell whether it happened.
pub(crate) async fn hedged<T, E, F>(send: impl Fn() -> F, is_final: impl Fn(&E) -> bool) -> (Result<T, E>, usize)
where
    F: Future<Output = Result<T, E>>,
{
    let mut running = FuturesUnordered::new();
    running.push(send());
    let mut sent = 1;
    loop {
        tokio::select! {
            biased;
            // `biased`: an answer that is already here counts before another request is sent.
            Some(answer) = running.next() => match answer {
                // One node's error decides nothing while another request runs, unless every node would answer the same.
                Err(error) if !running.is_empty() && !is_final(&error) => {}
                answer => return (answer, sent),
            },
            () = sleep(HEDGE_AFTER), if sent < REQUESTS_MAX => {
                running.push(send());
                sent += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    /// Sends requests that answer after these milliseconds; returns the first result, its time and the number of
    /// requests.
    async fn run(answers: &[(u64, Result<u8, u8>)]) -> (Result<u8, u8>, u128, usize) {
        let (sent, begun) = (Cell::new(0), Instant::now());
        let send = || {
            let (after, answer) = answers[sent.replace(sent.get() + 1)];
            async move {
                sleep(Duration::from_millis(after)).await;
                answer
            }
        };
        let (answer, count) = hedged(send, |error| *error == 9).await;
        assert_eq!(count, sent.get());
        (answer, begun.elapsed().as_millis(), count)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_counts() {
        assert_eq!(run(&[(5, Ok(1))]).await, (Ok(1), 5, 1));
        assert_eq!(run(&[(5, Err(1))]).await, (Err(1), 5, 1), "an error is not hedged");
        assert_eq!(run(&[(9000, Ok(1)), (5, Ok(2))]).await, (Ok(2), 305, 2));
        assert_eq!(run(&[(9000, Ok(1)), (9000, Ok(2)), (5, Ok(3))]).await, (Ok(3), 605, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_counts_when_no_other_answer_can_come() {
        assert_eq!(run(&[(400, Err(1)), (400, Ok(2)), (9000, Ok(3))]).await, (Ok(2), 700, 2));
        assert_eq!(run(&[(400, Err(9)), (9000, Ok(2))]).await, (Err(9), 400, 2));
        assert_eq!(run(&[(700, Err(1)), (700, Err(2)), (700, Err(3))]).await, (Err(3), 1300, 3));
    }
}
