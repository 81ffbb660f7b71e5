//! Moving house: brings the data of a Riak cluster, or of another Larder, into this one.
//!
//! [`rules`] has the forms that a source speaks, without IO: terms of Erlang, objects, elements of a replication queue, clocks
//! and the bodies of data types.

pub mod rules;
