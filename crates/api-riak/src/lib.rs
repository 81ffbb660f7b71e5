//! The Riak protocol of Larder: requests of Riak's clients become calls of one [`Gateway`](larder_kv::Gateway).
//!
//! Only this crate knows Riak's protocol. It decodes a request into a call of the gateway, and encodes the result as an
//! answer. It decides nothing about objects and does no IO except on its sockets.
//!
//! ```text
//! http     one file per resource, a table of routes, hyper below
//! pb       protocol buffers: frames, messages, one file per kind of request
//! listing  pages of keys and buckets, for both
//! index    pages of index queries, for both
//! mapred   results of MapReduce jobs as JSON, for both
//! security rights that MapReduce jobs need, for both
//! failure  log lines about failed requests, for both
//! ```

mod failure;
pub mod http;
mod index;
mod listing;
mod mapred;
pub mod pb;
mod security;
