//! Answers that end in the middle, since what follows cannot be read: their connections end, and no client takes them for whole.

use std::error::Error;
use std::io;

use larder_store::RateLimitedLog;

static BROKEN_OFF: RateLimitedLog = RateLimitedLog::new();

/// The error that ends the connection of an answer, of which `part` failed. A client can cause it as often as it asks, so the log
/// has it at a bounded rate.
pub fn break_off(part: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    let error = io::Error::other(error);
    if let Some(line) = BROKEN_OFF.admit_now() {
        tracing::warn!(%error, left_out = line.left_out, "{part} failed: the answer is broken off");
    }
    error
}
