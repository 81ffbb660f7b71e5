//! The harness of the whole-product tests: real `larder` and `kv-admin` processes, and a client that may send any bytes.
//!
//! ```text
//! LarderNode    a server on its own directory and ports, started, killed and started again
//! KvAdmin       runs of kv-admin, with their output and exit code
//! TestEngine    the engine of the servers under test: their own directory, or keyspaces of a cluster
//! TestCluster   nodes of Cassandra for one test, killed and paused, and gateways over them
//! HttpClient    HTTP/1.1 over one connection, written by hand so that a test may send any bytes
//! Random        numbers from a seed that is printed
//! Scale         the length of a run: a test or a soak
//! Tmpfs         a small disk
//! ```
//!
//! Every wait has a deadline, and a child process does not outlive the value that started it.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness runs in real time, reads the environment, prints its measurements, and fails a test by panicking"
)]

mod admin;
mod engine;
mod http;
mod node;
mod process;
mod random;
mod s3;
mod scale;
mod test_cluster;
mod tmpfs;
mod wait;

pub use admin::KvAdmin;
pub use engine::{NamedKeyspaces, TestEngine};
pub use http::{HttpClient, HttpRequest, HttpResponse, connect};
pub use node::{Home, LarderNode, S3_KEY, S3_SECRET};
pub use process::{Process, ProcessEnd, raise_own_limit};
pub use random::Random;
pub use s3::{S3Client, complete_body, element};
pub use scale::{Scale, figure};
pub use test_cluster::TestCluster;
pub use tmpfs::Tmpfs;
pub use wait::{wait, wait_for};
