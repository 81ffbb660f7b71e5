//! S3: buckets, objects, versions, uploads, users. Knows no protocol: the edge hands it decoded values.
//!
//! ```text
//! buckets  create, configure, delete            users     accounts and keys; usage: their requests
//! put  get  delete  copy  attributes (ACL, tags) of objects      list  pages of keys and versions
//! uploads  initiate, list   parts  put, copy, list   complete   abort
//! commit   the only way a key changes           receive   reading request bodies
//! release  removing unreferenced bytes          sweep     garbage collection   lifecycle  expiry by rule
//! tracked_request  metrics of one request
//! ```
//! A key changes by one compare-and-set on its head ([`commit`]), under a *catalogue guard* ([`catalogue_guard`]): while the guard
//! lives, the heartbeat of this gateway advertises no newer catalogue version than the guarded one. So an acknowledged
//! change of a bucket holds for every write that ends later.

pub mod access;
mod commit;
mod error;
pub mod objects_config;

pub mod abort;
pub mod acl;
mod assemble;
pub mod attributes;
pub mod buckets;
mod catalogue_guard;
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
mod tracked_request;
mod upload_head;
pub mod uploads;
pub mod usage;
pub mod users;

use std::sync::Arc;

pub use access::Caller;
pub use error::{Configuration, Error, RequestArgument, Result};
pub use objects_config::ObjectsConfig;
pub use tracked_request::TrackedRequest;

use crate::Gateway;
use usage::Usage;
use users::Users;

/// The S3 side of a gateway: one per process, next to its [`Gateway`].
pub struct Objects {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) config: ObjectsConfig,
    /// The users.
    pub users: Users,
    /// The usage of the users.
    pub usage: Usage,
    pub(crate) pins: release::Pins,
}

impl Objects {
    /// Creates the S3 side of `gateway`.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, config: ObjectsConfig) -> Arc<Self> {
        let (users, usage) = (Users::new(&gateway), Usage::new(&gateway));
        Arc::new(Self { gateway, config, users, usage, pins: release::Pins::default() })
    }

    /// The gateway under this S3 side.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// The settings given at the start.
    #[must_use]
    pub fn config(&self) -> &ObjectsConfig {
        &self.config
    }
}
