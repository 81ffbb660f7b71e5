//! Waiting for what comes true by itself.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const STEP: Duration = Duration::from_millis(20);

/// Waits until `holds`, and says on stderr how long that took.
///
/// # Panics
/// When it takes longer than `max`.
#[track_caller]
pub fn wait(what: &str, max: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    wait_for(what, max, || holds().then_some(()).ok_or("it does not hold"));
    begun.elapsed()
}

/// Tries until there is one, which is answered, and says on stderr how long that took.
///
/// # Panics
/// When it takes longer than `max`, with the last error.
#[track_caller]
pub fn wait_for<T, E: Display>(what: &str, max: Duration, mut tried: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match tried() {
            Ok(there) => {
                eprintln!("{what}: {} ms", begun.elapsed().as_millis());
                return there;
            }
            Err(error) => assert!(begun.elapsed() < max, "{what}: not within {max:?}: {error}"),
        }
        thread::sleep(STEP);
    }
}
