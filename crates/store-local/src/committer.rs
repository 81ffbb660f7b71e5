//! The committer: the one thread that writes rows. It turns queued requests into groups (group commit): one journal frame per
//! group, and at most one sync, which the syncer's thread runs.
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
//!      │                    syncer thread
//!      └─ durable writes ── 6 sync    the journal, then reply; the committer goes on with 1 and 2 of the next group
//! ```
//! **Queue.** 64 MiB at most, in 4,096 requests and those in the lanes; a caller waits for room until its deadline. A caller that
//! gives up before its request is staged writes nothing; after that its write may still happen, which is why the error is
//! `TimedOut`.
//!
//! **Group.** Staging is where conditions are judged: a draft sees the committed rows and the earlier drafts of its group, so a
//! compare-and-set needs no lock. A refused draft is undone alone. While one group syncs, the next one is staged, and requests
//! that arrive join it: groups grow with the load, and a single writer waits for its own sync only. A group of durable writes is
//! appended when the sync before it has ended, a group of buffered ones at once.
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

use larder_store::{Batch, CasResult, Change, Clock, Error, HeadWrite, Kind, Partition, Result, Timestamp};

use crate::journal::{Journal, JournalError, WriteGroup};
use crate::lanes::CommitLanes;
use crate::maintenance::Maintenance;
use crate::overlay::{BatchDraft, GroupOverlay};
use crate::queue::{
    CommitReceiver, CommitReply, CommitRequest, CommitterHealth, PanicGuard, PendingReply, WriteCommand,
};
use crate::syncer::GroupSyncer;
use crate::threads::{Builder, JoinHandle};
use crate::tree_id::TreeId;
use crate::trees::Trees;

/// Most requests in a group.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Most bytes that a group writes, give or take one request: a key of many siblings is written whole with each of its writes.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same for a group of heavy requests: light ones wait for it.
const HEAVY_GROUP_BYTES_MAX: usize = 1024 * 1024;
/// After how many groups the size of the data is compared with the cache again.
const COLD_CHECK_GROUPS: u64 = 1024;

/// The committer's state, owned by its thread.
pub(crate) struct Committer {
    pub(crate) trees: Trees,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) syncer: GroupSyncer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<CommitterHealth>,
    pub(crate) queue: CommitReceiver,
    pub(crate) lanes: CommitLanes,
    pub(crate) maintenance: Arc<Maintenance>,
    /// Number of the last group committed.
    pub(crate) last_group: u64,
    pub(crate) cache_bytes: u64,
}

/// A group before it is written: its writes, and the replies that go out once it is.
#[derive(Default)]
struct OpenGroup {
    overlay: GroupOverlay,
    buffered: Vec<PendingReply>,
    durable: Vec<PendingReply>,
}

impl Committer {
    /// Starts the thread. It ends after [`WriteCommand::Close`], or when the queue's other end is dropped.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        Builder::new().name("larder-committer".into()).spawn(move || self.run())
    }

    fn run(mut self) {
        // A panic may leave a group half inserted: the guard poisons the engine, and a restart replays the journal.
        let _guard = PanicGuard::new(self.health.clone(), "the committer panicked");
        // Heavy requests wait already: a blocking receive would hold them until an unrelated write arrives.
        while let Some(requests) = self.queue.receive(!self.lanes.has_heavy()) {
            let closing = requests.iter().any(CommitRequest::is_close);
            self.write_round(requests, closing);
            if closing {
                // Before the health says that writing ended in order: groups after that of the close may be buffered.
                self.syncer.sync_now();
                self.health.close();
                break;
            }
        }
        // Without a close, buffered groups are in the page cache only: the last sync covers them.
        self.syncer.sync_now();
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
            self.write_group(&mut light, GROUP_BYTES_MAX, !closing);
        }
        // A heavy group that fills the memtables would make the next light group wait for a flush.
        if self.lanes.has_heavy() && self.lanes.is_heavy_due(self.maintenance.wait_for_headroom()) {
            let mut heavy = self.lanes.take_heavy();
            self.write_group(&mut heavy, HEAVY_GROUP_BYTES_MAX, false);
            self.lanes.put_back(heavy);
        }
    }

    /// Writes requests from the front, as many as make a group. While the group before is being synced, requests that arrive
    /// join this one if it `grows`.
    fn write_group(&mut self, requests: &mut VecDeque<CommitRequest>, bytes_max: usize, grows: bool) {
        let mut group = OpenGroup::default();
        self.stage_requests(requests, &mut group, bytes_max);
        // A group of durable writes gets a sync of its own. Appended earlier it would wait for the running one all the same, and
        // those that arrive meanwhile would need a third.
        while !group.durable.is_empty() && self.syncer.is_busy() {
            // Race: arrivals without end would keep a heavy request that waits from its turn [invariant 35].
            let grows = grows && group.has_room(bytes_max) && !self.lanes.has_heavy();
            if !grows || !self.take_arrived(requests) {
                self.syncer.wait_until_idle();
                // The callers of the group that is on disk now may be back already.
                let _ = grows && self.take_arrived(requests);
            }
            self.stage_requests(requests, &mut group, bytes_max);
        }
        let OpenGroup { overlay, mut buffered, mut durable } = group;
        let written = self.commit(overlay);
        if let Err(error) = &written {
            buffered.iter_mut().chain(&mut durable).for_each(|reply| reply.refuse(error));
            buffered.append(&mut durable);
        } else {
            self.health.batches.fetch_add((buffered.len() + durable.len()) as u64, Ordering::Relaxed);
        }
        // The syncer first: its sync runs while this thread sends the other replies.
        if !durable.is_empty() {
            self.syncer.hand_over(durable);
        }
        // The frame is in the page cache: a killed process loses nothing, a power cut may. That is what `Buffered` promises.
        // Race: the sync may fail for the durable writes of the group; that is no failure of these [invariant 37].
        buffered.into_iter().for_each(PendingReply::send);
    }

    /// Moves requests that have arrived since to the end of `requests`; returns whether there are any.
    fn take_arrived(&mut self, requests: &mut VecDeque<CommitRequest>) -> bool {
        requests.extend(self.lanes.split(self.queue.receive_arrived()));
        !requests.is_empty()
    }

    /// Stages requests from the front until the group is full.
    fn stage_requests(&mut self, requests: &mut VecDeque<CommitRequest>, group: &mut OpenGroup, bytes_max: usize) {
        while group.has_room(bytes_max) {
            let Some(request) = requests.pop_front() else { break };
            // The caller gave up while it waited: nothing of its request is written yet, so nothing ever is.
            if request.caller.is_gone() {
                continue;
            }
            let outcome = self.stage(request.work, &mut group.overlay);
            // A conflict waits for the sync, too: it may show a row of this group that a power cut could take back.
            let waits = request.durable && outcome.is_ok();
            let replies = if waits { &mut group.durable } else { &mut group.buffered };
            replies.push(request.caller.reply(outcome));
        }
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
                draft.apply(batch)?;
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
        self.lanes.note_sizes(draft.packed_sizes());
        draft.keep();
        Ok(done)
    }

    /// Writes the group to the journal and the memtables, and publishes it. An error leaves nothing that a reader sees.
    fn commit(&mut self, overlay: GroupOverlay) -> Result<()> {
        // Race: a sync may have failed since the group was staged; it must not build on rows that no disk has [invariant 38].
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        let writes = overlay.into_writes();
        if writes.is_empty() {
            // An empty group writes no frame; its durable requests still wait for the sync of earlier groups.
            return Ok(());
        }
        // A group in the journal must go into the memtables, so the wait for their room comes first.
        self.maintenance.wait_for_memtable_room()?;
        // Race: the flusher seals memtables that rest, where in the middle of a group a table would end with half of it; and it
        // publishes the numbers of versions, which must not publish half of this group [invariant 122].
        let inserting = self.maintenance.begin_inserting();
        // The number counts only after the append: a refused group leaves no gap in the chain of groups.
        let group = WriteGroup { number: self.last_group + 1, seqno: self.trees.next_seqno(), writes };
        // The frame comes before the memtables: a flush must not write a row to a table that the journal may still refuse.
        match self.journal.append(&group) {
            Ok(()) => {}
            Err(full @ JournalError::Full) => return Err(Error::caused(Kind::Full, "nothing was written", full)),
            Err(failed) => return Err(self.health.fail("writing the journal failed", &failed)),
        }
        self.trees.insert_cached(&group);
        drop(inserting);
        self.last_group = group.number;
        // Memtables rotate between groups only, so a table ends with a whole group.
        self.maintenance.rotate_full_memtables();
        if self.health.groups.fetch_add(1, Ordering::Relaxed).is_multiple_of(COLD_CHECK_GROUPS) {
            let stored = self.trees.tree(TreeId::Packed).disk_bytes();
            self.health.is_cold.store(stored > self.cache_bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl OpenGroup {
    /// Whether one more request may join: one group is one frame in memory, and all its writers wait for it together.
    fn has_room(&self, bytes_max: usize) -> bool {
        self.buffered.len() + self.durable.len() < GROUP_REQUESTS_MAX && self.overlay.bytes() < bytes_max
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
    let beside = head.beside;
    changes.push(Change::Put(head.row));
    let mut batch = Batch::single(partition, changes);
    if let Some((partition, change)) = derived {
        batch.add(partition, vec![change]);
    }
    batch.partitions.extend(beside);
    draft.apply(batch)?;
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
