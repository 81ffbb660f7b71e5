//! Test harnesses that several crates share. No product code uses this crate.
//!
//! ```text
//! conformance       every promise of an engine, one check each
//! replicas          a simulated Cassandra cluster in memory
//! faulty            a wrapper of a store that injects faults
//! at_once           a store in memory whose reads at once are counted, or left out
//! hooked            a wrapper of a store that runs code of a test around its calls
//! linear            checks that a history of one register is linearizable
//! hostile_scripts   JavaScript that attacks its server
//! http              a client of HTTP/1.1 that may send any bytes
//! pb                a client of Riak's protocol buffers that may send any bytes
//! s3                a client of S3 over it that signs
//! policy_evaluator  the decision of a bucket policy by AWS's published rules
//! s3_model          random requests for S3, compared with a model of it
//! BackgroundServer  a server of the test's own process
//! VolatileStore     a store in memory that knows which bytes a power cut would take
//! SplitMix64        numbers from a seed
//! case_seeds, Scale  the length of a test: a test run or a soak
//! VirtualClock      the time of a paused runtime
//! ```

pub mod at_once;
pub mod conformance;
pub mod faulty;
pub mod hooked;
pub mod hostile_scripts;
pub mod http;
pub mod pb;
pub mod policy_evaluator;
pub mod replicas;
pub mod s3;
pub mod s3_model;

mod background_server;
mod linear;
mod random;
mod test_length;
mod virtual_clock;
mod volatile_store;

pub use background_server::{BackgroundServer, StopRequest};
pub use linear::{RegisterAction, RegisterOperation, RegisterValue, is_linearizable};
pub use random::{SplitMix64, unique_bytes};
pub use test_length::{Scale, case_seeds, figure};
pub use virtual_clock::VirtualClock;
pub use volatile_store::{VolatileState, VolatileStore};
