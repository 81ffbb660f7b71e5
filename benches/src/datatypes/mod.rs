//! `datatypes`: sets, counters, maps and HyperLogLogs over HTTP, each beside the same operation on a smaller value, or beside
//! plain puts, in one run.
//!
//! ```text
//! run        the order of a run, and its servers      plan       the amounts of a run
//! types      the bucket types, over the admin socket  operation  the table of operations
//! requests   one connection and its requests          work       numbered requests, measured in turns
//! sets       add, membership, removal by size         counters   increments of one counter beside plain puts
//! maps       updates of fields by size                hlls       adds, and the error of estimates
//! whole      one large set: disk, memory, fetch       notes      the notes of the report
//! ```

mod counters;
mod hlls;
mod maps;
mod notes;
mod operation;
mod plan;
mod requests;
mod run;
mod sets;
mod types;
mod whole;
mod work;

pub(crate) use run::{DatatypesBenchArgs, run};
