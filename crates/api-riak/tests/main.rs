//! Tests of the Riak interface over connections: transcripts, clients that break rules, several gateways.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod access;
mod at_once;
mod pb;
mod quorums;
mod support;
mod transcripts;
mod wire;
