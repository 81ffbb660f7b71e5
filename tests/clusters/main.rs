//! Clusters of Cassandra whose nodes fail, and gateways over them that fail too. `cargo xtask test --only clusters` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

mod failover;
mod linear;
mod load;
mod one_down;
mod plot;
