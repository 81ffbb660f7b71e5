//! Waiting for what comes true by itself.

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
    while !holds() {
        assert!(begun.elapsed() < max, "{what}: not within {max:?}");
        thread::sleep(STEP);
    }
    eprintln!("{what}: {} ms", begun.elapsed().as_millis());
    begun.elapsed()
}
