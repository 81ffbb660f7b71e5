//! MapReduce: runs the jobs that [`crate::rules`] describes, and walks along links, which Riak does by such jobs.
//!
//! ```text
//! inputs ──page──▶ phase 0 ──chunk──▶ phase 1 ──chunk──▶ …      each step takes one page or one chunk,
//!                    │ kept              │ kept                 the deepest first
//!                    └───────▶ answer ◀──┘
//! ```
//! A job runs in steps, which its reader asks for: a client that does not read stops its job, and a job whose client is gone is
//! dropped. Between two steps the values of all phases are in memory, and their bytes are bounded. A reduce phase keeps its
//! values until its inputs end.

mod error;
mod input_source;
mod job_run;
mod link_walk;
mod map_phase;
mod object_reader;
pub mod rules;
mod running_phase;
mod script_phase;

pub use error::JobError;
pub use job_run::{JobRun, KeptValues};
pub use link_walk::{LinkWalk, LinkWalkError, LinkWalker};
