//! Rows in partitions: the one interface between what Larder does and where it keeps things.
//!
//! ```text
//! read(partition, range)                  one page of live rows, isolated
//! apply(batch)                            plain tables: newer stamp wins, a partition changes whole
//! apply_if(partition, stamp, head, …)     guarded tables: linearizable compare-and-set on the head row
//! partitions(table)                       everything, slowly: scrubbers and export
//! ```
//! Engines promise the same, byte for byte: [`conformance`] runs every promise against any of them. There is no downcast and
//! no "supports X": what one engine does, all do. [`memory`] is the engine of the simulation and of `--engine memory`;
//! [`wrappers`] count calls and inject faults behind the same trait; [`shadows`] is for engines that cannot write a head and
//! its shadow in one commit. [`RateLimitedLog`] stands here because everything above can reach it.

mod blobs;
mod clock;
mod contract;
mod error;
mod log_limit;
mod traits;

pub mod conformance;
pub mod halving;
pub mod leases;
pub mod memory;
pub mod replicas;
pub mod shadows;
pub mod wrappers;
pub mod writers;

pub use blobs::{BlobOwner, BlobReader, BlobWriter, Blobs, ListedBlob};
pub use clock::{Clock, SystemClock, micros_of};
pub use error::{Error, Kind, Result};
pub use larder_model::keyspace::{Layout, Partition, Table};
pub use larder_model::rows::{Batch, Change, Micros, PartitionChanges, Row, Stamp};
pub use log_limit::{AdmittedLine, RateLimitedLog};
pub use traits::{
    Durability, EngineLimits, Head, Level, Options, Order, Page, PartitionPage, Purpose, Range, ReadQuery, Shadow,
    Stopped, Store, Swap,
};
