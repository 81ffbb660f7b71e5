//! The domain model: addresses, bucket properties, causality, and the rows that store them.
//!
//! Everything here is pure: no IO, no async, no clock, no randomness. Callers pass bytes and times in and get values back, so a
//! property test can try every order of events. The layers above decide *when* something happens; this crate decides *what*.
//!
//! ```text
//! address   type / bucket / key           props      the table of bucket properties and its rules
//! causality dots, contexts, siblings      content    one key-value value with its metadata
//! keyspace  every table and partition     rows       one versioned codec per table
//! ids       of buckets, versions, uploads  limits    bounds of the product
//! datatypes counters, sets, maps, HyperLogLogs             index      rows and queries of secondary indexes
//! links     which links a step follows     mapreduce the job document, key filters, built-in functions
//! riak_json what Riak takes as JSON
//! security  users, grants and sources of Riak's protocols
//! ```

pub mod address;
pub mod causality;
pub mod codec;
pub mod content;
pub mod datatypes;
pub mod erlang;
pub mod erlang_term;
pub mod external_term;
pub mod hash;
pub mod ids;
pub mod index;
pub mod ip_network;
pub mod keyspace;
pub mod limits;
pub mod links;
pub mod mapreduce;
pub mod object_json;
pub mod props;
pub mod riak_json;
pub mod rows;
pub mod security;
pub mod terms;
pub mod text;
mod timestamp;

pub use timestamp::{ActorId, Timestamp};
