//! Tests of the S3 interface over connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod at_once;
mod browsers;
mod checksums;
mod conditions;
mod documents;
mod events;
mod hostile;
mod keys;
mod links;
mod model;
mod object_lock;
mod operations;
mod ownership;
mod permissions;
mod sessions;
mod support;
mod website;
mod wire;
mod write_terms;
