//! A request that is sent again while its answer is awaited: a node that hangs delays it by some tenths of a second.
//!
//! ```text
//! asked ──300 ms──> asked again ──300 ms──> once more        the first answer counts
//! ```
//! The driver could do so by itself, but then goes on asking after a node has answered that too few replicas are up, and forgets
//! what that one said.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

/// After so long another request is sent; each takes any of the nodes that hold the rows.
const AGAIN: Duration = Duration::from_millis(300);
/// Requests sent at most.
const REQUESTS_MAX: usize = 3;

/// The first answer to a request that may be sent several times, and how often it was. An error counts as one when no other
/// request is under way, or when `is_final` says that others would answer the same. The other requests may still be carried out:
/// of a write that was sent several times an error says nothing.
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
            Some(answer) = running.next() => match answer {
                Err(error) if !running.is_empty() && !is_final(&error) => {}
                answer => return (answer, sent),
            },
            () = sleep(AGAIN), if sent < REQUESTS_MAX => {
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

    /// Requests that answer after so many milliseconds each; what the first answer is, when it came and how many were sent.
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
        assert_eq!(run(&[(5, Err(1))]).await, (Err(1), 5, 1), "nothing is sent again for it");
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
