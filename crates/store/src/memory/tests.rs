use std::time::Duration;

use super::*;
use crate::{ConsistencyLevel, Durability, Row, SystemClock};

fn options() -> CallOptions {
    let deadline = Instant::now() + Duration::from_secs(10);
    CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered)
}

fn put(name: &'static str, stamp: Timestamp, expires: Option<Timestamp>) -> Change {
    Change::Put(Row { name: name.into(), value: Bytes::new(), stamp, expires })
}

#[tokio::test]
async fn the_next_write_removes_expired_rows() {
    let store = MemoryStore::new(Arc::new(SystemClock::default()));
    let partition = Partition::marks();
    let apply = async |changes| store.apply(Batch::single(partition.clone(), changes), &options()).await.unwrap();
    let stored = || (store.shard(&partition).read().stored_rows(), store.shard(&partition).read().expiring());
    apply(vec![
        put("a", Timestamp(1), Some(Timestamp(1))),
        put("b", Timestamp(1), Some(Timestamp::MAX)),
        put("c", Timestamp(1), None),
    ])
    .await;
    assert_eq!(stored(), (3, 2));
    apply(vec![put("b", Timestamp(2), None)]).await;
    assert_eq!(stored(), (2, 0));
    apply(vec![Change::Clear { stamp: Timestamp(9) }]).await;
    assert_eq!(stored(), (0, 0));
}
