//! S3: buckets, objects, versions, uploads, users. Knows no protocol: the edge hands it decoded values.
//!
//! ```text
//! Objects    put  get  delete  copy  attributes (ACL, tags)     list  pages of keys and versions
//! Buckets    create, find, configure, ACL, delete               Users  accounts and keys     Usage  their requests
//! Uploads    create, list   parts  put, list   complete   abort   reopen
//! HeadStore  commit, upload_head   the only way a key or an upload changes     release  removing unreferenced bytes
//! BodyReceiver  receive  reading request bodies                 ObjectSweeper  garbage collection
//! Quotas  most objects and bytes of a bucket or user
//! LifecycleWorker  expiry by rule                               TrackedRequest  metrics of one request
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
mod acl_choice;
mod assemble;
pub mod attributes;
pub mod buckets;
mod catalogue;
mod catalogue_guard;
pub mod complete;
mod conditions;
pub mod copy;
pub mod delete;
pub mod get;
pub mod lifecycle;
pub mod list;
mod listing_page;
mod object_location;
mod objects;
mod part_rows;
pub mod parts;
pub mod put;
pub mod quotas;
mod receive;
mod release;
mod reopen;
pub mod rules;
pub mod sweep;
mod tracked_request;
mod upload_body;
mod upload_head;
pub mod uploads;
pub mod usage;
pub mod users;
mod version_spec;

pub use access::Caller;
pub use catalogue::S3Catalogue;
pub use error::{Configuration, Error, RequestArgument, Result};
pub use objects::Objects;
pub use objects_config::ObjectsConfig;
pub use tracked_request::TrackedRequest;
