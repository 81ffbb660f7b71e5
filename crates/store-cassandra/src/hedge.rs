//! The wait for an answer: until a deadline, and no longer than enough replicas can give it. A hedged request is sent again
//! meanwhile, so a node that hangs delays it by tenths of a second.
//!
//! ```text
//! judged, sent ──300 ms──> sent again ──300 ms──> once more        the first answer counts
//!           └─ judged every 100 ms: refused, it is given up        most calls are answered before
//! ```
//! The driver's own speculative execution keeps asking after a node has answered that too few replicas are up, and
//! drops that node's error.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use larder_store::Error;
use tokio::time::{Instant, sleep_until};

/// How often a call that waits is judged. Delays of hedged requests are multiples of it.
const TICK: Duration = Duration::from_millis(100);
/// Ticks until the next request is sent, to any node that holds the rows.
const HEDGE_TICKS: u32 = 3;
/// Most requests for one call.
const REQUESTS_MAX: usize = 3;

/// How long a call waits for its answer, and how often it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// When the call ends without an answer.
    pub(crate) deadline: Instant,
    /// Whether it may be sent more than once.
    pub(crate) may_repeat: bool,
}

/// Why a call ended without an answer.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// Its deadline passed; it may have been executed.
    DeadlinePassed,
    /// It was refused, and not sent.
    Unsent(Error),
    /// It was sent and then given up; it may have been executed.
    GivenUp(Error),
}

/// Sends a request, up to [`REQUESTS_MAX`] times if it may repeat; returns the first result and the number of requests. An error
/// counts if no other request is running, or if `is_final` says that the others would fail alike. The other requests may still
/// be executed: if a write was sent more than once, an error does not tell whether it happened.
///
/// # Errors
/// At the deadline, or once `judge` refuses the call, before it is sent or while it waits.
pub(crate) async fn hedged<T, E, F>(
    send: impl Fn() -> F,
    limits: CallLimits,
    is_final: impl Fn(&E) -> bool,
    judge: impl Fn() -> Result<(), Error>,
) -> Result<(Result<T, E>, usize), CallEnd>
where
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    if begun >= limits.deadline {
        return Err(CallEnd::DeadlinePassed);
    }
    judge().map_err(CallEnd::Unsent)?;
    let mut ticks = 0;
    // One timer for all limits: most calls are answered before the first tick, and a timer costs as much as a lock.
    let mut tick = pin!(sleep_until(limits.deadline.min(begun + TICK)));
    let mut first = pin!(send());
    let mut is_first_done = false;
    // Requests are large: only those that are rarely sent are on the heap.
    let mut further = Vec::new();
    let mut sent = 1;
    loop {
        let answer = tokio::select! {
            biased;
            // `biased`: an answer that is already here counts before another request is sent.
            answer = &mut first, if !is_first_done => {
                is_first_done = true;
                answer
            }
            answer = next_of(&mut further) => answer,
            () = &mut tick => {
                if Instant::now() >= limits.deadline {
                    return Err(CallEnd::DeadlinePassed);
                }
                judge().map_err(CallEnd::GivenUp)?;
                ticks += 1;
                tick.as_mut().reset(limits.deadline.min(begun + TICK * (ticks + 1)));
                if limits.may_repeat && ticks % HEDGE_TICKS == 0 && sent < REQUESTS_MAX {
                    further.push(Box::pin(send()));
                    sent += 1;
                }
                continue;
            }
        };
        let is_other_running = !is_first_done || !further.is_empty();
        match answer {
            // One node's error decides nothing while another request runs, unless every node would answer the same.
            Err(error) if is_other_running && !is_final(&error) => {}
            answer => return Ok((answer, sent)),
        }
    }
}

/// The next answer of these requests, which are left without it; waits for ever without requests.
async fn next_of<F: Future>(requests: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|context| {
        let polled = requests.iter_mut().map(|request| request.as_mut().poll(context)).enumerate();
        let mut ready = polled.filter_map(|(at, state)| match state {
            Poll::Ready(answer) => Some((at, answer)),
            Poll::Pending => None,
        });
        let Some((at, answer)) = ready.next() else { return Poll::Pending };
        drop(requests.swap_remove(at));
        Poll::Ready(answer)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use larder_store::Kind;
    use tokio::time::sleep;

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
        let limits = CallLimits { deadline: begun + Duration::from_secs(60), may_repeat: true };
        let (answer, count) = hedged(send, limits, |error| *error == 9, || Ok(())).await.unwrap();
        assert_eq!(count, sent.get());
        (answer, begun.elapsed().as_millis(), count)
    }

    fn silence() -> Error {
        Error::new(Kind::Unavailable { alive: 1, required: 2 }, "heads: 1 of 2 replicas answer")
    }

    /// Sends a request that is never answered; returns how it ends and when. It is given up after these milliseconds.
    async fn end(deadline: u64, given_up: u64, may_repeat: bool) -> (&'static str, u128, usize) {
        let (sent, begun) = (Cell::new(0), Instant::now());
        let send = || {
            sent.set(sent.get() + 1);
            std::future::pending::<Result<u8, u8>>()
        };
        let judge = || if begun.elapsed() >= Duration::from_millis(given_up) { Err(silence()) } else { Ok(()) };
        let limits = CallLimits { deadline: begun + Duration::from_millis(deadline), may_repeat };
        let end = hedged(send, limits, |_| false, judge).await.unwrap_err();
        let name = match end {
            CallEnd::DeadlinePassed => "deadline passed",
            CallEnd::Unsent(_) => "unsent",
            CallEnd::GivenUp(_) => "given up",
        };
        (name, begun.elapsed().as_millis(), sent.get())
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
        assert_eq!(run(&[(400, Err(1)), (400, Ok(2)), (9000, Ok(3))]).await, (Ok(2), 700, 3));
        assert_eq!(run(&[(400, Err(9)), (9000, Ok(2))]).await, (Err(9), 400, 2));
        assert_eq!(run(&[(700, Err(1)), (700, Err(2)), (700, Err(3))]).await, (Err(3), 1300, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_at_its_deadline_or_when_it_is_given_up() {
        assert_eq!(end(250, 9000, true).await, ("deadline passed", 250, 1));
        assert_eq!(end(7030, 9000, true).await, ("deadline passed", 7030, 3));
        assert_eq!(end(7030, 9000, false).await, ("deadline passed", 7030, 1));
        assert_eq!(end(0, 9000, true).await, ("deadline passed", 0, 0));
        assert_eq!(end(7030, 0, true).await, ("unsent", 0, 0));
        assert_eq!(end(7030, 450, true).await, ("given up", 500, 2));
    }
}
