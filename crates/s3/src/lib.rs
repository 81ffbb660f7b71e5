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
mod assemble;
pub mod attributes;
pub mod buckets;
mod catalogue;
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
pub mod quotas;
mod receive;
mod release;
mod reopen;
pub mod rules;
pub mod sweep;
mod tracked_request;
mod upload_head;
pub mod uploads;
pub mod usage;
pub mod users;

use std::sync::Arc;

pub use access::Caller;
pub use catalogue::S3Catalogue;
pub use error::{Configuration, Error, RequestArgument, Result};
pub use objects_config::ObjectsConfig;
pub use tracked_request::TrackedRequest;

use buckets::Buckets;
use commit::HeadStore;
use larder_gateway::Gateway;
use lifecycle::LifecycleWorker;
use quotas::Quotas;
use receive::BodyReceiver;
use release::Pins;
use sweep::ObjectSweeper;
use uploads::Uploads;
use usage::Usage;
use users::Users;

/// The S3 side of a gateway: one per process, next to its [`Gateway`].
pub struct Objects {
    /// The gateway under this S3 side.
    pub gateway: Arc<Gateway>,
    /// The settings given at the start.
    pub config: Arc<ObjectsConfig>,
    /// The users.
    pub users: Arc<Users>,
    /// The usage of the users.
    pub usage: Usage,
    /// The quotas of buckets and users.
    pub quotas: Arc<Quotas>,
    /// The buckets.
    pub buckets: Arc<Buckets>,
    /// The multipart uploads.
    pub uploads: Arc<Uploads>,
    /// Garbage collection.
    pub sweeper: ObjectSweeper,
    /// Expiry by the rules of buckets.
    pub lifecycle: LifecycleWorker,
    heads: Arc<HeadStore>,
    receiver: Arc<BodyReceiver>,
}

impl Objects {
    /// Creates the S3 side of `gateway`.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, config: ObjectsConfig) -> Arc<Self> {
        let (users, usage, config) = (Arc::new(Users::new(&gateway)), Usage::new(&gateway), Arc::new(config));
        let share = || Arc::clone(&gateway);
        let heads = Arc::new(HeadStore { gateway: share(), pins: Pins::default() });
        let quotas = Arc::new(Quotas::new(&heads));
        let receiver = Arc::new(BodyReceiver { gateway: share(), bytes_max: config.put_bytes_max });
        let buckets = Arc::new(Buckets { gateway: share(), users: Arc::clone(&users), config: Arc::clone(&config) });
        let uploads = Arc::new(Uploads {
            gateway: share(),
            config: Arc::clone(&config),
            buckets: Arc::clone(&buckets),
            heads: Arc::clone(&heads),
            receiver: Arc::clone(&receiver),
            quotas: Arc::clone(&quotas),
        });
        let sweeper = ObjectSweeper {
            gateway: share(),
            buckets: Arc::clone(&buckets),
            heads: Arc::clone(&heads),
            uploads: Arc::clone(&uploads),
        };
        let lifecycle = LifecycleWorker { gateway: share(), heads: Arc::clone(&heads), uploads: Arc::clone(&uploads) };
        Arc::new(Self { gateway, config, users, usage, quotas, buckets, uploads, sweeper, lifecycle, heads, receiver })
    }
}
