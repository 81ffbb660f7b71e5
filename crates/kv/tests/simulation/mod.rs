//! Several gateways over one store, one seed, virtual time: pauses, lost answers, lagging reads, skewed clocks, restarts.
//!
//! `random` runs schedules drawn from seeds and checks the promises; `LARDER_TEST_CASES` sets their number. `rules` has one
//! schedule per rule of the design, which fails under the rule's mutation in `tests/mutants`. `s3` does both for the S3 side,
//! `kv_blobs` for large bodies of the key-value side.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]

mod batch_fates;
mod consistent;
mod datatypes;
mod index;
mod kv_blobs;
mod linear;
mod members;
mod quorums;
mod random;
mod recording_store;
mod replicas;
mod rules;
mod s3;
mod slots;
mod types;
mod world;
