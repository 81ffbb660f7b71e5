//! Every promise of the store on a real node. Runs if `LARDER_CASSANDRA` names one, such as `127.0.0.1:9042`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test says what it expects by failing")]

use larder_store::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use larder_store::{
    Batch, Blobs, CallOptions, CasResult, Change, Clock, ConsistencyLevel, Durability, Kind, Partition, ReadOrder,
    ReadQuery, Row, Stopped, Table,
};
use larder_store_cassandra::blobs::{BlobOptions, CassandraBlobs, GRACE, LEASE};
use larder_store_cassandra::{CassandraStore, ConnectError, ConnectOptions, Replication};
use larder_testkit::conformance::{ManualClock, conformance};
use tokio::time::Instant;

/// A store with keyspaces of its own.
struct TestKeyspaces {
    store: CassandraStore,
    prefix: String,
    node: String,
}

impl TestKeyspaces {
    /// Connects to the node; `None`, with a message, without one.
    async fn new(clock: Option<Arc<dyn Clock>>) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "the environment names the node of this test")]
        let Ok(node) = std::env::var("LARDER_CASSANDRA") else {
            println!("skipped: LARDER_CASSANDRA names no node to run on");
            return None;
        };
        let prefix = format!("h1_{:08x}", RandomState::new().hash_one("prefix") as u32);
        let store = CassandraStore::connect(options_of(&node, &prefix, clock)).await.expect("the node answers");
        Some(Self { store, prefix, node })
    }

    /// Another gateway over the same keyspaces.
    async fn another(&self) -> CassandraStore {
        CassandraStore::connect(options_of(&self.node, &self.prefix, None)).await.expect("the node answers")
    }

    async fn drop_keyspaces(self, numbers: &[u8]) {
        for n_val in numbers {
            let text = format!("DROP KEYSPACE IF EXISTS {}", self.store.keyspace(*n_val));
            self.store.session().driver().query_unpaged(text, ()).await.expect("the keyspace is dropped");
        }
    }
}

fn options_of(node: &str, prefix: &str, clock: Option<Arc<dyn Clock>>) -> ConnectOptions {
    ConnectOptions {
        contact_points: vec![node.to_owned()],
        keyspace: prefix.to_owned(),
        replication: Replication::Simple,
        credentials: None,
        tls: None,
        clock,
    }
}

async fn open_blobs(store: &CassandraStore) -> larder_store::Result<CassandraBlobs> {
    let options = BlobOptions { grace: GRACE, lease: LEASE, clock: store.clock(), process: 1 };
    CassandraBlobs::open(store.session().clone(), &store.keyspace(Partition::DEFAULT_COPIES), options).await
}

fn options() -> CallOptions {
    // A node that shares its cores with other tests needs long for a range of tombstones.
    let deadline = Instant::now() + Duration::from_secs(300);
    CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered)
}

fn row(name: impl Into<bytes::Bytes>, value: &'static str, stamp: u64) -> Row {
    Row { name: name.into(), value: value.into(), stamp: Timestamp(stamp), expires: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_holds() {
    let clock = Arc::new(ManualClock::default());
    let Some(subject) = TestKeyspaces::new(Some(clock.clone())).await else { return };
    conformance(Arc::clone(subject.store.rows()), clock).await;
    println!("{:?}", subject.store.metrics());
    subject.drop_keyspaces(&[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_gateways_that_start_at_once_make_one_schema() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let prefix = format!("{}x", subject.prefix);
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let options = options_of(&subject.node, &prefix, None);
        starts.spawn(async move {
            let store = CassandraStore::connect(options).await?;
            Ok::<_, ConnectError>((open_blobs(&store).await, store))
        });
    }
    let mut stores = Vec::new();
    for started in starts.join_all().await {
        let (blobs, store) = started.expect("a gateway starts");
        let blobs = blobs.expect("its blobs are opened");
        assert_eq!(blobs.list(None, 1).await.expect("a listing is answered"), []);
        stores.push(store);
    }
    for (stamp, store) in (1..).zip(&stores) {
        for table in [Table::Objects, Table::Usage] {
            let partition = Partition::new(table, "p");
            let batch = Batch::single(partition.clone(), vec![Change::Put(row("r", "v", stamp))]);
            store.rows().apply(batch, &options()).await.expect("a write is taken");
            let page =
                stores[0].rows().read(&partition, &ReadQuery::all(9), &options()).await.expect("a read is answered");
            assert_eq!(page.rows, [row("r", "v", stamp)], "{table:?}");
        }
    }
    let text = format!("DROP KEYSPACE IF EXISTS {}", stores[0].keyspace(3));
    subject.store.session().driver().query_unpaged(text, ()).await.expect("the keyspace is dropped");
    subject.drop_keyspaces(&[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_layout_is_refused() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let text = format!("UPDATE {}.layout SET value = '2' WHERE name = 'version'", subject.store.keyspace(3));
    subject.store.session().driver().query_unpaged(text, ()).await.expect("the number is changed");
    let refused = CassandraStore::connect(options_of(&subject.node, &subject.prefix, None)).await;
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("layout 2") && text.contains("newer"), "{text}");
    subject.drop_keyspaces(&[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_number_of_copies_has_a_keyspace_of_its_own() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let store = subject.store.rows();
    let at = |n_val: u8| Partition { table: Table::Objects, copies: n_val, key: "\u{1}t\u{1}bkey".into() };
    let other = subject.another().await;
    let other = other.rows();
    assert_eq!(other.read(&at(1), &ReadQuery::all(9), &options()).await.expect("a read is answered").rows, []);
    for n_val in [1, 2, 3] {
        let batch = Batch::single(at(n_val), vec![Change::Put(row("r", "v", u64::from(n_val)))]);
        store.apply(batch, &options()).await.expect("a write is taken");
    }
    for n_val in [1, 2, 3] {
        let page = other.read(&at(n_val), &ReadQuery::all(9), &options()).await.expect("a read is answered");
        assert_eq!(page.rows, [row("r", "v", u64::from(n_val))]);
    }
    for limit in [1, 2, 9] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = other.partitions(Table::Objects, after, limit, &options()).await.expect("a listing is answered");
            found.extend(page.partitions);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, [at(1), at(2), at(3)], "{limit}");
    }
    let elsewhere = Partition { table: Table::Heads, copies: 2, key: "p".into() };
    let refused = store.read(&elsewhere, &ReadQuery::all(1), &options()).await;
    assert_eq!(refused.expect_err("refused").kind, Kind::Misuse);
    assert!(
        subject.store.notes().iter().any(|note| note.contains("1 of 3 copies, as it was made for 1 node;")),
        "{:?}",
        subject.store.notes()
    );
    subject.drop_keyspaces(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_full_of_tombstones_is_read_in_pieces() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let (store, partition) = (subject.store.rows(), Partition::new(Table::Keys, "p"));
    let name = |at: u32| format!("user/{at:08}");
    for page in 0..120 {
        let changes = (0..1000).map(|at| Change::Remove { name: name(page * 1000 + at).into(), stamp: Timestamp(1) });
        store.apply(Batch::single(partition.clone(), changes.collect()), &options()).await.expect("removals are taken");
    }
    let last = [row("user/zzz", "v", 2), row("z", "v", 2)];
    let changes = last.iter().cloned().map(Change::Put).collect();
    store.apply(Batch::single(partition.clone(), changes), &options()).await.expect("a write is taken");
    let page = store.read(&partition, &ReadQuery::all(9), &options()).await.expect("a read is answered");
    assert_eq!((&page.rows[..], page.stopped), (&last[..], Stopped::End));
    let back = ReadQuery { order: ReadOrder::Reverse, ..ReadQuery::all(9) };
    let page = store.read(&partition, &back, &options()).await.expect("a read is answered");
    assert_eq!(page.rows, [last[1].clone(), last[0].clone()]);
    println!("{:?}", subject.store.metrics());
    assert!(subject.store.metrics().ranges_bisected > 0, "the node gave up no read, so this test shows nothing");
    subject.drop_keyspaces(&[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cas_sees_heads_that_another_gateway_wrote() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let (one, two) = (subject.store.clone(), subject.another().await);
    let at = Partition::new(Table::Users, "p");
    let cas = async |store: &CassandraStore, expected: Option<u64>, stamp: u64| {
        let head = row("", "v", stamp);
        store
            .rows()
            .apply_if(&at, expected.map(Timestamp), head.into(), Vec::new(), &options())
            .await
            .expect("a compare-and-set is answered")
    };
    assert_eq!(cas(&one, None, 1).await, CasResult::Applied);
    for stamp in (1..40).step_by(2) {
        assert_eq!(cas(&two, Some(stamp), stamp + 1).await, CasResult::Applied);
        assert_eq!(cas(&one, Some(stamp), stamp + 2).await, CasResult::Conflict(Some(row("", "v", stamp + 1))));
        assert_eq!(cas(&one, Some(stamp + 1), stamp + 2).await, CasResult::Applied);
    }
    let text = format!("SELECT w FROM {}.users", one.keyspace(3));
    let answer = one.session().driver().query_unpaged(text, ()).await.expect("the head is there").into_rows_result();
    let (writers,) = answer.expect("rows").first_row::<(Vec<u8>,)>().expect("one head");
    assert_eq!(writers.len(), 32 * 8, "a head names its last 32 writers");
    subject.drop_keyspaces(&[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_clock_is_near_the_local_one() {
    let Some(subject) = TestKeyspaces::new(None).await else { return };
    let machine = larder_store::SystemClock::default();
    let time = subject.store.rows().now(&options()).await.expect("the store answers the time");
    // The node runs on this machine.
    assert!(time.abs_diff(machine.now()) < 5_000_000, "{time}");
    subject.drop_keyspaces(&[3]).await;
}
