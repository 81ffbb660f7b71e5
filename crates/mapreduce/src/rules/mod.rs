//! MapReduce: the document of a job, key filters, the values between phases, and Riak's built-in functions.
//!
//! ```text
//! document ──parse──▶ Job ─┬─ inputs   a bucket, keys, filtered keys, an index query
//!                          └─ phases   map: objects → values    link: objects → keys    reduce: values → values
//! ```
//! Built-in functions are native, whether a job calls them by their Erlang or their JavaScript names. The gateway runs jobs.

pub mod builtins;
pub mod inputs;
mod job;
mod js_values;
pub mod key_filter;
mod map_function;
pub mod phase;
mod reduce_function;
pub mod refusal;
mod term_job;
mod term_order;
mod term_results;
pub mod value;

pub use job::Job;
pub use map_function::{MapFunction, MapObject};
pub use reduce_function::{ReduceFunction, Reducer};
pub use term_results::term_of_results;
pub use value::{JobInput, JobValue, PhaseFailure};
