//! The S3 side: gateways over one store that keeps shadows by protocol, none seeing the leases of another.
//!
//! `rules` has a schedule for each row of the list of holes: one gateway is stopped at a step, the other goes on; it holds with
//! the rule and fails without it. `plain` has what has no switch, `random` walks schedules drawn from seeds, and `found` keeps
//! those in which it found a fault.

mod acts;
mod client;
pub(crate) mod cloud;
mod found;
pub(crate) mod gate;
mod history;
mod plain;
mod random;
mod rules;
