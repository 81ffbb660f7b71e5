//! Imports beside clients, under each conflict policy: what the source replaced goes, what a client wrote stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use larder_core::Config;
use larder_core::body::{GetBody, PutBody};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, ImportComparison, ImportOutcome, ImportedValue, KvDelete, KvGet, KvImport, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvBody, KvContent, Term};
use larder_rows::keyspace::moved_shard;
use larder_rows::{ActorId, MovedRow, MovedState, Timestamp};
use larder_store::memory::MemoryStore;
use larder_store::{Batch, CallOptions, Clock, Partition, ReadQuery, Result, Store, Table};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::ports::ports_over;

const MOVE: ActorId = ActorId(99);

/// A store in memory that holds the batch of an import back.
struct HeldImport {
    inner: MemoryStore,
    armed: AtomicBool,
    reached: Notify,
    go: Notify,
}

impl StoreHook for HeldImport {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let is_import = |batch: &Batch| batch.partitions.iter().any(|one| one.partition.table == Table::Moves);
        if let StoreCall::Apply(batch) = call
            && is_import(batch)
            && self.armed.swap(false, Ordering::SeqCst)
        {
            self.reached.notify_one();
            self.go.notified().await;
        }
        make(options).await
    }
}

/// A gateway with a type of each policy, and the key of a test.
struct ImportWorld {
    gateway: Arc<Gateway>,
    held: Arc<HeldImport>,
    clock: Arc<VirtualClock>,
    address: Address,
}

impl ImportWorld {
    async fn new(props: Value) -> Self {
        let clock = Arc::new(VirtualClock::start());
        let shared: Arc<dyn Clock> = clock.clone();
        let held = Arc::new(HeldImport {
            inner: MemoryStore::new(shared.clone()),
            armed: AtomicBool::new(false),
            reached: Notify::new(),
            go: Notify::new(),
        });
        let store = Arc::new(Hooked(held.clone()));
        let config = Config { single_process: true, ..Config::default() };
        let gateway = Gateway::start(ports_over(store, shared), config).await.unwrap();
        let name = Bytes::from("t");
        gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        gateway.types().activate(&name).await.unwrap();
        let address = Address::new(BucketAddress::new(name, "b".into()).unwrap(), "k".into()).unwrap();
        Self { gateway, held, clock, address }
    }

    async fn siblings() -> Self {
        Self::new(json!({ "allow_mult": true })).await
    }

    /// The time at the source, some seconds before now.
    fn ago(&self, seconds: u64) -> Timestamp {
        self.clock.now().saturating_sub(seconds * 1_000_000)
    }

    fn value(&self, text: &'static str, seconds_ago: u64) -> ImportedValue {
        let term = Term { field: "f_bin".into(), value: text.into() };
        let content = KvContent {
            content_type: Some("text/plain".into()),
            terms: vec![term],
            body: KvBody::Inline(text.into()),
            ..KvContent::default()
        };
        ImportedValue { content, modified: self.ago(seconds_ago), vtag: text.into() }
    }

    async fn moved_row(&self) -> Option<MovedRow> {
        let partition = Partition::moved(&self.address.bucket, moved_shard(&self.address.key));
        let query = ReadQuery::one(self.address.key.clone());
        let page = self.gateway.context().read_at_quorum(&partition, &query).await.unwrap();
        page.rows.into_iter().next().map(|row| MovedRow::decode(row.value).unwrap())
    }

    async fn import_as(&self, values: Vec<ImportedValue>, clock: &'static str, replaces: bool) -> ImportOutcome {
        let import = self.order(values, clock, replaces).await;
        self.gateway.kv.import(&import).await.unwrap()
    }

    async fn order(&self, values: Vec<ImportedValue>, clock: &'static str, replaces: bool) -> KvImport {
        let before = self.moved_row().await;
        KvImport { address: self.address.clone(), values, replaces, actor: MOVE, clock: clock.into(), before }
    }

    async fn import(&self, values: Vec<ImportedValue>, clock: &'static str) -> ImportOutcome {
        self.import_as(values, clock, true).await
    }

    async fn compare(&self, values: Vec<ImportedValue>) -> ImportComparison {
        let import = self.order(values, "", true).await;
        self.gateway.kv.compare_import(&import).await.unwrap()
    }

    /// The values of the key, sorted, and its context.
    async fn get(&self) -> (Vec<String>, Option<Bytes>) {
        let request = KvGet { address: self.address.clone(), quorums: Quorums::default(), bodies: true, timeout: None };
        let object = self.gateway.kv.get(request).await.unwrap();
        let text = |body: GetBody| match body {
            GetBody::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => format!("{} bytes", other.length()),
        };
        let mut texts: Vec<_> = object.bodies.into_iter().map(text).collect();
        texts.sort();
        (texts, object.context)
    }

    async fn texts(&self) -> Vec<String> {
        self.get().await.0
    }

    async fn put(&self, text: &'static str, context: Option<Bytes>) {
        let put = KvPut {
            address: self.address.clone(),
            context,
            conditions: Conditions::default(),
            if_not_modified: None,
            content: KvContent::default(),
            upload: PutBody::Bytes(text.into()),
            quorums: Quorums::default(),
            return_body: false,
            timeout: None,
        };
        self.gateway.kv.put(put).await.unwrap();
    }

    async fn delete(&self) {
        let request = KvDelete {
            address: self.address.clone(),
            context: None,
            conditions: Conditions::default(),
            quorums: Quorums::default(),
            timeout: None,
        };
        self.gateway.kv.delete(request).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_state_of_the_source_replaces_what_was_imported_and_keeps_its_time() {
    for props in [
        json!({ "allow_mult": true }),
        json!({ "allow_mult": false }),
        json!({ "last_write_wins": true, "allow_mult": false, "dvv_enabled": false }),
        json!({ "write_once": true }),
    ] {
        let world = ImportWorld::new(props.clone()).await;
        assert_eq!(world.import(vec![world.value("tea", 500)], "1").await, ImportOutcome::Imported, "{props}");
        assert_eq!(world.texts().await, ["tea"], "{props}");
        let request =
            KvGet { address: world.address.clone(), quorums: Quorums::default(), bodies: false, timeout: None };
        let modified = world.gateway.kv.get(request).await.unwrap().versions.modified().unwrap();
        assert_eq!(modified.as_secs(), world.ago(500).as_secs(), "{props}");
        assert_eq!(world.import(vec![world.value("milk", 400)], "2").await, ImportOutcome::Imported, "{props}");
        assert_eq!(world.texts().await, ["milk"], "{props}");
        // A clock of the source that went back.
        assert_eq!(world.import(vec![world.value("oats", 450)], "3").await, ImportOutcome::Imported, "{props}");
        assert_eq!(world.texts().await, ["oats"], "{props}");
        assert_eq!(world.compare(vec![world.value("oats", 450)]).await, ImportComparison::Equal, "{props}");
        assert_eq!(world.compare(vec![world.value("milk", 450)]).await, ImportComparison::Differs, "{props}");
        assert_eq!(world.import(Vec::new(), "4").await, ImportOutcome::Deleted, "{props}");
        assert_eq!(world.texts().await, [""; 0], "{props}");
        assert_eq!(world.moved_row().await.unwrap().state, MovedState::Deleted, "{props}");
        assert_eq!(world.import(vec![world.value("rice", 300)], "5").await, ImportOutcome::Imported, "{props}");
        assert_eq!(world.texts().await, ["rice"], "{props}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_siblings_a_clients_write_stays_beside_newer_states_of_the_source() {
    let world = ImportWorld::siblings().await;
    world.import(vec![world.value("tea", 500), world.value("two", 500)], "1").await;
    assert_eq!(world.texts().await, ["tea", "two"]);
    // It has seen both, so it replaces them.
    let context = world.get().await.1;
    world.put("mine", context).await;
    assert_eq!(world.texts().await, ["mine"]);
    assert_eq!(world.compare(vec![world.value("tea", 500)]).await, ImportComparison::ChangedHere);
    world.import(vec![world.value("milk", 400)], "2").await;
    assert_eq!(world.texts().await, ["milk", "mine"], "neither has seen the other");
    world.import(vec![world.value("oats", 300)], "3").await;
    assert_eq!(world.texts().await, ["mine", "oats"], "only what was imported is replaced");
    world.import(Vec::new(), "4").await;
    assert_eq!(world.texts().await, ["mine"]);
}

#[tokio::test(start_paused = true)]
async fn where_one_value_is_shown_a_clients_write_or_delete_is_not_overwritten() {
    for props in [
        json!({ "allow_mult": false }),
        json!({ "last_write_wins": true, "allow_mult": false, "dvv_enabled": false }),
        json!({ "write_once": true }),
    ] {
        let world = ImportWorld::new(props.clone()).await;
        world.put("first", None).await;
        assert_eq!(world.import(vec![world.value("tea", 500)], "1").await, ImportOutcome::Kept, "{props}");
        assert_eq!(world.texts().await, ["first"], "{props}");
        if props.get("write_once").is_some() {
            continue;
        }
        let world = ImportWorld::new(props.clone()).await;
        world.import(vec![world.value("tea", 500)], "1").await;
        world.put("mine", None).await;
        assert_eq!(world.import(vec![world.value("milk", 0)], "2").await, ImportOutcome::Kept, "{props}");
        assert_eq!(world.import(Vec::new(), "3").await, ImportOutcome::Kept, "{props}");
        assert_eq!(world.texts().await, ["mine"], "{props}");
        let world = ImportWorld::new(props.clone()).await;
        world.import(vec![world.value("tea", 500)], "1").await;
        world.delete().await;
        // The tombstone has expired.
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        assert_eq!(world.import(vec![world.value("milk", 0)], "2").await, ImportOutcome::Kept, "{props}");
        assert_eq!(world.texts().await, [""; 0], "{props}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_write_wins_over_an_import_that_did_not_see_it() {
    for props in
        [json!({ "allow_mult": false }), json!({ "last_write_wins": true, "allow_mult": false, "dvv_enabled": false })]
    {
        let world = Arc::new(ImportWorld::new(props.clone()).await);
        world.import(vec![world.value("tea", 500)], "1").await;
        let import = world.order(vec![world.value("milk", 5)], "2", true).await;
        world.held.armed.store(true, Ordering::SeqCst);
        let gateway = world.gateway.clone();
        let running = tokio::spawn(async move { gateway.kv.import(&import).await });
        // The import has read the key, and its rows are not there yet.
        world.held.reached.notified().await;
        world.put("mine", None).await;
        world.held.go.notify_one();
        running.await.unwrap().unwrap();
        assert_eq!(world.texts().await, ["mine"], "{props}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_states_of_the_source_are_siblings_until_it_settles_them() {
    let world = ImportWorld::siblings().await;
    world.import(vec![world.value("tea", 500)], "1").await;
    world.import_as(vec![world.value("milk", 400)], "2", false).await;
    assert_eq!(world.texts().await, ["milk", "tea"]);
    assert!(world.moved_row().await.unwrap().concurrent);
    world.import(vec![world.value("milk", 400)], "2").await;
    assert_eq!(world.texts().await, ["milk"]);
    assert!(!world.moved_row().await.unwrap().concurrent);
}

#[tokio::test(start_paused = true)]
async fn siblings_of_a_key_that_was_deleted_once_took_one_row_together() {
    let world = ImportWorld::siblings().await;
    world.import(vec![world.value("tea", 100)], "1").await;
    assert_eq!(world.import(Vec::new(), "2").await, ImportOutcome::Deleted);
    // Both are older than the deletion, as writes of one second often are.
    let values = vec![world.value("milk", 200), world.value("water", 300)];
    assert_eq!(world.import(values, "3").await, ImportOutcome::Imported);
    assert_eq!(world.texts().await, ["milk", "water"]);
}

#[tokio::test(start_paused = true)]
async fn an_import_that_broke_off_goes_on_behind_the_values_that_it_wrote() {
    let world = ImportWorld::siblings().await;
    world.import(vec![world.value("a", 500)], "1").await;
    let both = vec![world.value("a", 500), world.value("b", 500)];
    let mut import = world.order(both.clone(), "2", true).await;
    // One of two was written, and a client replaced it since.
    import.before = Some(MovedRow { complete: false, written: 1, clock: "2".into(), ..import.before.unwrap() });
    let context = world.get().await.1;
    world.put("mine", context).await;
    world.gateway.kv.import(&import).await.unwrap();
    assert_eq!(world.texts().await, ["b", "mine"], "the first one does not come back");
    assert!(world.moved_row().await.unwrap().complete);
}

#[tokio::test(start_paused = true)]
async fn a_large_value_and_its_index_terms_are_imported_and_replaced() {
    let world = ImportWorld::siblings().await;
    let large = || {
        let mut value = world.value("large", 500);
        value.content.body = KvBody::Inline(vec![b'x'; 3 << 20].into());
        value
    };
    world.import(vec![large()], "1").await;
    assert_eq!(world.texts().await, ["3145728 bytes"]);
    assert_eq!(world.compare(vec![large()]).await, ImportComparison::Equal);
    world.import(vec![world.value("tea", 100)], "2").await;
    assert_eq!(world.texts().await, ["tea"]);
    let check = world.gateway.kv.clone();
    assert!(check.sweep_blobs().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn buckets_of_data_types_are_not_written_by_imports() {
    let world = ImportWorld::new(json!({ "datatype": "counter" })).await;
    let import = world.order(vec![world.value("tea", 1)], "1", true).await;
    assert!(matches!(world.gateway.kv.import(&import).await, Err(larder_core::Error::DatatypePut)));
}
