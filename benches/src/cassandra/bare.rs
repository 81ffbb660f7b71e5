//! The bare driver: only the reads and writes that a gateway makes for each operation. Tables and statements equal the gateway's
//! word for word: a node compiles frequent statements, so another statement has another speed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, batch::Batch};
use tokio::task::JoinSet;

use crate::cells::{Cell, CellResult, KvOperation, KvSubject, measure};
use crate::keys::{BenchRandom, ValuePool, key};
use crate::limits::CELL_OPERATIONS_MAX;
use crate::load;
use crate::worker::{MeasureWindow, RepeatedOperation, UnexpectedAnswer};

/// The tables, shaped as the gateway's: the rows of an object, and its entry in a listing.
const TABLES: [&str; 2] = ["objects", LISTING];
const LISTING: &str = "keys";

/// The most rows of one read of a key, as in the gateway.
const PAGE_ROWS: i32 = 1000;

/// The first possible row name: the empty one.
const FIRST: &[u8] = &[];

/// The time to live of a row that does not expire.
const FOR_EVER: i32 = 0;

/// The partitions of a listing, as in the gateway.
const SHARDS: u8 = 4;

/// The tasks of a load.
const LOADERS: u64 = 64;

/// The bytes that the gateway adds to a value.
const HEAD_BYTES: usize = 100;

/// The reads of a median.
const READS: usize = 51;

/// A session and its prepared statements.
pub(super) struct BareDriver {
    session: Session,
    read: PreparedStatement,
    object: PreparedStatement,
    entry: PreparedStatement,
    remove: PreparedStatement,
}

/// A task that repeats one operation.
struct BareTask {
    bare: Arc<BareDriver>,
    operation: KvOperation,
    values: Arc<ValuePool>,
    value_bytes: usize,
    read_keys: (&'static str, u64),
    new_key: u64,
    step: u64,
    random: BenchRandom,
}

impl BareDriver {
    /// Connects and makes its own keyspace.
    ///
    /// # Errors
    ///
    /// When no node answers, or a node refuses.
    pub(super) async fn connect(nodes: &str, keyspace: &str) -> Result<Self> {
        let nodes: Vec<&str> = nodes.split(',').collect();
        let session = SessionBuilder::new().known_nodes(&nodes).build().await.context("connecting to the cluster")?;
        let copies = session.get_cluster_state().get_nodes_info().len().min(3);
        let replication = format!("{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}");
        session.query_unpaged(format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"), ()).await?;
        for table in TABLES {
            let columns = "(p blob, r blob, v blob, PRIMARY KEY (p, r))";
            let derived = " WITH gc_grace_seconds = 86400 AND compaction = {'class': 'LeveledCompactionStrategy'}";
            let options = if table == LISTING { derived } else { "" };
            session.query_unpaged(format!("CREATE TABLE {keyspace}.{table} {columns}{options}"), ()).await?;
        }
        let prepare = async |text: String| -> Result<PreparedStatement> {
            let mut prepared = session.prepare(text).await?;
            prepared.set_consistency(Consistency::Quorum);
            prepared.set_is_idempotent(true);
            // As the gateway: a node need not describe the columns in each answer.
            prepared.set_use_cached_result_metadata(true);
            Ok(prepared)
        };
        let update =
            |table| format!("UPDATE {keyspace}.{table} USING TIMESTAMP ? AND TTL ? SET v = ? WHERE p = ? AND r = ?");
        let rows = "p = ? AND r >= ? ORDER BY r ASC LIMIT ?";
        Ok(Self {
            read: prepare(format!("SELECT r, v, WRITETIME(v) FROM {keyspace}.objects WHERE {rows}")).await?,
            object: prepare(update("objects")).await?,
            entry: prepare(update(LISTING)).await?,
            remove: prepare(format!("DELETE FROM {keyspace}.objects USING TIMESTAMP ? WHERE p = ? AND r = ?")).await?,
            session,
        })
    }

    /// Drops the keyspaces of this run, which have this prefix.
    ///
    /// # Errors
    ///
    /// The error of the cluster.
    pub(super) async fn drop_keyspaces(&self, prefix: &str) -> Result<()> {
        self.session.refresh_metadata().await?;
        let state = self.session.get_cluster_state();
        for (name, _) in state.keyspaces_iter().filter(|(name, _)| name.starts_with(prefix)) {
            self.session.query_unpaged(format!("DROP KEYSPACE {name}"), ()).await?;
        }
        Ok(())
    }

    /// Writes the keys that reads choose from.
    ///
    /// # Errors
    ///
    /// The error of the cluster.
    pub(super) async fn fill(self: &Arc<Self>, values: &Arc<ValuePool>, count: u64) -> Result<()> {
        let mut tasks = JoinSet::new();
        for first in 0..LOADERS.min(count) {
            let (bare, values) = (self.clone(), values.clone());
            tasks.spawn(async move {
                let mut random = BenchRandom::new(first);
                for number in (first..count).step_by(LOADERS as usize) {
                    let value = values.cut(&mut random, crate::turns::BARE_VALUE_BYTES + HEAD_BYTES);
                    bare.put(&key(load::READ, number), value).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Runs one cell for `length` after the warm-up.
    ///
    /// # Errors
    ///
    /// When the kernel does not report the usage of this process.
    pub(super) async fn run(
        self: &Arc<Self>,
        subject: &KvSubject,
        operation: KvOperation,
        tasks: usize,
        length: Duration,
    ) -> Result<CellResult> {
        let first_new_key = subject.new_keys.fetch_add(CELL_OPERATIONS_MAX, Ordering::Relaxed);
        let step = tasks as u64;
        let value_bytes = subject.place.value_bytes;
        let task = |index| BareTask {
            bare: self.clone(),
            operation,
            values: subject.values.clone(),
            value_bytes,
            read_keys: subject.read_keys,
            new_key: first_new_key + index,
            step,
            random: BenchRandom::new(first_new_key + index),
        };
        let cell = Cell { operation: operation.label(), value_bytes, connections: tasks, moved_bytes: value_bytes };
        let window = MeasureWindow::after_warming_up(Instant::now(), length);
        measure(None, cell, (0..step).map(task).collect(), CELL_OPERATIONS_MAX / step, window).await
    }

    /// Reads the rows of a key; returns their number.
    async fn get(&self, name: &[u8]) -> Result<usize> {
        let rows = self.session.execute_unpaged(&self.read, (name, FIRST, PAGE_ROWS)).await?.into_rows_result()?;
        Ok(rows.rows_num())
    }

    async fn put(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let stamp = now();
        let object = self.session.execute_unpaged(&self.object, (stamp, FOR_EVER, value, name, name));
        let shard = [name[0], name[name.len() - 1] % SHARDS];
        let entry = self.session.execute_unpaged(&self.entry, (stamp, FOR_EVER, FIRST, &shard[..], name));
        let (object, entry) = tokio::join!(object, entry);
        object?;
        entry?;
        Ok(())
    }

    /// Overwrites a key `count` times, each time with a new row that replaces the last one; returns the median time of a read.
    ///
    /// # Errors
    ///
    /// The error of the cluster.
    pub(super) async fn fresh_rows(&self, values: &ValuePool, count: u64) -> Result<Duration> {
        let (name, mut random) = (key("rows", 0), BenchRandom::new(1));
        for turn in 0..count as i64 {
            let mut batch = Batch::new(scylla::statement::batch::BatchType::Unlogged);
            batch.append_statement(self.object.clone());
            batch.append_statement(self.remove.clone());
            batch.set_consistency(Consistency::Quorum);
            let value = values.cut(&mut random, crate::turns::BARE_VALUE_BYTES);
            let (row, before) = (turn.to_be_bytes(), (turn - 1).to_be_bytes());
            let rows = ((turn + 1, FOR_EVER, value, &name[..], &row[..]), (turn, &name[..], &before[..]));
            self.session.batch(&batch, rows).await?;
        }
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let started = Instant::now();
            self.get(&name).await?;
            times.push(started.elapsed());
        }
        times.sort_unstable();
        Ok(times[READS / 2])
    }

    /// The live rows and tombstones of one read of a key in a gateway's keyspace, from the cluster's trace.
    ///
    /// # Errors
    ///
    /// The error of the cluster.
    pub(super) async fn tombstones_of(&self, keyspace: &str, name: &[u8]) -> Result<String> {
        let partitions = format!("SELECT DISTINCT p FROM {keyspace}.objects");
        let found = self.session.query_iter(Statement::new(partitions), ()).await?;
        let mut found = found.rows_stream::<(Vec<u8>,)>()?;
        let mut partition = None;
        while let Some(row) = futures_util::TryStreamExt::try_next(&mut found).await? {
            if row.0.ends_with(name) {
                partition = Some(row.0);
            }
        }
        let partition = partition.context("the overwritten key has no rows")?;
        let mut read = self.session.prepare(format!("SELECT r, v FROM {keyspace}.objects WHERE p = ?")).await?;
        read.set_tracing(true);
        let answer = self.session.execute_unpaged(&read, (partition,)).await?;
        let trace = answer.tracing_id().context("the cluster returned no trace")?;
        let events = self.session.get_tracing_info(&trace).await?.events;
        let line = events.into_iter().filter_map(|event| event.activity).find(|text| text.contains("tombstone"));
        Ok(line.unwrap_or_else(|| "the cluster's trace has no line about tombstones".to_owned()))
    }
}

impl RepeatedOperation for BareTask {
    async fn once(&mut self) -> Result<UnexpectedAnswer> {
        let (kind, count) = self.read_keys;
        let known = key(kind, self.random.below(count));
        match self.operation {
            KvOperation::Get | KvOperation::PipelinedGet | KvOperation::MissingGet => self.read(&known).await,
            KvOperation::ReadModifyWrite | KvOperation::Mix => {
                let unexpected = self.read(&known).await?;
                self.write(&known).await?;
                Ok(unexpected)
            }
            KvOperation::PutExisting => {
                self.bare.get(&known).await?;
                self.write(&known).await?;
                Ok(None)
            }
            KvOperation::PutDurable | KvOperation::PutBuffered => {
                let name = key("made", self.new_key);
                self.new_key += self.step;
                let rows = self.bare.get(&name).await?;
                self.write(&name).await?;
                Ok((rows != 0).then(|| format!("{rows} rows of a new key")))
            }
        }
    }
}

impl BareTask {
    async fn read(&self, name: &[u8]) -> Result<UnexpectedAnswer> {
        let rows = self.bare.get(name).await?;
        Ok((rows != 1).then(|| format!("{rows} rows of a key")))
    }

    async fn write(&mut self, name: &[u8]) -> Result<()> {
        let value = self.values.cut(&mut self.random, self.value_bytes + HEAD_BYTES);
        self.bare.put(name, value).await
    }
}

/// Microseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as i64)
}
