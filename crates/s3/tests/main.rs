//! Tests of S3 from outside its crate: random policies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod policies;
