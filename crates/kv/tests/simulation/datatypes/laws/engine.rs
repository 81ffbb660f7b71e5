//! The engines that the laws are tried on: in memory, embedded, and replicas of a simulated cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::SystemTime;

use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Clock, Result, Store};
use larder_store_local::{LocalStore, OpenOptions};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use larder_testkit::replicas::{ClusterSetup, NetworkFaults, Replicas};

/// Memory of an embedded engine, which holds a few keys.
const LOCAL_BYTES: u64 = 16 << 20;

/// The engine of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LawEngineKind {
    Memory,
    /// The engine of `larder-store-local` in a directory of its own.
    Embedded,
    /// Three replicas, of which one may be down.
    Replicated {
        repairs: bool,
    },
}

/// An engine that runs.
pub(super) enum LawEngine {
    Memory(Arc<MemoryStore>),
    Embedded(EmbeddedRun),
    Replicated(Replicas),
}

/// One run of the embedded engine.
pub(super) struct EmbeddedRun {
    store: LocalStore,
    folder: tempfile::TempDir,
    clock: Arc<dyn Clock>,
}

impl LawEngine {
    pub(super) fn new(kind: LawEngineKind, clock: Arc<dyn Clock>, seed: u64) -> Self {
        match kind {
            LawEngineKind::Memory => Self::Memory(Arc::new(MemoryStore::new(clock))),
            LawEngineKind::Embedded => Self::Embedded(EmbeddedRun::start(folder(), clock)),
            LawEngineKind::Replicated { repairs } => {
                let setup = ClusterSetup { read_repair: repairs, ..ClusterSetup::default() };
                let replicas = Replicas::new(clock, setup, seed);
                replicas.set_network_faults(NetworkFaults { hint_ms_max: 500, ..NetworkFaults::none() });
                Self::Replicated(replicas)
            }
        }
    }

    /// A gateway's connection.
    pub(super) fn connect(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as _,
            Self::Embedded(run) => Arc::new(Hooked(Arc::new(BlockingStore(run.store.clone())))),
            Self::Replicated(replicas) => Arc::new(replicas.clone()),
        }
    }

    /// Kills the process of the engine, and starts it again on what is on disk. Without one there is nothing to kill.
    pub(super) fn kill(&mut self) {
        if let Self::Embedded(run) = self {
            // A killed process leaves the files as they are at one moment. Its threads still work here, so a copy counts when no file
            // came, went or changed under it.
            let copy = loop {
                let (copy, before) = (folder(), file_states(run.folder.path()));
                let copied = copy_folder(run.folder.path(), copy.path());
                if copied.is_ok()
                    && before.is_ok_and(|before| file_states(run.folder.path()).is_ok_and(|now| now == before))
                {
                    break copy;
                }
            };
            let clock = Arc::clone(&run.clock);
            *run = EmbeddedRun::start(copy, clock);
        }
    }

    /// The simulated cluster, if it is one.
    pub(super) fn replicas(&self) -> Option<&Replicas> {
        if let Self::Replicated(replicas) = self { Some(replicas) } else { None }
    }
}

impl EmbeddedRun {
    fn start(folder: tempfile::TempDir, clock: Arc<dyn Clock>) -> Self {
        let options = OpenOptions {
            dir: folder.path().to_owned(),
            cache_bytes: LOCAL_BYTES,
            memtables_bytes: LOCAL_BYTES,
            durable: false,
            accept_damaged_journal: false,
            sizes: None,
            clock: Arc::clone(&clock),
        };
        let store = LocalStore::open(options).expect("a folder of a run or of a killed one opens");
        Self { store, folder, clock }
    }
}

/// A folder in memory where there is one: the schedules are about order, not about the disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a folder for the engine")
}

/// The length and the time of the last change of each file.
fn file_states(folder: &Path) -> std::io::Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut states = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            states.extend(file_states(&entry.path())?);
        } else {
            states.insert(entry.path(), (metadata.len(), metadata.modified()?));
        }
    }
    Ok(states)
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// The embedded engine under virtual time: each call blocks the only thread until the engine's own threads have answered, so that
/// no time passes and one seed makes one history.
struct BlockingStore(LocalStore);

impl StoreHook for BlockingStore {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn around<'a, T: Send>(&'a self, _: StoreCall<'a>, options: CallOptions, make: MakeCall<'a, T>) -> Result<T> {
        block_on(tokio::task::unconstrained(make(options)))
    }
}

/// Wakes a thread.
struct ThreadWaker(std::thread::Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
