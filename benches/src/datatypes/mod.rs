//! `datatypes`: sets, counters, maps and HyperLogLogs over HTTP, each beside the same operation on a smaller value, or beside
//! plain puts, in one run.
//!
//! ```text
//! run        the order of a run, and its servers      plan       the amounts of a run
//! operation  the table of operations                  notes      the notes of the report
//! sets       add, membership, removal by size         counters   increments of one counter beside plain puts
//! maps       updates of fields by size                hlls       adds, and the error of estimates
//! whole      one large set: disk, memory, fetch           settled    an engine at rest
//! ```

mod counters;
mod hlls;
mod maps;
mod notes;
mod operation;
mod plan;
mod run;
mod sets;
mod settled;
mod whole;

pub(crate) use run::{DatatypesBenchArgs, run};
