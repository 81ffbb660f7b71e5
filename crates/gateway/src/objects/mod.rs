//! S3: buckets, objects, versions, uploads, users. Knows no protocol: the edge hands it decoded values.
//!
//! ```text
//! buckets  create, configure, delete            users     who signs; usage: what they did
//! put  get  delete  copy  attributes (ACL, tags) of objects      list  pages of keys, versions
//! uploads  initiate, list   parts  put, copy, list   complete   abort
//! commit   the one way a key changes            receive   bodies on their way in
//! release  bytes nobody names any more          sweep     what failures left   lifecycle  what is old
//! tracked  requests as the metrics see them
//! ```
//! A key changes by one compare-and-set on its head ([`commit`]), inside a *section*: while a section is open, this gateway's
//! heartbeat shows no catalogue newer than the one the section was opened with, so a change of a bucket that was answered
//! holds for every write that ends later.

pub mod access;
mod commit;
mod error;
pub mod objects_config;
mod section;

pub(crate) use section::Sections;

pub mod abort;
pub mod acl;
mod assemble;
pub mod attributes;
pub mod buckets;
pub mod complete;
pub mod copy;
pub mod delete;
pub mod get;
pub mod lifecycle;
pub mod list;
mod part_rows;
pub mod parts;
pub mod put;
mod receive;
mod release;
mod reopen;
pub mod sweep;
mod tracked;
mod upload_head;
pub mod uploads;
pub mod usage;
pub mod users;

use std::sync::Arc;

pub use access::Caller;
pub use error::{Configuration, Error, Result};
pub use objects_config::ObjectsConfig;
pub use tracked::Tracked;

use crate::Gateway;

/// The S3 side of a gateway. One per process, beside the [`Gateway`] it is made from.
pub struct Objects {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) config: ObjectsConfig,
    pub(crate) users: users::UserCache,
    pub(crate) pins: release::Pins,
    pub(crate) usage: usage::UsageLog,
}

impl Objects {
    /// The S3 side of `gateway`.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, config: ObjectsConfig) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            config,
            users: users::UserCache::default(),
            pins: release::Pins::default(),
            usage: usage::UsageLog::default(),
        })
    }

    /// The gateway it is the S3 side of.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &ObjectsConfig {
        &self.config
    }
}
