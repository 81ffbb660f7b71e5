//! Tests of script workers in processes of their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod hostile;
mod long_calls;
mod support;
