//! S3: buckets, objects, versions, uploads, users. Knows no protocol: the edge hands it decoded values.
//!
//! ```text
//! Objects    put  get  delete  copy  attributes (ACL, tags)     list  pages of keys and versions
//! Buckets    create, find, configure, ACL, delete               Users  accounts and keys     Usage  their requests
//! Uploads    create, list   parts  put, list   complete   abort, and uploads taken back
//! HeadStore  commit, uploads   the only way a key or an upload changes         release  removing unreferenced bytes
//! BodyReceiver  receive  reading request bodies                 ObjectSweeper  garbage collection
//! events  notices of changes, for the outbox of the core
//! Quotas  most objects and bytes of a bucket or user
//! LifecycleWorker  expiry by rule                               TrackedRequest  metrics of one request
//! ```
//! A key changes by one compare-and-set on its head ([`commit`]), under a *catalogue guard* ([`catalogue`]): while the guard
//! lives, the heartbeat of this gateway advertises no newer catalogue version than the guarded one. So an acknowledged
//! change of a bucket holds for every write that ends later.

pub mod abort;
pub mod access;
pub mod acl;
mod acl_choice;
pub mod attributes;
pub mod buckets;
mod catalogue;
mod commit;
pub mod complete;
mod conditions;
pub mod copy;
pub mod delete;
pub mod encryption;
mod error;
mod events;
pub mod get;
pub mod import;
pub mod lifecycle;
pub mod list;
mod listing_page;
pub mod lock_clock;
mod object_location;
pub mod object_lock;
pub mod object_source;
pub mod objects;
pub mod objects_config;
pub mod parts;
pub mod put;
pub mod quotas;
pub mod read_through;
mod receive;
mod release;
pub mod sweep;
pub mod uploads;
pub mod usage;
pub mod users;

pub use access::Caller;
pub use catalogue::S3Catalogue;
pub use error::{Configuration, Error, RequestArgument, Result};
pub use objects::{Objects, TrackedRequest};
pub use objects_config::ObjectsConfig;

use larder_s3_rules as rules;
