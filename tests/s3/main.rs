//! The S3 interface from outside: real clients, requests signed by hand, faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, runs in real time, and is told by the environment where clients are"
)]

mod clients;
mod kill9;
mod list_parts;
mod malformed;
mod old;
mod sdk;
mod startup;
mod streams;
