//! Blobs on a real cluster. Runs if `LARDER_CASSANDRA` names a node, such as `127.0.0.1:9042`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says what it expects by failing"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Blobs, Durability, Kind, ListedBlob, Partition, Table};
use larder_store_cassandra::ClusterSession;
use larder_store_cassandra::blobs::cql::SCHEMA;
use larder_store_cassandra::blobs::{BlobOptions, CassandraBlobs};
use larder_testkit::conformance::{ManualClock, blob_conformance};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

const GRACE: Duration = Duration::from_secs(15 * 60);
const LEASE: Duration = Duration::from_secs(2);
/// Deadline of every wait.
const WAIT_MAX: Duration = Duration::from_secs(60);
const BLOCK: usize = 256 * 1024;

/// A new keyspace on the node, and a clock.
struct BlobKeyspace {
    session: Arc<Session>,
    keyspace: String,
    clock: Arc<ManualClock>,
}

impl BlobKeyspace {
    /// `None` if no node is named.
    async fn new() -> Option<Self> {
        let Ok(node) = std::env::var("LARDER_CASSANDRA") else {
            eprintln!("skipped: LARDER_CASSANDRA names no node");
            return None;
        };
        let session = connect(&node).await;
        let keyspace = format!("h2_{:016x}", number());
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        let text = format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}");
        session.query_unpaged(text, ()).await.unwrap();
        for (_, text) in SCHEMA {
            session.query_unpaged(text.replace("{k}", &keyspace), ()).await.unwrap();
        }
        Some(Self { session, keyspace, clock: Arc::new(ManualClock::default()) })
    }

    /// The blobs as one more process sees them.
    async fn process(&self) -> Arc<CassandraBlobs> {
        self.process_over(self.session.clone()).await
    }

    async fn process_over(&self, session: Arc<Session>) -> Arc<CassandraBlobs> {
        let options = BlobOptions { grace: GRACE, lease: LEASE, clock: self.clock.clone(), process: number() };
        Arc::new(CassandraBlobs::open(ClusterSession::new(session), &self.keyspace, options).await.unwrap())
    }

    /// Number of rows in the tables: records and blocks.
    async fn rows(&self) -> (usize, usize) {
        let mut found = [0, 0];
        for (found, table) in found.iter_mut().zip(["blob_records", "blob_blocks"]) {
            let text = format!("SELECT id FROM {}.{table}", self.keyspace);
            let rows = self.session.query_unpaged(text, ()).await.unwrap();
            *found = rows.into_rows_result().unwrap().rows_num();
        }
        (found[0], found[1])
    }

    /// The run in the only row of a table.
    async fn only_run(&self, table: &str) -> Bytes {
        let text = format!("SELECT run FROM {}.{table}", self.keyspace);
        let rows = self.session.query_unpaged(text, ()).await.unwrap().into_rows_result().unwrap();
        rows.single_row::<(Bytes,)>().unwrap().0
    }

    async fn drop(self) {
        self.session.query_unpaged(format!("DROP KEYSPACE {}", self.keyspace), ()).await.unwrap();
    }
}

async fn connect(node: &str) -> Arc<Session> {
    Arc::new(SessionBuilder::new().known_node(node).build().await.expect("the node named by LARDER_CASSANDRA answers"))
}

fn number() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_be_bytes(bytes)
}

fn id(which: u8) -> BlobId {
    BlobId([which; 24])
}

fn id_bytes(which: u8) -> Bytes {
    Bytes::copy_from_slice(&id(which).0)
}

fn owner() -> BlobOwner {
    BlobOwner { partition: Partition { table: Table::Objects, copies: 2, key: "key".into() }, row: "row".into() }
}

fn body(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

async fn write(blobs: &CassandraBlobs, which: u8, body: Bytes) -> Box<dyn Send + Sync> {
    let mut writer = blobs.create(id(which), owner()).await.unwrap();
    writer.write(body).await.unwrap();
    writer.finish(Durability::Disk).await.unwrap()
}

/// Blobs without a lease, which a sweeper may check.
async fn free(blobs: &CassandraBlobs) -> Vec<BlobId> {
    let listed = blobs.list(None, 100).await.unwrap();
    listed.into_iter().filter(|blob| !blob.leased).map(|blob| blob.id).collect()
}

/// Waits until a condition holds.
async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let all = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, all).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// A process that writes more than one block, finishes its blob or not, and dies without cleaning up.
fn die_writing(cluster: &BlobKeyspace, finishes: bool) {
    // Its lease renewals run on a runtime of its own and stop with it.
    let run = || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let blobs = cluster.process_over(connect(&std::env::var("LARDER_CASSANDRA").unwrap()).await).await;
            let mut writer = blobs.create(id(1), owner()).await.unwrap();
            writer.write(body(BLOCK + 1)).await.unwrap();
            if finishes {
                std::mem::forget(writer.finish(Durability::Disk).await.unwrap());
            } else {
                until("a block is written", async || cluster.rows().await.1 == 1).await;
                std::mem::forget(writer);
            }
        });
        runtime.shutdown_background();
    };
    std::thread::scope(|threads| tokio::task::block_in_place(|| threads.spawn(run).join().unwrap()));
}

macro_rules! on_a_cluster {
    ($($name:ident($cluster:ident) $work:block)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let Some($cluster) = BlobKeyspace::new().await else { return };
            $work
            $cluster.drop().await;
        }
    )*};
}

on_a_cluster! {
    every_promise_of_blobs_holds(cluster) {
        blob_conformance(cluster.process().await).await;
    }

    a_long_blob_spans_partitions_and_is_removed_whole(cluster) {
        let (blobs, body) = (cluster.process().await, body(65 * BLOCK + 17));
        drop(write(&blobs, 1, body.clone()).await);
        let mut reader = blobs.open(id(1)).await.unwrap();
        let mut all = Vec::new();
        while (all.len() as u64) < reader.length() {
            all.extend_from_slice(&reader.read(all.len() as u64, 1 << 20).await.unwrap());
        }
        assert!(all == body, "other bytes came back");
        assert_eq!(blobs.list(None, 1).await.unwrap(), [ListedBlob { id: id(1), owner: owner(), leased: false }]);
        assert_eq!(cluster.rows().await, (1, 66));
        blobs.remove(id(1)).await.unwrap();
        cluster.clock.advance(GRACE);
        assert_eq!(blobs.purge().await.unwrap(), 1);
        assert_eq!(cluster.rows().await, (0, 0));
    }

    another_process_sees_a_lease(cluster) {
        let (writing, sweeping) = (cluster.process().await, cluster.process().await);
        let lease = write(&writing, 1, body(10)).await;
        let unfinished = writing.create(id(2), owner()).await.unwrap();
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(free(&sweeping).await, [], "the lease is renewed while it is held");
        assert_eq!(sweeping.purge().await.unwrap(), 0);
        drop((lease, unfinished));
        until("the lease given up is seen", async || free(&sweeping).await == [id(1)]).await;
        until("the unfinished one is gone", async || cluster.rows().await.0 == 1).await;
    }

    the_lease_of_a_dead_writer_ends(cluster) {
        let sweeping = cluster.process().await;
        die_writing(&cluster, true);
        until("the lease ends", async || free(&sweeping).await == [id(1)]).await;
    }

    the_blocks_of_a_dead_writer_are_purged(cluster) {
        let purging = cluster.process().await;
        die_writing(&cluster, false);
        cluster.clock.advance(GRACE * 10);
        until("the blob is purged", async || {
            let purged = purging.purge().await.unwrap();
            cluster.clock.advance(GRACE);
            purged == 1
        }).await;
        assert_eq!(cluster.rows().await, (0, 0));
    }

    a_writer_marked_as_abandoned_does_not_finish(cluster) {
        let (writing, purging) = (cluster.process().await, cluster.process().await);
        let mut writer = writing.create(id(1), owner()).await.unwrap();
        writer.write(body(10)).await.unwrap();
        // As if the writer had been stopped for longer than its lease.
        let text = "DELETE lease FROM {k}.blob_records WHERE shard = 1 AND id = ? AND run = ?";
        let run = cluster.only_run("blob_records").await;
        let text = text.replace("{k}", &cluster.keyspace);
        cluster.session.query_unpaged(text, (id_bytes(1), run)).await.unwrap();
        assert_eq!(purging.purge().await.unwrap(), 0, "the run is marked, not removed");
        let answer = writer.finish(Durability::Disk).await.map(|_| ()).map_err(|error| error.kind);
        assert_eq!(answer, Err(Kind::TimedOut));
        until("record and blocks are gone", async || cluster.rows().await == (0, 0)).await;
    }

    blocks_stay_for_the_grace_period(cluster) {
        let (here, there) = (cluster.process().await, cluster.process().await);
        let body = body(3 * BLOCK);
        drop(write(&here, 1, body.clone()).await);
        let mut reader = there.open(id(1)).await.unwrap();
        until("the lease given up is seen", async || free(&there).await == [id(1)]).await;
        here.remove(id(1)).await.unwrap();
        assert_eq!(there.open(id(1)).await.map(|_| ()).map_err(|error| error.kind), Err(Kind::NoSuchBlob));
        assert_eq!(free(&there).await, []);
        cluster.clock.advance(GRACE - Duration::from_secs(1));
        assert_eq!(there.purge().await.unwrap(), 0);
        assert_eq!(reader.read(BLOCK as u64, 1).await.unwrap(), body.slice(BLOCK..=BLOCK));
        cluster.clock.advance(Duration::from_secs(1));
        assert_eq!(there.purge().await.unwrap() + here.purge().await.unwrap(), 1);
        assert_eq!(reader.read(0, 1).await.map_err(|error| error.kind), Err(Kind::Damaged));
        assert_eq!(there.damaged_blocks(), 1);
    }

    a_blob_written_again_loses_its_old_blocks(cluster) {
        let blobs = cluster.process().await;
        drop(write(&blobs, 1, body(10)).await);
        cluster.clock.advance(Duration::from_secs(1));
        drop(write(&blobs, 1, body(20)).await);
        assert_eq!(blobs.open(id(1)).await.unwrap().length(), 20);
        blobs.purge().await.unwrap();
        cluster.clock.advance(GRACE);
        assert_eq!(blobs.purge().await.unwrap(), 1);
        assert_eq!(blobs.open(id(1)).await.unwrap().read(0, 100).await.unwrap(), body(20));
        assert_eq!(cluster.rows().await, (1, 1));
    }

    a_damaged_block_is_found(cluster) {
        let blobs = cluster.process().await;
        drop(write(&blobs, 1, body(10)).await);
        let text = "UPDATE {k}.blob_blocks SET data = ? WHERE id = ? AND run = ? AND grp = 0 AND n = 0";
        let run = cluster.only_run("blob_blocks").await;
        let text = text.replace("{k}", &cluster.keyspace);
        let other = Bytes::from_static(b"0123456789");
        cluster.session.query_unpaged(text, (other, id_bytes(1), run)).await.unwrap();
        let mut reader = blobs.open(id(1)).await.unwrap();
        assert_eq!(reader.read(0, 10).await.map_err(|error| error.kind), Err(Kind::Damaged));
        assert_eq!(blobs.damaged_blocks(), 1);
    }

    listings_go_through_all_shards(cluster) {
        let blobs = cluster.process().await;
        let which = [0, 1, 2, 100, 254, 255];
        for which in which {
            drop(write(&blobs, which, body(1)).await);
        }
        for limit in [1, 2, 5, 6, 7] {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let page = blobs.list(after, limit).await.unwrap();
                assert!(page.len() <= limit);
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                all.extend(page.into_iter().map(|blob| blob.id));
            }
            assert_eq!(all, which.map(id), "pages of {limit}");
        }
    }
}
