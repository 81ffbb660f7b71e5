//! Tests of the server over its engines.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod cassandra_index;
mod datatypes;
mod index;
mod published;
mod start;
#[path = "../../kv/tests/simulation/index/walk.rs"]
mod walk;
