//! A store that seals what it hands to its engine, against the promises of an engine and against who reads the disk.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod at_rest;
mod first_writes;
mod unknown_keys;
