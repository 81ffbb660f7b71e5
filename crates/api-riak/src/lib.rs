//! The Riak protocol of Larder: requests of Riak's clients become calls of one [`Gateway`](larder_gateway::Gateway).
//!
//! Only this crate knows Riak's protocol. It decodes a request into a call of the gateway, and encodes the result as an
//! answer. It decides nothing about objects and does no IO except on its sockets.
//!
//! `http` has one file per resource, a table of routes, and the answer to every error of the gateway. A second protocol would
//! stand beside it.

pub mod http;
