//! The S3 side: gateways over one store that keeps shadows by protocol, none seeing the leases of another.
//!
//! `rules` has one schedule per row of the list of holes: two gateways, one of them stopped at a step. `random` walks
//! schedules drawn from seeds.

mod client;
mod cloud;
mod gate;
mod history;
mod random;
mod rules;
