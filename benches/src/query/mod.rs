//! `query`: the features beside the data over HTTP: secondary indexes, commit hooks and MapReduce.
//!
//! ```text
//! run        the order of a run, and its servers      plan       the amounts of a run
//! operation  the table of operations                  objects    the objects that are loaded
//! index      ranges by size                           puts       puts with terms beside puts without
//! hooks      puts with a precommit hook               jobs       MapReduce, native and JavaScript
//! hostile    other requests while hostile scripts run
//! bench.js   the module of the server                 notes      the notes of the report
//! ```

mod hooks;
mod hostile;
mod index;
mod jobs;
mod notes;
mod objects;
mod operation;
mod plan;
mod puts;
mod run;

pub(crate) use run::{QueryBenchArgs, run};
