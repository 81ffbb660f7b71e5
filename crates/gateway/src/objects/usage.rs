//! What users did and what they store, for the usage reports of Riak CS.

use std::collections::BTreeMap;

use larder_model::rows::Micros;
use serde::{Deserialize, Serialize};

use super::{Objects, Result};

/// Counts not written yet.
#[derive(Debug, Default)]
pub struct UsageLog;

/// Counts of one operation in one hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were carried out.
    pub count: u64,
    /// Requests refused for what the client did.
    pub user_errors: u64,
    /// Requests that failed.
    pub system_errors: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes sent of answers that broke off.
    pub bytes_out_incomplete: u64,
}

/// An hour of a user on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Where it was counted.
    pub node: String,
    /// When the hour began.
    pub start: Micros,
    /// Counts by operation.
    pub operations: BTreeMap<String, Counts>,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Objects {
    /// Counts one request of a user.
    pub fn count_usage(&self, key_id: &str, operation: &'static str, counts: Counts) {
        unimplemented!()
    }

    /// Writes what was counted since the last time.
    ///
    /// # Errors
    /// What the store answers; nothing is forgotten then.
    pub async fn flush_usage(&self) -> Result<()> {
        unimplemented!()
    }

    /// The hours of a user from `from` to `to`.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn usage(&self, key_id: &str, from: Micros, to: Micros) -> Result<Vec<Sample>> {
        unimplemented!()
    }

    /// What each bucket of a user holds now: counted over its entries.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn storage_of(&self, user_id: &str) -> Result<BTreeMap<String, Storage>> {
        unimplemented!()
    }
}
