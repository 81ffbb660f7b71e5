//! Tests of the store over a node of Cassandra, and of its statements.

mod blobs;
mod cassandra_conformance;
mod cql;
