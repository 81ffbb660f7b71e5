//! Clusters of Cassandra whose nodes fail, under gateways that fail too. `cargo xtask test --only clusters` runs these tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, runs in real time and prints its progress"
)]

mod access_control;
mod contention;
mod datacenters;
mod datatypes;
mod failover;
mod faults;
mod growth;
mod linear;
mod load;
mod nodes_down;
mod partition;
mod plot;
