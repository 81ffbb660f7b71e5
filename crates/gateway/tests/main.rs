//! Tests of gateways over stores in memory, of the embedded engine and of simulated replicas.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod few_replicas;
mod full_disk;
mod hooks;
mod mapreduce;
mod ports;
mod simulation;
mod webhooks;
