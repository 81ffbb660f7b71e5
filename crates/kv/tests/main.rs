//! Tests of gateways over stores in memory, of the embedded engine and of simulated replicas, and of the rules of key-value:
//! golden scripts, laws of data types.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod causality;
mod datatype_golden;
mod datatypes;
mod few_replicas;
mod full_disk;
mod golden;
mod hooks;
mod imports;
mod key;
mod mapreduce;
mod ports;
mod simulation;
mod webhooks;
