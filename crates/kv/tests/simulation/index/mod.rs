//! Secondary indexes: random schedules against a full scan, and one schedule per rule.

mod epochs;
mod random;
mod replicas;
mod rules;
pub(crate) mod walk;
