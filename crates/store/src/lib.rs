//! Rows in partitions: the one interface between the gateway and the storage engines.
//!
//! ```text
//! read(partition, range)                  one page of live rows, isolated
//! apply(batch)                            plain tables: the newer stamp wins, a partition changes whole
//! apply_if(partition, stamp, head, …)     guarded tables: linearizable compare-and-set on the head row
//! partitions(table)                       every partition, slowly: for scrubbers and export
//! ```
//! All engines make the same promises; the conformance suite of `larder-testkit` checks each promise against any engine.
//! There is no downcast: every engine does the same things, and [`Store::limits`] says what differs in cost and size.
//! [`memory`] is the engine of the simulation and of `--engine memory`. [`metered`] counts calls behind the same trait. [`derived_rows`] serves engines
//! that cannot write a head and its derived row in one commit. [`RateLimitedLog`] is here because every crate above can
//! reach it.

mod blobs;
mod clock;
mod error;
mod log_limit;
mod traits;

pub mod cas_history;
pub mod contract;
pub mod derived_rows;
pub mod leases;
pub mod memory;
pub mod metered;
pub mod range_bisect;
pub mod upkeep;

pub use blobs::{BlobOwner, BlobReader, BlobReference, BlobWriter, Blobs, ListedBlob, RowBlobs, body_slice};
pub use clock::{Clock, SystemClock, as_micros};
pub use error::{Error, Kind, Result};
pub use larder_rows::Timestamp;
pub use larder_rows::keyspace::{Layout, Partition, Table};
pub use larder_rows::{Batch, Change, PartitionChanges, Row};
pub use log_limit::{AdmittedLine, RateLimitedLog};
pub use traits::{
    CallOptions, CasResult, ConsistencyLevel, DerivedRow, Durability, EngineLimits, HeadWrite, PartitionPage, Purpose,
    Range, ReadOrder, ReadQuery, RowPage, Stopped, Store,
};
