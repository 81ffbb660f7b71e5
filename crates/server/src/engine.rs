//! The engine that stores the data: it is opened, swept and closed here.

use std::sync::Arc;
use std::time::Duration;

use larder_core::EngineStatus;
use larder_encryption::at_rest::DataKeys;
use larder_encryption::key_ring::KeyRing;
use larder_kv::Gateway;
use larder_kv::views::{CheckMode, IndexCheck};
use larder_rows::ActorId;
use larder_s3::Objects;
use larder_s3::lifecycle::LifecyclePass;
use larder_s3::sweep::SweepReport;
use larder_store::memory::MemoryStore;
use larder_store::{Blobs, Clock, Store};
use larder_store_cassandra::blobs::CassandraBlobs;
use larder_store_local::blobs::LocalBlobs;
use larder_store_local::{LocalStore, OpenError, OpenOptions, SweepStep};
use tokio::task::JoinSet;

use crate::admin::BackupSource;
use crate::at_rest::EngineStores;
use crate::cluster_engine::{OpenedCluster, open};
use crate::failure::ServerFailure;
use crate::memory::MemoryPlan;
use crate::node_watch::watch_nodes;
use crate::settings::{self, CassandraSettings, DurabilitySetting, EngineKind, ServerSettings, table};
use crate::store_metrics::{LocalEngineMetrics, StoreMetrics};

/// The memory engine stores bodies up to this many bytes in their rows, as the embedded engine does.
const MEMORY_INLINE_BYTES_MAX: usize = 64 * 1024;
/// Rest between two checks of all indexes and lists of keys.
const MEND_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause between two looks at the lock clock.
const LOCK_CLOCK_PAUSE: Duration = Duration::from_secs(60);
/// Entries per step of the sweeper.
const SWEEP_ENTRIES: usize = 1000;
/// The pause after a step that removed much.
const SWEEP_PAUSE_BUSY: Duration = Duration::from_millis(20);
/// The pause after any other step.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a whole pass, and after a failure.
const SWEEP_PAUSE_PASS: Duration = Duration::from_secs(30);
/// The longest time to the first sweep of blobs: a crash may have left some that no row names.
const BLOB_PAUSE_FIRST_MAX: Duration = Duration::from_secs(60);
/// How often the usage of S3 users is written.
const USAGE_PAUSE: Duration = Duration::from_secs(60);

/// An open engine.
pub struct OpenEngine {
    /// The rows; calls are counted.
    pub store: Arc<dyn Store>,
    /// The large bodies; calls are counted.
    pub blobs: Arc<dyn Blobs>,
    /// The engine's view for operators.
    pub view: Arc<dyn EngineStatus>,
    /// The place of the data, in a line of the banner.
    pub description: String,
    /// Notes for the operator, one line each.
    pub notes: Vec<String>,
    /// The keys that seal rows and bodies, if any are sealed.
    pub(crate) data_keys: Option<Arc<DataKeys>>,
    /// The embedded engine, for backups.
    pub(crate) backup: Option<BackupSource>,
    upkeep: EngineUpkeep,
}

/// The engine's own maintenance.
enum EngineUpkeep {
    /// No maintenance.
    Nothing,
    /// Removes expired rows, and closes the store.
    Local(LocalStore),
    /// Purges the blocks of removed blobs.
    Cassandra(Arc<CassandraBlobs>),
}

impl OpenEngine {
    /// Opens the engine of the settings, for the process `actor`. It replays a journal, or connects to a cluster.
    ///
    /// # Errors
    /// A line that says why the engine cannot be opened.
    pub(crate) async fn open(
        settings: &ServerSettings,
        memory: &MemoryPlan,
        clock: Arc<dyn Clock>,
        actor: ActorId,
        ring: &Arc<KeyRing>,
    ) -> Result<Self, ServerFailure> {
        let bare = match (settings.engine, &settings.cassandra) {
            (EngineKind::Cassandra, Some(cluster)) => BareEngine::cassandra(cluster, &clock, actor).await?,
            (EngineKind::Local, _) => BareEngine::local(settings, memory, clock.clone())?,
            (EngineKind::Memory, _) => BareEngine::memory(clock.clone()),
            (EngineKind::Cassandra, None) => return Err(ServerFailure("no cluster is named".to_owned())),
        };
        let BareEngine { store, blobs, view, description, mut notes, backup, upkeep } = bare;
        notes.extend(keys_beside_data(settings));
        let EngineStores { store, blobs, data_keys } = EngineStores::seal(store, blobs, settings, ring).await?;
        let metrics = StoreMetrics::new(view, store, blobs, clock, memory.clients.clone());
        let (store, blobs) = (metrics.store(), metrics.blobs());
        Ok(Self { store, blobs, view: Arc::new(metrics), description, notes, data_keys, backup, upkeep })
    }

    /// Starts the background tasks: expired rows, leftovers of failures, lifecycle rules of S3 buckets, the usage of S3 users, and
    /// the time by which object locks end. Dropping the result ends them.
    #[must_use]
    pub fn start_background(
        &self,
        gateway: &Arc<Gateway>,
        objects: &Arc<Objects>,
        settings: &ServerSettings,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        match &self.upkeep {
            EngineUpkeep::Nothing => {}
            EngineUpkeep::Local(store) => drop(tasks.spawn(sweep_rows(store.clone()))),
            EngineUpkeep::Cassandra(blobs) => {
                drop(tasks.spawn(purge_blobs(objects.clone(), blobs.clone(), settings.sweep_interval)));
                drop(tasks.spawn(watch_nodes(self.view.clone())));
                drop(tasks.spawn(mend_views(objects.clone(), gateway.clone())));
            }
        }
        tasks.spawn(sweep_leftovers(objects.clone(), settings.sweep_interval));
        tasks.spawn(run_lifecycle(objects.clone(), settings.s3_lifecycle_interval));
        tasks.spawn(flush_usage(objects.clone()));
        tasks.spawn(run_lock_clock(objects.clone()));
        tasks
    }

    /// Writes what is in memory, and closes.
    ///
    /// # Errors
    /// A line that says which data was not written.
    pub async fn close(self) -> Result<(), ServerFailure> {
        match self.upkeep {
            EngineUpkeep::Local(store) => {
                store.close().await.map_err(|error| ServerFailure(format!("the data was not closed in order: {error}")))
            }
            EngineUpkeep::Nothing | EngineUpkeep::Cassandra(_) => Ok(()),
        }
    }
}

/// The note about master keys that protect little.
fn keys_beside_data(settings: &ServerSettings) -> Option<String> {
    let is_beside = settings.engine == EngineKind::Local && settings.encryption_keys.is_none();
    (settings.encrypt_at_rest && is_beside).then(|| {
        format!(
            "the master keys lie beside the data that they encrypt: {} names a file elsewhere",
            table::ENCRYPTION_KEYS.flag()
        )
    })
}

/// An engine as it is opened.
struct BareEngine {
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    view: Arc<dyn EngineStatus>,
    description: String,
    notes: Vec<String>,
    backup: Option<BackupSource>,
    upkeep: EngineUpkeep,
}

impl BareEngine {
    fn memory(clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(MemoryStore::with_inline_max(clock, MEMORY_INLINE_BYTES_MAX));
        Self {
            store: store.clone(),
            blobs: store,
            view: Arc::new("memory"),
            description: "in memory (engine memory: forgotten at the end)".to_owned(),
            notes: Vec::new(),
            backup: None,
            upkeep: EngineUpkeep::Nothing,
        }
    }

    async fn cassandra(
        cluster: &CassandraSettings,
        clock: &Arc<dyn Clock>,
        actor: ActorId,
    ) -> Result<Self, ServerFailure> {
        let OpenedCluster { store, blobs, view, description, notes } = open(cluster, clock, actor).await?;
        let upkeep = EngineUpkeep::Cassandra(blobs.clone());
        Ok(Self { store, blobs, view, description, notes, backup: None, upkeep })
    }

    fn local(settings: &ServerSettings, memory: &MemoryPlan, clock: Arc<dyn Clock>) -> Result<Self, ServerFailure> {
        let options = OpenOptions {
            dir: settings.data_dir.clone(),
            cache_bytes: memory.cache,
            memtables_bytes: memory.memtables,
            durable: settings.durability == DurabilitySetting::Disk,
            accept_damaged_journal: settings.accept_damaged_journal,
            sizes: None,
            clock,
        };
        let store = LocalStore::open(options).map_err(open_failure)?;
        let blobs = LocalBlobs::open(&settings.data_dir, store.bulk_rows(), store.disk_space()).map_err(|error| {
            ServerFailure(format!("cannot open the blobs in {}: {error}", settings.data_dir.display()))
        })?;
        let blobs = Arc::new(blobs);
        Ok(Self {
            store: Arc::new(store.clone()),
            view: Arc::new(LocalEngineMetrics::new(store.clone(), &settings.data_dir)),
            description: describe_local(settings),
            notes: Vec::new(),
            backup: Some(BackupSource { data_dir: settings.data_dir.clone(), blobs: Arc::clone(&blobs) }),
            blobs,
            upkeep: EngineUpkeep::Local(store),
        })
    }
}

async fn sweep_rows(store: LocalStore) {
    loop {
        let pause = match store.sweep_expired(SWEEP_ENTRIES).await {
            Ok(swept) => pause_after(swept),
            Err(error) => {
                tracing::warn!(%error, "sweep of expired rows failed: they stay until the next pass");
                SWEEP_PAUSE_PASS
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn sweep_leftovers(objects: Arc<Objects>, interval: Duration) {
    // A crash may have left blobs without rows: the first sweep comes soon, not after a whole interval.
    let mut pause = interval.min(BLOB_PAUSE_FIRST_MAX);
    loop {
        tokio::time::sleep(pause).await;
        pause = interval;
        if !is_leader(&objects).await {
            continue;
        }
        match objects.sweeper.sweep().await {
            Ok(swept) if swept == SweepReport::default() => {}
            Ok(swept) => tracing::info!(?swept, "leftovers of failed requests removed"),
            Err(error) => tracing::warn!(%error, "sweep of leftovers failed: they stay until the next pass"),
        }
    }
}

/// Each gateway has a lock clock of its own. It is looked at before the first pause: only from then on does it catch up.
async fn run_lock_clock(objects: Arc<Objects>) {
    loop {
        if let Err(error) = objects.lock_clock.tick().await {
            tracing::warn!(%error, "lock clock not stored: a restart now would set it back by a little, and object locks hold longer");
        }
        tokio::time::sleep(LOCK_CLOCK_PAUSE).await;
    }
}

async fn run_lifecycle(objects: Arc<Objects>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if !is_leader(&objects).await {
            continue;
        }
        match objects.lifecycle.run().await {
            Ok(pass) if pass == LifecyclePass::default() => {}
            Ok(pass) => tracing::info!(?pass, "lifecycle rules applied: expired S3 objects and uploads removed"),
            Err(error) => {
                tracing::warn!(%error, "lifecycle rules not applied: expired S3 objects stay until the next pass")
            }
        }
    }
}

async fn purge_blobs(objects: Arc<Objects>, blobs: Arc<CassandraBlobs>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if !is_leader(&objects).await {
            continue;
        }
        match blobs.purge().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "blocks of removed bodies purged"),
            Err(error) => {
                tracing::warn!(%error, "purge of removed bodies failed: their blocks stay until the next pass")
            }
        }
    }
}

/// Mends indexes and lists of keys: a node that dies while it writes a batch may leave an object that none of them shows.
async fn mend_views(objects: Arc<Objects>, gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(MEND_INTERVAL).await;
        if !is_leader(&objects).await {
            continue;
        }
        let goes_on = |_: &IndexCheck, _| !crate::admin::is_transferring();
        match gateway.kv.check_indexes(CheckMode::Background, goes_on).await {
            Ok(checked) if checked.differences() == 0 => {}
            Ok(checked) => tracing::info!(?checked, "indexes and lists of keys mended"),
            Err(error) => {
                tracing::warn!(%error, "check of indexes and lists of keys failed: what differs stays until the next pass");
            }
        }
    }
}

/// Whether this gateway sweeps. One of several does, which saves work; two at a time would do no harm.
async fn is_leader(objects: &Objects) -> bool {
    if crate::admin::is_transferring() {
        return false; // A row swept during a transfer would fail the comparison after it.
    }
    objects.gateway.members().is_leader().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "read of the members failed: this pass sweeps nothing");
        false
    })
}

async fn flush_usage(objects: Arc<Objects>) {
    loop {
        // Usage stays in memory until it is written: a crash loses a minute of it at most.
        tokio::time::sleep(USAGE_PAUSE).await;
        if let Err(error) = objects.usage.flush().await {
            tracing::warn!(%error, "usage of S3 users not written: the next flush writes it");
        }
    }
}

fn pause_after(swept: SweepStep) -> Duration {
    if swept.complete {
        SWEEP_PAUSE_PASS
    } else if swept.removed > SWEEP_ENTRIES / 4 {
        SWEEP_PAUSE_BUSY
    } else {
        SWEEP_PAUSE
    }
}

fn describe_local(settings: &ServerSettings) -> String {
    let durability = match settings.durability {
        DurabilitySetting::Disk => "a write is answered once it is on disk",
        DurabilitySetting::Buffered => "a write is answered before it is on disk",
    };
    let (dir, name) = (settings.data_dir.display(), settings::choice_word(&settings.durability));
    format!("{dir} (engine local, durability {name}: {durability})")
}

/// The engine's error, with the flag of this server that helps.
fn open_failure(error: OpenError) -> ServerFailure {
    ServerFailure(match error {
        OpenError::DamagedJournal { dir, what } => format!(
            "the journal in {} is damaged: {what}; restore a backup, or accept the loss with {}",
            dir.display(),
            table::ACCEPT_DAMAGED_JOURNAL.flag()
        ),
        OpenError::InUse { .. }
        | OpenError::Foreign { .. }
        | OpenError::UnknownFormat { .. }
        | OpenError::Damaged { .. }
        | OpenError::Io { .. } => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweeper_is_fast_only_after_a_step_that_removed_much() {
        for (removed, complete, pause) in
            [(0, false, SWEEP_PAUSE), (1000, false, SWEEP_PAUSE_BUSY), (1000, true, SWEEP_PAUSE_PASS)]
        {
            assert_eq!(pause_after(SweepStep { seen: 1000, removed, complete }), pause);
        }
    }

    #[test]
    fn a_damaged_journal_names_the_flag_that_accepts_it() {
        let failure = open_failure(OpenError::DamagedJournal { dir: "/d".into(), what: "cut".into() });
        assert!(failure.to_string().contains("--accept-damaged-journal"), "{failure}");
    }
}
