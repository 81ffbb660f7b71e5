//! Clusters of Cassandra whose nodes fail, and gateways over them that fail too. `cargo xtask test --only clusters` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, runs in real time and says what it does"
)]

mod contention;
mod datacenters;
mod failover;
mod linear;
mod load;
mod locked;
mod partition;
mod plot;
