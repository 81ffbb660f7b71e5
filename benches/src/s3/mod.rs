//! Measuring an S3 server: any that is reached over plain HTTP and knows signature version 2.
//!
//! ```text
//! run      the order of a run, and its servers
//!   plan      how much of everything
//!   face      what the report says besides the numbers
//! sections what is measured of each server
//!   cells     operation x size x connections
//!   paging    List Parts: its cost is the page, not the upload
//!   listing   a bucket with very many keys, listed whole
//!   uploads   memory while many large bodies arrive at once
//! bucket   filling and emptying
//!   driver    S3's calls on one connection
//!     sign    signature version 2
//!     xml     the little that is read of an answer
//! ```
//!
//! Version 2 signs no body, so the generator's own work stays small; what the server does for it is one HMAC-SHA1.

mod bucket;
mod cells;
mod driver;
mod face;
#[cfg(test)]
mod fake;
mod listing;
mod paging;
mod plan;
mod run;
mod sections;
mod sign;
mod uploads;
mod xml;

pub(crate) use run::{Options, run};
