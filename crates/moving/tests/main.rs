//! Moves from a stand-in for a cluster of Riak, in virtual time and in this process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod move_world;
mod queue_schedules;
mod queues;
mod riak_cluster;
mod schedules;
mod stand_in;
