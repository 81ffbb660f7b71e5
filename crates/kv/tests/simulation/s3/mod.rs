//! Simulation of the S3 side: gateways over one store that keeps derived rows by protocol, each with its own leases.
//!
//! `rules` has a schedule for each rule of `tests/mutants`: one gateway pauses at a step while another goes on. `orderings`
//! has the invariants without a mutation, `random` runs seeded schedules, and `regressions` keeps those that found a fault.

mod acts;
mod client;
pub(crate) mod cluster;
pub(crate) mod gate;
mod history;
mod orderings;
mod random;
mod regressions;
mod rules;
