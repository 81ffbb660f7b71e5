//! The Riak face of Larder: what its clients say, translated to one [`Gateway`](larder_gateway::Gateway) and back.
//!
//! Only this crate knows Riak's wire. It decodes a request into a gateway call, and an outcome or an error into an answer;
//! it decides nothing about objects and does no IO but its sockets.
//!
//! ```text
//! http     one file per resource, a table of routes, hyper below
//! errors   every error of the gateway beside its answer
//! ```

pub mod errors;
pub mod http;
