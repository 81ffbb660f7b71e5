//! The S3 side of a gateway: its parts, put together.

use std::sync::Arc;
use std::time::Duration;

use larder_core::Core;
use larder_core::blobs::sweep::BlobReferences;
use larder_core::metrics::RequestOutcome;

use crate::buckets::Buckets;
use crate::catalogue::S3Catalogue;
use crate::commit::HeadStore;
use crate::encryption::ObjectKeys;
use crate::lifecycle::LifecycleWorker;
use crate::lock_clock::LockClock;
use crate::object_source::ReadThrough;
use crate::objects_config::ObjectsConfig;
use crate::quotas::Quotas;
use crate::receive::BodyReceiver;
use crate::release::Pins;
use crate::sweep::ObjectSweeper;
use crate::uploads::Uploads;
use crate::usage::Usage;
use crate::users::Users;

/// The S3 side of a gateway: one per process, next to its [`Core`].
pub struct Objects {
    /// The core under this S3 side.
    pub gateway: Arc<Core>,
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
    /// The time by which locks end.
    pub lock_clock: Arc<LockClock>,
    /// Garbage collection.
    pub sweeper: ObjectSweeper,
    /// Expiry by the rules of buckets.
    pub lifecycle: LifecycleWorker,
    /// The keys of encrypted objects.
    pub keys: Arc<ObjectKeys>,
    pub(crate) heads: Arc<HeadStore>,
    pub(crate) receiver: Arc<BodyReceiver>,
}

impl Objects {
    /// Creates the S3 side of a core. The rows of `others` name blobs, which the sweeper checks with its own.
    ///
    /// # Panics
    /// If the core was started without [`S3Catalogue::empty`]: every bucket would look gone, and the sweeper abort its uploads.
    #[must_use]
    pub fn new(gateway: Arc<Core>, others: Vec<Arc<dyn BlobReferences>>, config: ObjectsConfig) -> Arc<Self> {
        assert!(S3Catalogue::is_in(&gateway.catalogue().current()), "the core was started without the rows of S3");
        let (users, usage, config) = (Arc::new(Users::new(&gateway)), Usage::new(&gateway), Arc::new(config));
        let share = || Arc::clone(&gateway);
        let lock_clock = LockClock::new(&gateway);
        let heads = Arc::new(HeadStore {
            gateway: share(),
            pins: Pins::default(),
            lock_clock: Arc::clone(&lock_clock),
            region: config.region.clone(),
            read_through: ReadThrough::default(),
        });
        let quotas = Arc::new(Quotas::new(&heads));
        let receiver = Arc::new(BodyReceiver { gateway: share(), bytes_max: config.put_bytes_max });
        let buckets = Arc::new(Buckets { gateway: share(), users: Arc::clone(&users), config: Arc::clone(&config) });
        let keys = ObjectKeys::new(Arc::clone(&config.key_ring), gateway.context().ports.random);
        let keys = Arc::new(keys);
        let uploads = Arc::new(Uploads {
            gateway: share(),
            config: Arc::clone(&config),
            buckets: Arc::clone(&buckets),
            heads: Arc::clone(&heads),
            receiver: Arc::clone(&receiver),
            quotas: Arc::clone(&quotas),
            keys: Arc::clone(&keys),
        });
        let sweeper = ObjectSweeper {
            gateway: share(),
            buckets: Arc::clone(&buckets),
            heads: Arc::clone(&heads),
            uploads: Arc::clone(&uploads),
            others,
        };
        let lifecycle = LifecycleWorker { gateway: share(), heads: Arc::clone(&heads), uploads: Arc::clone(&uploads) };
        Arc::new(Self {
            gateway,
            config,
            users,
            usage,
            quotas,
            buckets,
            uploads,
            lock_clock,
            sweeper,
            lifecycle,
            keys,
            heads,
            receiver,
        })
    }
}

/// A request in the metrics: in flight until dropped, on any thread.
#[must_use = "the request is counted as long as this lives"]
pub struct TrackedRequest {
    gateway: Arc<Core>,
    operation: &'static str,
    begun: Duration,
    /// Body bytes received and sent.
    transferred: (u64, u64),
}

impl std::fmt::Debug for TrackedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrackedRequest({})", self.operation)
    }
}

impl Objects {
    /// Counts a request of this operation as begun.
    pub fn track(&self, operation: &'static str) -> TrackedRequest {
        let gateway = Arc::clone(&self.gateway);
        gateway.context().metrics.count_s3_begun(operation);
        TrackedRequest { operation, begun: gateway.context().monotonic(), transferred: (0, 0), gateway }
    }
}

impl TrackedRequest {
    /// Records the outcome and the latency when the answer begins. Call it once.
    pub fn record_answer(&self, outcome: RequestOutcome) {
        let took = self.gateway.context().monotonic().saturating_sub(self.begun);
        self.gateway.context().metrics.count_s3_answered(self.operation, took, outcome);
    }

    /// Adds body bytes received and sent, which count at the end.
    pub fn add_transferred_bytes(&mut self, received: u64, sent: u64) {
        self.transferred.0 += received;
        self.transferred.1 += sent;
    }
}

impl Drop for TrackedRequest {
    fn drop(&mut self) {
        let (received, sent) = self.transferred;
        self.gateway.context().metrics.count_s3_ended(self.operation, received, sent);
    }
}
