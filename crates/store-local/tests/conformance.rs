//! The conformance suite of the store, run against this engine.

use larder_store::Timestamp;
use std::sync::Arc;

use larder_store_local::{LocalStore, OpenOptions};
use larder_testkit::conformance::{ManualClock, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_engine_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000_000)));
    let store = LocalStore::open(OpenOptions {
        dir: dir.path().to_owned(),
        cache_bytes: 16 << 20,
        memtables_bytes: u64::MAX,
        durable: true,
        accept_damaged_journal: false,
        sizes: None,
        clock: clock.clone(),
    });
    conformance(Arc::new(store.unwrap()), clock).await;
}
