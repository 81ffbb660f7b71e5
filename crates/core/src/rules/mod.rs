//! Values and rules of the core. Pure: no IO, no async, no clock, no randomness.
//!
//! ```text
//! props     the table of bucket properties and its rules     security    users, grants and sources of Riak's protocols
//! riak_json what Riak takes as JSON                          erlang      terms of Erlang, as text
//! event_target    receivers of S3 events                     external_term  terms of Erlang, as bytes
//! catalogue_row   the keys and rows of the catalogue         refusals    of key-value, as errors carry them
//! repeated_member what a document says twice
//! ```

pub mod catalogue_row;
pub mod erlang;
pub mod event_target;
pub mod external_term;
pub mod props;
pub mod refusals;
pub mod repeated_member;
pub mod riak_json;
pub mod security;
