//! What whole-product tests stand on: a real `larder` process, a real `kv-admin`, a client that can also be rude.
//!
//! ```text
//! Node      a server on its own directory and ports, started, killed and started again
//! Admin     one run of kv-admin: what it printed where, and how it ended
//! Engine    where servers under test keep their data: their own directory, or keyspaces of a cluster
//! Machines  nodes of Cassandra of a test's own, killed and held, and gateways over them
//! Client    HTTP/1.1 over one connection, written out by hand so that a test may send anything
//! linear    whether what several clients saw of one register fits in one order
//! Random    numbers from a seed that is printed
//! Scale     how long: a test run, or a soak
//! Tmpfs     a disk that is soon full
//! ```
//!
//! Every wait has a deadline, and a child process does not outlive the value that started it.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness runs in real time, is told by the environment what to run, says what it measured, and fails a test by panicking"
)]

mod admin;
mod engine;
mod http;
mod linear;
mod machines;
mod node;
mod process;
mod random;
mod s3;
mod scale;
mod tmpfs;
mod wait;

pub use admin::Admin;
pub use engine::{Engine, OwnKeyspaces};
pub use http::{Client, Request, Response, connect};
pub use linear::{Act, Op, Value, is_linearizable};
pub use machines::Machines;
pub use node::{Home, Node, S3_KEY, S3_SECRET};
pub use process::{Ended, Process, raise_own_limit};
pub use random::Random;
pub use s3::{S3, complete_body, element};
pub use scale::{Scale, figure};
pub use tmpfs::Tmpfs;
pub use wait::{wait, wait_for};
