//! Larder on Apache Cassandra and ScyllaDB: the same promises as on one machine, kept by a cluster.
//!
//! ```text
//! CassandraStore ── Shadowed ── rows:  read   apply   apply_if   partitions
//!                                       │       │        │           │
//!                                     read    write    swap     partitions      one file each, over
//!                                       └───────┴───┬────┴───────────┘
//!                                                cluster      prepared statements, levels, deadlines
//!                                              hedge          a request sent again while its answer is awaited
//!                                              statements     every text that is sent
//! ```
//! **Where things are.** A keyspace for each number of copies, `{prefix}_n{n_val}`; in each a table for every [`Table`] that can
//! be there, `(p, r) -> v`: partition key, row name, value with its expiry. The stamp of a row is the timestamp of its cell, so
//! what the trait promises of stamps is what Cassandra does anyway: the newer wins, a removal wins a tie, then the greater
//! value. Guarded tables keep the stamp in a column of its own, since transactions choose their timestamps themselves.
//!
//! **What a verb costs** when nothing goes wrong, in round trips between gateway and cluster:
//!
//! ```text
//! read                    1     and 1 more where rows that have expired took the place of others
//! apply, 1 partition      1     as many partitions as it has, at once
//! apply with removals     1     a logged batch, which the cluster writes twice
//! apply_if                1     which is some 4 between the nodes; 1 more for a head that was not seen lately
//! a conflict              2     the head is read
//! ```
//! **Who decides what.** Expiry is judged by the store's clock, which is the cluster's time, on every read; a TTL only cleans up
//! behind it. Retries repeat a statement with the same stamps, so they are the same write. A swap whose answer was lost looks
//! itself up in the head it may have written; until that succeeds, its partition is read at SERIAL.
//!
//! [`Table`]: larder_store::Table

pub mod blobs;
mod clock;
mod cluster;
mod connect;
mod encoding;
mod errors;
mod figures;
mod hedge;
mod levels;
mod options;
mod partitions;
mod prepare;
mod read;
mod retry;
mod rows_max;
mod schema;
mod settings;
pub mod statements;
mod store;
mod swap;
mod tls;
mod undecided;
mod write;
mod writers;

pub use clock::ClusterClock;
pub use connect::{ConnectError, DESCRIPTORS_MAX};
pub use figures::Figures;
pub use options::{ConnectOptions, Credentials, Replication, TlsOptions};
pub use store::CassandraStore;
