//! Tests of the embedded engine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod conformance;
mod damage;
mod model;
mod store;
