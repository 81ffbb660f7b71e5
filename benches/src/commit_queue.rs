//! A bare group commit over bare fjall: the least work of a durable write.
//!
//! Writers queue a key and a value and wait. One thread takes the queue, commits it as one batch with one sync, and answers.
//! fjall is `lsm-tree`, the trees that Larder's engine uses too, with its authors' own journal, flushes and compaction: the same
//! work on the same trees, without contexts, listings and rules.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tokio::sync::{mpsc, oneshot};

use crate::limits::GROUP_WRITES_MAX;

/// The approximate bytes that a stored object has besides its value: bare writes are longer by them.
pub(crate) const OBJECT_HEAD_BYTES: usize = 100;

/// The queue of a committer; the committer ends when all its clones are dropped.
#[derive(Clone)]
pub(crate) struct BareCommitQueue(mpsc::Sender<QueuedWrite>);

/// The thread of a committer.
pub(crate) struct BareCommitter(JoinHandle<Result<()>>);

/// A write in the queue, whose writer waits.
struct QueuedWrite {
    key: Vec<u8>,
    value: Vec<u8>,
    answer: oneshot::Sender<()>,
}

impl BareCommitQueue {
    /// Opens the database in `data`, which is made when missing, and starts its committer.
    ///
    /// # Errors
    ///
    /// When the database cannot be opened.
    pub(crate) fn start(data: &Path) -> Result<(Self, BareCommitter)> {
        let database = Database::builder(data).open()?;
        let table = database.keyspace("bare", KeyspaceCreateOptions::default)?;
        let (queue, queued) = mpsc::channel(GROUP_WRITES_MAX);
        let thread = std::thread::spawn(move || commit_groups(&database, &table, queued));
        Ok((Self(queue), BareCommitter(thread)))
    }

    /// Stores a pair; returns after the sync.
    ///
    /// # Errors
    ///
    /// When the committer has failed.
    pub(crate) async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.0.send(QueuedWrite { key, value, answer }).await.ok().context("the committer is gone")?;
        answered.await.context("the committer is gone")
    }
}

impl BareCommitter {
    /// Waits for the committer's end, once no queue is left.
    ///
    /// # Errors
    ///
    /// The error of the database.
    pub(crate) fn join(self) -> Result<()> {
        match self.0.join() {
            Ok(result) => result,
            Err(_) => bail!("the committer panicked"),
        }
    }
}

/// A value of these parts, longer by the head of an object.
pub(crate) fn stored_value(value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + OBJECT_HEAD_BYTES);
    stored.extend_from_slice(value);
    // The first bytes again: zeros would compress.
    stored.extend_from_slice(&value[..OBJECT_HEAD_BYTES.min(value.len())]);
    stored
}

/// Commits groups until all writers have ended.
fn commit_groups(database: &Database, table: &Keyspace, mut queued: mpsc::Receiver<QueuedWrite>) -> Result<()> {
    let mut group = Vec::with_capacity(GROUP_WRITES_MAX);
    while queued.blocking_recv_many(&mut group, GROUP_WRITES_MAX) > 0 {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        let mut answers = Vec::with_capacity(group.len());
        for write in group.drain(..) {
            batch.insert(table, write.key, write.value);
            answers.push(write.answer);
        }
        batch.commit()?;
        for answer in answers {
            // A writer that has ended needs no answer.
            let _ = answer.send(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answered_write_is_in_the_database() {
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("bare");
        let (queue, thread) = BareCommitQueue::start(&data).unwrap();
        queue.put(b"k".to_vec(), stored_value(&[7; 200])).await.unwrap();
        drop(queue);
        thread.join().unwrap();
        let database = Database::builder(&data).open().unwrap();
        let table = database.keyspace("bare", KeyspaceCreateOptions::default).unwrap();
        assert_eq!(table.get("k").unwrap().unwrap().len(), 300);
    }
}
