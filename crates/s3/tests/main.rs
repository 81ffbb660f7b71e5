//! Tests of S3 from outside its crate: random policies of buckets, users, groups and sessions.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod identities;
mod policies;
