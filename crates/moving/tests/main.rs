//! Moves from a stand-in for a cluster of Riak, in virtual time and in this process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod back_schedules;
mod datatype_schedules;
mod move_world;
mod queue_schedules;
mod queues;
mod riak_cluster;
mod riak_model;
mod schedules;
mod stand_in;
mod users;
