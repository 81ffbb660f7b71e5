//! The order of a data key and the first values under it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use larder_encryption::at_rest::{DataKeys, SealWish, SealedStore};
use larder_encryption::key_ring::KeyRing;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, CallOptions, Change, ConsistencyLevel, Durability, Partition, Purpose, Result, Row, Store, Table, Timestamp,
};
use larder_testkit::conformance::ManualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use tokio::time::Instant;

/// A write that an engine saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenWrite {
    table: Table,
    durability: Durability,
    purpose: Purpose,
}

/// An engine that notes its writes once they are done, each after a pause.
struct NotingStore {
    inner: MemoryStore,
    seen: Mutex<Vec<SeenWrite>>,
}

impl StoreHook for NotingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let StoreCall::Apply(batch) = call else { return make(options).await };
        tokio::time::sleep(Duration::from_millis(5)).await;
        let done = make(options).await?;
        let table = batch.partitions[0].partition.table;
        let seen = SeenWrite { table, durability: options.durability, purpose: options.purpose };
        self.seen.lock().unwrap().push(seen);
        Ok(done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_data_key_is_on_disk_before_its_first_value() {
    let inner = MemoryStore::new(Arc::new(ManualClock::default()));
    let noting = Arc::new(NotingStore { inner, seen: Mutex::default() });
    let engine = Arc::new(Hooked(noting.clone()));
    let deadline = Instant::now() + Duration::from_secs(10);
    let ring = Arc::new(KeyRing::in_memory());
    let random = |bytes: &mut [u8]| bytes.fill(7);
    let keys = DataKeys::open(engine.clone(), ring, random, SealWish::Seal, deadline).await.unwrap().unwrap();
    let store = SealedStore::new(engine.clone(), keys);
    let options = CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered);
    let put = |name: &'static str| {
        let row = Row { name: name.into(), value: Bytes::from_static(b"\x01"), stamp: Timestamp(1), expires: None };
        store.apply(Batch::single(Partition::new(Table::Keys, "p"), vec![Change::Put(row)]), &options)
    };
    let (first, second) = tokio::join!(put("a"), put("b"));
    first.and(second).unwrap();
    let value = SeenWrite { table: Table::Keys, durability: Durability::Buffered, purpose: Purpose::Data };
    let key = SeenWrite { table: Table::DataKeys, durability: Durability::Forced, purpose: Purpose::Reclaim };
    assert_eq!(*noting.seen.lock().unwrap(), [key, value, value]);
}
