//! The committer: the one thread that writes rows. It turns queued requests into groups (group commit): one journal frame per
//! group, and at most one sync.
//!
//! ```text
//!  callers                  committer thread                                            maintenance threads
//!
//!  apply ──────┐            1 gather  waiting requests; heavy keys have a lane
//!  apply_if ───┼── queue ─> 2 stage   each request as a draft on the group's overlay
//!  bulk, purge ┘            3 append  the group as one frame of the active journal
//!      ^                    4 insert  the writes into memtables ──── full memtable ───> 7 flush   memtable to table
//!      │                              and publish the group's sequence number           8 forget  the journal's manifest entry
//!      ├─ buffered writes ─ 5 reply                                                     9 remove  the journal file
//!      └─ durable writes ── 6 sync    the journal, then reply
//! ```
//! **Queue.** 4,096 requests and 64 MiB at most; a caller waits for room until its deadline. A caller that gives up before its
//! request is staged writes nothing; after that its write may still happen, which is why the error is `TimedOut`.
//!
//! **Group.** Staging is where conditions are judged: a draft sees the committed rows and the earlier drafts of its group, so a
//! compare-and-set needs no lock. A refused draft is dropped alone. While one group syncs, the next one gathers: groups grow
//! with the load, and a lone writer waits for its own sync only.
//!
//! **Frame.** A frame holds the whole group under one checksum, the checksum of the frame before it (the chain) and the number
//! of the last synced group. Replay takes a frame whole or not at all.
//!
//! **Publication.** Readers see sequence numbers up to the published one, which moves once the whole group is in the memtables:
//! no reader sees half a group. Publication precedes the sync, so a reader may see a write that a power cut takes back; the
//! writer of a durable request has no reply by then.
//!
//! | crash | disk afterwards | next start |
//! |---|---|---|
//! | before 3 | nothing of the group | nothing to do; no reply was sent |
//! | during 3 | a torn frame at the end of the journal | cuts the frame off; no reply was sent |
//! | after 3, process killed | the whole frame, in the page cache | replays the group |
//! | after 3, power cut | any part of the unsynced frames | keeps frames up to the first gap; the rest had no durable reply |
//! | during 6 | as after 3 | as after 3; durable writers have no reply |
//! | after 6 | the synced frames | replays them, whether or not the reply got out |
//! | during 7 | a table that no version names | removes the table; the journal still has its rows |
//! | between 8 and 9, or while the journal rotates | a journal file that the manifest does not name | removes the file |
//!
//! A synced frame that is missing or damaged is no torn write: a later frame, the seal in the manifest or the file `synced`
//! knows of it, and the start is refused.
//!
//! **Poisoning.** A full disk refuses one group and leaves nothing of it. After any other failed append or sync the journal's
//! content is unknown: Linux may drop the dirty pages of a failed `fsync` and report success the next time. So the committer
//! writes nothing more, every write answers `Poisoned`, reads go on, and a restart reads what the disk really holds. A panic of
//! this thread or a maintenance thread poisons as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use larder_store::{Batch, CasResult, Change, Clock, Error, HeadWrite, Kind, Partition, Result, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::journal::{Journal, JournalError, WriteGroup};
use crate::lanes::CommitLanes;
use crate::maintenance::Maintenance;
use crate::overlay::{BatchDraft, GroupOverlay};
use crate::queue::{CommitReply, CommitRequest, CommitterHealth, PanicGuard, WriteCommand};
use crate::trees::{TreeId, Trees};

/// Requests in a group at most.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Most bytes that a group brings, and most bytes that it writes, give or take one request: a key of many siblings is written
/// whole with each of its writes.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same for a group of heavy requests: light ones wait for it.
const HEAVY_GROUP_BYTES_MAX: usize = 1024 * 1024;
/// How often in a row the committer yields to the writers of its last group before it commits a smaller one: some tenths of a
/// millisecond, once, when there are fewer writers than before.
const GATHER_YIELDS_MAX: usize = 200;
/// After how many groups the size of the data is compared with the cache again.
const COLD_CHECK_GROUPS: u64 = 1024;

/// The committer's state, owned by its thread.
pub(crate) struct Committer {
    pub(crate) trees: Trees,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<CommitterHealth>,
    pub(crate) queue: mpsc::Receiver<CommitRequest>,
    pub(crate) lanes: CommitLanes,
    pub(crate) maintenance: Arc<Maintenance>,
    /// Number of the last group committed.
    pub(crate) last_group: u64,
    /// Number of the last group that is on disk.
    pub(crate) synced_group: u64,
    pub(crate) cache_bytes: u64,
}

/// Requests of a group with their outcomes; the replies go out once the group is written.
#[derive(Default)]
struct GroupReplies {
    buffered: Vec<(oneshot::Sender<Result<CommitReply>>, Result<CommitReply>)>,
    durable: Vec<(oneshot::Sender<Result<CommitReply>>, Result<CommitReply>)>,
}

impl Committer {
    /// Starts the thread. It ends after [`WriteCommand::Close`], or when the queue's other end is dropped.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("larder-committer".into()).spawn(move || self.run())
    }

    fn run(mut self) {
        // A panic may leave a group half inserted: the guard poisons the engine, and a restart replays the journal.
        let _guard = PanicGuard::new(self.health.clone(), "the committer panicked");
        let mut size = 1;
        while let Some(requests) = self.gather_requests(size) {
            size = requests.len();
            let closing = requests.iter().any(|request| matches!(request.work, WriteCommand::Close));
            self.write_round(requests, closing);
            if closing {
                self.health.close();
                break;
            }
        }
        // Without a close, buffered groups are in the page cache only: the last sync covers them.
        self.sync();
    }

    /// The next group's requests: all that wait, up to the bounds. The writers of the last group are likely to come back, so it
    /// yields to them a few times; after a group of one it never does.
    fn gather_requests(&mut self, expected: usize) -> Option<Vec<CommitRequest>> {
        let first = if self.lanes.has_heavy() {
            // Heavy requests wait already: a blocking receive would hold them until an unrelated write arrives.
            let Ok(first) = self.queue.try_recv() else { return Some(Vec::new()) };
            first
        } else {
            self.queue.blocking_recv()?
        };
        let mut bytes = first.bytes;
        let mut requests = vec![first];
        let mut yields = 0;
        // Bound: one group is one frame in memory, and all its writers wait for it together.
        while requests.len() < GROUP_REQUESTS_MAX && bytes < GROUP_BYTES_MAX {
            match self.queue.try_recv() {
                Ok(request) => {
                    bytes += request.bytes;
                    requests.push(request);
                    yields = 0;
                }
                Err(_) if requests.len() < expected && yields < GATHER_YIELDS_MAX => {
                    yields += 1;
                    std::thread::yield_now();
                }
                Err(_) => break,
            }
        }
        Some(requests)
    }

    /// Writes all light requests, then one group of the heavy ones.
    fn write_round(&mut self, requests: Vec<CommitRequest>, closing: bool) {
        let mut light = self.lanes.split(requests);
        if closing {
            // The close is the last write: heavy requests that came before it go out with it.
            light = self.lanes.take_heavy().into_iter().chain(light).collect();
        }
        // Light requests above the bound make further groups of this round: none waits after a heavy group.
        while !light.is_empty() {
            self.write_group(&mut light, GROUP_BYTES_MAX, closing);
        }
        // A heavy group that fills the memtables would make the next light group wait for a flush.
        if self.lanes.has_heavy() && self.lanes.is_heavy_due(self.maintenance.wait_for_headroom()) {
            let mut heavy = self.lanes.take_heavy();
            self.write_group(&mut heavy, HEAVY_GROUP_BYTES_MAX, closing);
            self.lanes.put_back(heavy);
        }
    }

    /// Writes requests from the front, as many as make a group.
    fn write_group(&mut self, requests: &mut VecDeque<CommitRequest>, bytes_max: usize, closing: bool) {
        let mut overlay = GroupOverlay::default();
        let mut replies = GroupReplies::default();
        while overlay.bytes() < bytes_max {
            let Some(request) = requests.pop_front() else { break };
            // The caller gave up while it waited: nothing of its request is written yet, so nothing ever is.
            if request.reply.is_closed() {
                continue;
            }
            let outcome = self.stage(request.work, &mut overlay);
            // A conflict waits for the sync, too: it may show a row of this group that a power cut could take back.
            let waits = request.durable && outcome.is_ok();
            let answered = if waits { &mut replies.durable } else { &mut replies.buffered };
            answered.push((request.reply, outcome));
        }
        if let Err(error) = self.commit(overlay) {
            return replies.refuse_all(&error);
        }
        self.health.batches.fetch_add(replies.len(), Ordering::Relaxed);
        // The frame is in the page cache: a killed process loses nothing, a power cut may. That is what `Buffered` promises.
        // Race: the sync below may fail for the durable writes of the group; that is no failure of these [invariant 37].
        send_replies(replies.buffered);
        if closing || !replies.durable.is_empty() {
            self.sync();
        }
        // A durable reply after a failed sync would promise a write that a power cut can take back.
        if self.health.is_poisoned() {
            replies.durable.iter_mut().for_each(|(_, outcome)| *outcome = Err(self.health.error()));
        }
        send_replies(replies.durable);
    }

    /// Runs one request against the group so far. An error drops its draft and leaves the group as it was.
    fn stage(&mut self, work: WriteCommand, group: &mut GroupOverlay) -> Result<CommitReply> {
        // Requests after a failed append or sync must not build on rows that no disk has [invariant 38].
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        // One time for the whole request: no row expires between its check and its change.
        let mut draft = BatchDraft::new(&self.trees, group, self.clock.now());
        let done = match work {
            WriteCommand::Apply(batch) => {
                draft.apply(&batch)?;
                CommitReply::Written
            }
            WriteCommand::CompareAndSet { partition, expected, head, changes } => {
                compare_and_set(&mut draft, partition, expected, *head, changes)?
            }
            WriteCommand::Bulk { key, value } => {
                draft.put_bulk(key, value);
                CommitReply::Written
            }
            WriteCommand::Purge(entries) => purge(&mut draft, &entries)?,
            WriteCommand::Close => CommitReply::Written,
        };
        let own = draft.finish();
        self.lanes.note_sizes(&own);
        group.absorb(own);
        Ok(done)
    }

    /// Writes the group to the journal and the memtables, and publishes it. An error leaves nothing that a reader sees.
    fn commit(&mut self, overlay: GroupOverlay) -> Result<()> {
        let writes = overlay.into_writes();
        if writes.is_empty() {
            // An empty group writes no frame; its durable requests still wait for the sync of earlier groups.
            return Ok(());
        }
        // A group in the journal must go into the memtables, so the wait for their room comes first.
        self.maintenance.wait_for_memtable_room()?;
        // The number counts only after the append: a refused group leaves no gap in the chain of groups.
        let group = WriteGroup { number: self.last_group + 1, seqno: self.trees.next_seqno(), writes };
        // The frame comes before the memtables: a flush must not write a row to a table that the journal may still refuse.
        match self.journal.append(&group) {
            Ok(()) => {}
            Err(full @ JournalError::Full) => return Err(Error::caused(Kind::Full, "nothing was written", full)),
            Err(failed) => return Err(self.poison("writing the journal failed", &failed)),
        }
        let packed = || group.writes.iter().filter(|(tree_id, ..)| *tree_id == TreeId::Packed).map(|(_, key, _)| key);
        // The cached entries go before publication: a reader that saw the group must not find an older entry in the cache.
        packed().for_each(|key| self.trees.cache.begin_write(key));
        self.trees.insert(&group);
        packed().for_each(|key| self.trees.cache.end_write(key));
        self.last_group = group.number;
        // Memtables rotate between groups only, so a table ends with a whole group.
        self.maintenance.rotate_full_memtables();
        if self.health.groups.fetch_add(1, Ordering::Relaxed).is_multiple_of(COLD_CHECK_GROUPS) {
            let stored = self.trees.tree(TreeId::Packed).disk_bytes();
            self.health.is_cold.store(stored > self.cache_bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs the groups committed since the last sync, if there are any.
    fn sync(&mut self) {
        // Linux may report success for the next sync after a failed one, so a poisoned journal is never synced again.
        if self.health.is_poisoned() || self.last_group == self.synced_group {
            return;
        }
        match self.journal.sync() {
            Ok(()) => {
                self.synced_group = self.last_group;
                self.health.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(failed) => {
                self.poison("syncing the journal failed", &failed);
            }
        }
    }

    /// Ends writing until a restart; the error for the writers of this group.
    fn poison(&self, what: &str, error: &JournalError) -> Error {
        let reason = format!("{what}: {error}");
        tracing::error!("{reason}; the store refuses writes until the server is restarted");
        // Race: after a failed sync memory holds writes that no disk has; later writes would build on them [invariant 38].
        self.health.poison(&reason);
        self.health.error()
    }
}

impl GroupReplies {
    fn len(&self) -> u64 {
        (self.buffered.len() + self.durable.len()) as u64
    }

    /// Sends the error to every request that would have been written; a request refused before keeps its own.
    fn refuse_all(self, error: &Error) {
        for (reply, outcome) in self.buffered.into_iter().chain(self.durable) {
            let _ = reply.send(outcome.and_then(|_| Err(error.clone())));
        }
    }
}

/// Sends the outcomes. A caller that gave up waiting has dropped its receiver.
fn send_replies(replies: Vec<(oneshot::Sender<Result<CommitReply>>, Result<CommitReply>)>) {
    for (reply, outcome) in replies {
        let _ = reply.send(outcome);
    }
}

fn compare_and_set(
    draft: &mut BatchDraft<'_>,
    partition: Partition,
    expected: Option<Timestamp>,
    head: HeadWrite,
    mut changes: Vec<Change>,
) -> Result<CommitReply> {
    // Race: two compare-and-sets of one head may be in one group; the draft shows the first to the second [invariant 36].
    let current = draft.row(&partition, &head.row.name)?;
    if current.as_ref().map(|row| row.stamp) != expected {
        return Ok(CommitReply::CompareAndSet(CasResult::Conflict(current)));
    }
    // Head and derived row are one batch: a crash leaves both or neither, so this engine needs no intents.
    let derived = head.derived_change();
    changes.push(Change::Put(head.row));
    let mut batch = Batch::of(partition, changes);
    if let Some((partition, change)) = derived {
        batch.add(partition, vec![change]);
    }
    draft.apply(&batch)?;
    Ok(CommitReply::CompareAndSet(CasResult::Applied))
}

fn purge(draft: &mut BatchDraft<'_>, entries: &[(TreeId, bytes::Bytes)]) -> Result<CommitReply> {
    let mut purged = 0;
    for (tree_id, key) in entries {
        match draft.purge(*tree_id, key) {
            Ok(count) => purged += count,
            // An entry that does not decode stays; the others go.
            Err(error) if error.kind == Kind::Damaged => {}
            Err(error) => return Err(error),
        }
    }
    Ok(CommitReply::Purged(purged))
}
