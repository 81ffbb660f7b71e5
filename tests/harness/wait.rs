//! Waiting for a condition, with a deadline.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two checks of a condition.
const STEP: Duration = Duration::from_millis(20);

/// Waits until `holds`, and prints the time on stderr.
///
/// # Panics
/// When it takes longer than `max`.
#[track_caller]
pub fn wait(what: &str, max: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    wait_for(what, max, || holds().then_some(()).ok_or("it does not hold"));
    begun.elapsed()
}

/// Calls `attempt` until it succeeds, returns its value and prints the time on stderr.
///
/// # Panics
/// When it takes longer than `max`, with the last error.
#[track_caller]
pub fn wait_for<T, E: Display>(what: &str, max: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(value) => {
                eprintln!("{what}: {} ms", begun.elapsed().as_millis());
                return value;
            }
            Err(error) => assert!(begun.elapsed() < max, "{what}: not within {max:?}: {error}"),
        }
        thread::sleep(STEP);
    }
}
