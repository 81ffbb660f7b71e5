//! The domain model of key-value: bucket properties, causality, data types, indexes, security.
//!
//! Everything here is pure: no IO, no async, no clock, no randomness. Callers pass bytes and times in and get values back, so a
//! property test can try every order of events. The layers above decide *when* something happens; this crate decides *what*.
//!
//! ```text
//! props     the table of bucket properties and its rules     causality   dots, contexts, siblings
//! datatypes counters, sets, maps, HyperLogLogs               index       rows and queries of secondary indexes
//! links     which links a step follows                       mapreduce   the job document, key filters, built-in functions
//! security  users, grants and sources of Riak's protocols    riak_json   what Riak takes as JSON
//! object_row, catalogue_row   the forms of rows that have a rule
//! ```

pub mod catalogue_row;
pub mod causality;
pub mod datatypes;
pub mod erlang;
pub mod erlang_term;
pub mod external_term;
pub mod index;
pub mod ip_network;
pub mod links;
pub mod mapreduce;
pub mod object_json;
pub mod object_row;
pub mod props;
pub mod riak_json;
pub mod security;
pub mod terms;
