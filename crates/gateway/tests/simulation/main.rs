//! Several gateways over one store, one seed, virtual time: pauses, lost answers, lagging reads, skewed clocks, restarts.
//!
//! `random` walks schedules drawn from seeds and checks what was promised; `LARDER_SCHEDULES` says how many. `rules` has one
//! schedule per rule of the design: it holds with the rule and fails without it. `s3` does both for the S3 side, `kv_blobs` for
//! large bodies of the key-value side.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]

mod consistent;
mod kv_blobs;
mod ledger;
mod linear;
mod members;
mod quorums;
mod random;
mod replicas;
mod rules;
mod s3;
mod slots;
mod types;
mod world;
