//! Measures any S3 server that is reached over plain HTTP and accepts signature version 2.
//!
//! ```text
//! run      the order of a run, and its servers
//!   plan         the amounts of a run
//!   report_style the notes of the report
//! sections the measurements of each server
//!   cells     operation x size x connections
//! limits   small GETs beside Riak's HTTP, large ones beside sendfile
//! bucket   filled and emptied over many connections
//!   driver    the requests of S3 on one connection
//!     sign    signature version 2
//!     xml     elements of an answer
//! ```
//!
//! Version 2 signs no body, so a request costs generator and server one HMAC-SHA1.

mod bucket;
mod cells;
mod driver;
mod limits;
mod plan;
mod report_style;
mod run;
mod sections;
mod sign;
mod xml;

pub(crate) use driver::{BucketLocation, S3Driver};
pub(crate) use limits::{LARGE_BYTES, LARGE_CONNECTIONS, large_gets, load_large, load_small, small_gets, subject};
pub(crate) use run::{S3BenchArgs, own_account, run};
