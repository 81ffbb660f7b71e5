//! Riak's HTTP API.
//!
//! ```text
//! server: a connection, its route, common checks ──> one file per resource ──> gateway
//!         path headers: decoders, pure                reply errors body: encoders
//! ```
//! Decoders accept arbitrary bytes. The path is split before it is decoded, and checks run in Riak's order (HTTP reference
//! §0.1). No request ends the server: a panic becomes a 500 and a log line.

mod accept;
mod access;
mod body;
mod call;
mod datatypes;
mod delete;
mod errors;
mod headers;
mod index;
mod link_walk;
mod links;
mod listing;
mod mapred;
mod multipart;
mod object;
mod params;
mod path;
mod props;
mod put;
mod replication;
mod reply;
mod request_notes;
mod root;
pub mod routes;
mod server;
mod write_headers;

pub use body::RiakBody;
pub use reply::RiakResponse;
pub use server::{HttpService, HttpSettings, serve, service};
