//! The S3 interface from outside: published clients, requests signed by hand, faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, runs in real time, and reads the paths of clients from the environment"
)]

mod clients;
mod encrypted;
mod events;
mod expiry;
mod kill9;
mod list_parts;
mod malformed;
mod minio;
mod model;
mod quotas;
mod sdk;
mod sealed_disk;
mod startup;
mod streams;
