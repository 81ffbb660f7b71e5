//! `pb`: every row of the table of limits, each side by side with a program that does less, or with Redis, in one run.
//!
//! ```text
//! run        the order of a run, and its servers          plan      the amounts of a run
//! gets       PB beside bare frames and Redis, HTTP beside bare hyper
//! puts       durable: PB beside bare frames with a group commit and Redis, HTTP beside hyper with one; in process
//! endurance  one server: a large load, its disk and memory, then latency while tables are compacted
//! churn      one server: disk and bytes written while keys are overwritten
//! notes      the notes of the report
//! ```
//! S3's rows are in `s3::limits`.

mod churn;
mod endurance;
mod gets;
mod notes;
mod plan;
mod puts;
mod run;

pub(crate) use run::{PbBenchArgs, run};
