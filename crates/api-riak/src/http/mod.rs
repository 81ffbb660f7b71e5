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
mod browsers;
mod buckets;
mod call;
mod datatypes;
mod delete;
mod errors;
mod headers;
mod health;
mod index;
mod keys;
mod link_walk;
mod links;
mod listing;
mod mapred;
mod multipart;
mod not_built;
mod object;
mod params;
mod path;
mod ping;
mod props;
mod put;
mod range;
mod reply;
mod request_notes;
mod root;
pub mod routes;
mod server;
mod stats;
mod type_props;

pub use body::RiakBody;
pub use reply::RiakResponse;
pub use server::{HttpService, HttpSettings, serve, service};
