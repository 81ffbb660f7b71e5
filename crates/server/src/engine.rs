//! What keeps the data: opened, swept, closed.

use std::sync::Arc;
use std::time::Duration;

use larder_gateway::EngineView;
use larder_gateway::objects::Objects;
use larder_gateway::objects::lifecycle::LifecyclePass;
use larder_gateway::objects::sweep::Sweep;
use larder_store::memory::MemoryStore;
use larder_store::{Blobs, Clock, Store};
use larder_store_cassandra::blobs::CassandraBlobs;
use larder_store_local::blobs::LocalBlobs;
use larder_store_local::{LocalStore, OpenError, OpenOptions, Swept};
use tokio::task::JoinSet;

use crate::calls::CallFigures;
use crate::cassandra;
use crate::figures::LocalFigures;
use crate::memory::MemoryPlan;
use crate::node_watch::watch_nodes;
use crate::serve::Failure;
use crate::settings::{self, Durability, Settings, table};

/// Bodies up to this many bytes stay inside their rows in the memory engine, as in the embedded one.
const MEMORY_INLINE_BYTES_MAX: usize = 64 * 1024;
/// Entries looked at in one step of the sweeper.
const SWEEP_ENTRIES: usize = 1000;
/// Pause after a step that found much to remove: the rest follows soon.
const SWEEP_PAUSE_BUSY: Duration = Duration::from_millis(20);
/// Pause after any other step.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a whole pass, and after a failure.
const SWEEP_PAUSE_PASS: Duration = Duration::from_secs(30);
/// When blobs are first looked through at the latest: what a crash left is waste from the start.
const BLOB_PAUSE_FIRST_MAX: Duration = Duration::from_secs(60);
/// Pause between writing down what S3 users did.
const USAGE_PAUSE: Duration = Duration::from_secs(60);

/// An open engine.
pub struct Engine {
    /// Where rows are; calls are counted.
    pub store: Arc<dyn Store>,
    /// Where large bodies are; calls are counted.
    pub blobs: Arc<dyn Blobs>,
    /// What operators see of it.
    pub view: Arc<dyn EngineView>,
    /// Where the data is, in a line.
    pub about: String,
    /// What the operator should know of it, a line each.
    pub notes: Vec<String>,
    kept: Kept,
}

/// What has to be looked after.
enum Kept {
    /// Nothing.
    Nothing,
    /// Expired rows, and the end.
    Local(LocalStore),
    /// Blocks of removed blobs.
    Cassandra(Arc<CassandraBlobs>),
}

/// The tasks that remove what expired and what nobody names, until it is dropped.
pub struct Sweeper {
    _tasks: JoinSet<()>,
}

impl Engine {
    /// Opens what the settings say, for the process named `actor`. Replays a journal, or connects to a cluster.
    ///
    /// # Errors
    /// The line that says why not.
    pub(crate) async fn open(
        settings: &Settings,
        memory: &MemoryPlan,
        clock: Arc<dyn Clock>,
        actor: u64,
    ) -> Result<Self, Failure> {
        match (settings.engine, &settings.cassandra) {
            (settings::Engine::Cassandra, Some(cluster)) => Self::cassandra(cluster, clock, actor).await,
            (settings::Engine::Local, _) => Self::local(settings, memory, clock),
            (settings::Engine::Memory, _) => Ok(Self::memory(clock)),
            (settings::Engine::Cassandra, None) => Err(Failure("no cluster is named".to_owned())),
        }
    }

    fn memory(clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(MemoryStore::with_inline_max(clock.clone(), MEMORY_INLINE_BYTES_MAX));
        let about = "in memory (engine memory: forgotten at the end)".to_owned();
        Self::counted(CallFigures::new(Arc::new("memory"), store.clone(), store, clock), about, Kept::Nothing)
    }

    async fn cassandra(cluster: &settings::Cassandra, clock: Arc<dyn Clock>, actor: u64) -> Result<Self, Failure> {
        let opened = cassandra::open(cluster, &clock, actor).await?;
        let figures = CallFigures::new(opened.view, opened.store, opened.blobs.clone(), clock);
        let engine = Self::counted(figures, opened.about, Kept::Cassandra(opened.blobs));
        Ok(Self { notes: opened.notes, ..engine })
    }

    fn local(settings: &Settings, memory: &MemoryPlan, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let options = OpenOptions {
            dir: settings.data_dir.clone(),
            cache_bytes: memory.cache,
            memtables_bytes: memory.memtables,
            durable: settings.durability == Durability::Disk,
            accept_damaged_journal: settings.accept_damaged_journal,
            sizes: None,
            clock: clock.clone(),
        };
        let store = LocalStore::open(options).map_err(open_failure)?;
        let blobs = LocalBlobs::open(&settings.data_dir, store.bulk_rows(), store.disk_space())
            .map_err(|error| Failure(format!("cannot open the blobs in {}: {error}", settings.data_dir.display())))?;
        let view = Arc::new(LocalFigures::new(store.clone(), &settings.data_dir));
        let figures = CallFigures::new(view, Arc::new(store.clone()), Arc::new(blobs), clock);
        Ok(Self::counted(figures, about_local(settings), Kept::Local(store)))
    }

    fn counted(figures: CallFigures, about: String, kept: Kept) -> Self {
        let (store, blobs) = (figures.store(), figures.blobs());
        Self { store, blobs, view: Arc::new(figures), about, notes: Vec::new(), kept }
    }

    /// Begins to remove expired rows, if the engine does not do that by itself, what failures left behind, and what the
    /// rules of S3 buckets call old; and to write down what S3 users did.
    #[must_use]
    pub fn sweep(&self, objects: &Arc<Objects>, settings: &Settings) -> Sweeper {
        let mut tasks = JoinSet::new();
        match &self.kept {
            Kept::Nothing => {}
            Kept::Local(store) => drop(tasks.spawn(sweep_rows(store.clone()))),
            Kept::Cassandra(blobs) => {
                drop(tasks.spawn(purge_blobs(objects.clone(), blobs.clone(), settings.sweep_interval)));
                drop(tasks.spawn(watch_nodes(self.view.clone())));
            }
        }
        tasks.spawn(sweep_left(objects.clone(), settings.sweep_interval));
        tasks.spawn(run_lifecycle(objects.clone(), settings.s3_lifecycle_interval));
        tasks.spawn(flush_usage(objects.clone()));
        Sweeper { _tasks: tasks }
    }

    /// Writes what is left and closes.
    ///
    /// # Errors
    /// The line that says what was not written.
    pub async fn close(self) -> Result<(), Failure> {
        match self.kept {
            Kept::Local(store) => {
                store.close().await.map_err(|error| Failure(format!("the data was not closed in order: {error}")))
            }
            Kept::Nothing | Kept::Cassandra(_) => Ok(()),
        }
    }
}

async fn sweep_rows(store: LocalStore) {
    loop {
        let pause = match store.sweep_expired(SWEEP_ENTRIES).await {
            Ok(swept) => pause_after(swept),
            Err(error) => {
                tracing::warn!(%error, "expired rows were not removed");
                SWEEP_PAUSE_PASS
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn sweep_left(objects: Arc<Objects>, interval: Duration) {
    let mut pause = interval.min(BLOB_PAUSE_FIRST_MAX);
    loop {
        tokio::time::sleep(pause).await;
        pause = interval;
        if !leads(&objects).await {
            continue;
        }
        match objects.sweep().await {
            Ok(swept) if swept == Sweep::default() => {}
            Ok(swept) => tracing::info!(?swept, "leftovers of failed requests were removed"),
            Err(error) => tracing::warn!(%error, "leftovers of failed requests were not removed"),
        }
    }
}

async fn run_lifecycle(objects: Arc<Objects>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if !leads(&objects).await {
            continue;
        }
        match objects.run_lifecycle().await {
            Ok(pass) if pass == LifecyclePass::default() => {}
            Ok(pass) => tracing::info!(?pass, "what the rules of S3 buckets call old was removed"),
            Err(error) => tracing::warn!(%error, "the rules of S3 buckets were not carried out"),
        }
    }
}

async fn purge_blobs(objects: Arc<Objects>, blobs: Arc<CassandraBlobs>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if !leads(&objects).await {
            continue;
        }
        match blobs.purge().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "blocks of removed bodies were removed for good"),
            Err(error) => tracing::warn!(%error, "blocks of removed bodies were not removed for good"),
        }
    }
}

/// Of several gateways one sweeps: that saves work, and nothing goes wrong when for a moment two of them do.
async fn leads(objects: &Objects) -> bool {
    if crate::admin::is_transferring() {
        return false; // What is swept now would be missed by who compares.
    }
    objects.gateway().leads().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "who runs could not be read: nothing is swept now");
        false
    })
}

async fn flush_usage(objects: Arc<Objects>) {
    loop {
        tokio::time::sleep(USAGE_PAUSE).await;
        if let Err(error) = objects.flush_usage().await {
            tracing::warn!(%error, "what S3 users did was not written down: later");
        }
    }
}

fn pause_after(swept: Swept) -> Duration {
    if swept.complete {
        SWEEP_PAUSE_PASS
    } else if swept.removed > SWEEP_ENTRIES / 4 {
        SWEEP_PAUSE_BUSY
    } else {
        SWEEP_PAUSE
    }
}

fn about_local(settings: &Settings) -> String {
    let durability = match settings.durability {
        Durability::Disk => "a write is answered once it is on disk",
        Durability::Buffered => "a write is answered before it is on disk",
    };
    let (dir, name) = (settings.data_dir.display(), settings.durability.name());
    format!("{dir} (engine local, durability {name}: {durability})")
}

/// The engine's line, with the flag that helps by the name it has here.
fn open_failure(error: OpenError) -> Failure {
    Failure(match error {
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
    fn the_sweeper_is_quick_only_while_it_finds_much() {
        for (removed, complete, pause) in
            [(0, false, SWEEP_PAUSE), (1000, false, SWEEP_PAUSE_BUSY), (1000, true, SWEEP_PAUSE_PASS)]
        {
            assert_eq!(pause_after(Swept { seen: 1000, removed, complete }), pause);
        }
    }

    #[test]
    fn a_damaged_journal_names_the_flag_that_accepts_it() {
        let failure = open_failure(OpenError::DamagedJournal { dir: "/d".into(), what: "cut".into() });
        assert!(failure.to_string().contains("--accept-damaged-journal"), "{failure}");
    }
}
