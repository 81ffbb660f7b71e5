//! Data types through several gateways: a schedule for each rule, and schedules drawn from seeds.

pub(crate) mod client;
mod conditions;
mod growth;
mod imports;
mod laws;
mod lost_answers;
mod pages;
mod random;
mod replicas;
mod rules;
