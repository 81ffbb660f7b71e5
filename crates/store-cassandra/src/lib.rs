//! Larder on Apache Cassandra and ScyllaDB: the promises of the store, kept by a cluster.
//!
//! ```text
//! CassandraStore ── DerivedRowStore ── rows:  read   apply   apply_if          partitions
//!                                              │       │        │                  │
//!                                            read    write    compare_and_set    partitions      one file each, over
//!                                              └───────┴───┬────┴──────────────────┘
//!                                                       client       prepared statements, levels, deadlines
//!                                                     hedge          a request sent again while its answer is awaited
//!                                                     silent_nodes   a call that needs more replicas than answer is refused
//!                                                     statements     the text of every statement
//! ```
//! **Where rows are.** A keyspace for each number of copies, `{prefix}_n{n_val}`. It holds a table for each [`Table`]
//! that can have that number of copies, `(p, r) -> v`: partition key, row name, value with its expiry. The stamp of a
//! row is the timestamp of its cell, so Cassandra itself keeps the promises about stamps: the newer wins, a removal
//! wins a tie, then the greater value. Guarded tables keep the stamp in a column of its own, since transactions choose
//! their own timestamps.
//!
//! **Cost of a call** without failures, in round trips between gateway and cluster:
//!
//! ```text
//! read                    1     and 1 more where expired rows took places of the page
//! apply, 1 partition      1     several partitions: one request each, concurrently
//! apply with removals     1     a logged batch, which the cluster writes twice; 2 while a node does not answer
//! apply_if                1     about 4 between the nodes; 1 more for a head that is not cached
//! a conflict              2     the head is read
//! ```
//! **How it stays correct.** The cluster's clock decides on every read whether a row has expired; a TTL only cleans up
//! later. A retry repeats a statement with the same stamps, so it is the same write. A compare-and-set whose answer was
//! lost looks for its id in the head; until that succeeds, its partition is read at SERIAL.
//!
//! [`Table`]: larder_store::Table

pub mod blobs;
mod client;
mod clock;
mod compare_and_set;
mod connect;
mod encoding;
mod errors;
mod hedge;
mod in_doubt;
mod levels;
mod metrics;
mod options;
mod partitions;
mod read;
mod rows_max;
mod schema;
mod session;
mod silent_nodes;
pub mod statements;
mod store;
mod upkeep;
mod write;

pub use clock::ClusterClock;
pub use connect::{ConnectError, DESCRIPTORS_MAX};
pub use metrics::CassandraMetrics;
pub use options::{ConnectOptions, Credentials, Replication, TlsOptions};
pub use session::ClusterSession;
pub use store::CassandraStore;
