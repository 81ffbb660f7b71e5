//! The one thread that writes: it takes what is queued, commits it as one group, syncs once, answers.
//!
//! ```text
//! queue → lanes → group → drafts on an overlay → journal → memtables → answer buffered writes → sync → answer durable writes
//! ```
//! While one group is synced the next one gathers in the queue, so the group grows with the load; a lone writer waits for
//! nothing but its own sync. A full disk refuses a group and leaves nothing of it. An append or sync that fails otherwise ends
//! all writing: what is on disk is not known any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use larder_store::{Change, Clock, Error, Head, Kind, Partition, PartitionChanges, Result, Stamp, Swap};
use tokio::sync::{mpsc, oneshot};

use crate::journal::{Group, Journal, JournalError};
use crate::lanes::Lanes;
use crate::maintenance::Maintenance;
use crate::overlay::{Draft, Overlay};
use crate::queue::{Done, Health, PanicGuard, Request, Work};
use crate::spaces::{Space, Spaces};

/// Requests in a group at most.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Bytes that a group brings, and bytes that it writes, at most, give or take one request: a key of many siblings is written
/// whole with each of its writes.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same for a group of what rewrites much: others wait behind it.
const HEAVY_GROUP_BYTES_MAX: usize = 1024 * 1024;
/// How often in a row the committer yields to writers that its last answers set free, before it commits a smaller group than
/// the last: some tenths of a millisecond, once, when there are fewer writers than before.
const GATHER_YIELDS_MAX: usize = 200;
/// After how many groups the size of the data is compared with the cache again.
const COLD_CHECK_GROUPS: u64 = 1024;

/// What the committer works with.
pub(crate) struct Committer {
    pub(crate) spaces: Spaces,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) queue: mpsc::Receiver<Request>,
    pub(crate) lanes: Lanes,
    pub(crate) maintenance: Arc<Maintenance>,
    /// Number of the last group committed.
    pub(crate) last: u64,
    /// Number of the last group that is on disk.
    pub(crate) synced: u64,
    pub(crate) cache_bytes: u64,
}

/// Requests of a group with their outcomes, to be answered once it is written.
#[derive(Default)]
struct Answers {
    buffered: Vec<(oneshot::Sender<Result<Done>>, Result<Done>)>,
    durable: Vec<(oneshot::Sender<Result<Done>>, Result<Done>)>,
}

impl Committer {
    /// Starts the thread. It ends when it is told to, or when the queue's other end is gone.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("larder-committer".into()).spawn(move || self.run())
    }

    fn run(mut self) {
        let _guard = PanicGuard::new(self.health.clone(), "the committer panicked");
        let mut size = 1;
        while let Some(requests) = self.gather(size) {
            size = requests.len();
            let closing = requests.iter().any(|request| matches!(request.work, Work::Close));
            self.write_turn(requests, closing);
            if closing {
                self.health.close();
                break;
            }
        }
        self.sync();
    }

    /// The next group's requests: all that wait, up to the bounds. As many writers as the last group answered are likely on
    /// their way back, so it yields to them a few times; after a group of one it never does.
    fn gather(&mut self, expected: usize) -> Option<Vec<Request>> {
        let first = if self.lanes.has_waiting() {
            let Ok(first) = self.queue.try_recv() else { return Some(Vec::new()) };
            first
        } else {
            self.queue.blocking_recv()?
        };
        let mut bytes = first.bytes;
        let mut requests = vec![first];
        let mut yields = 0;
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

    /// Writes all that is light of these requests, and then some of what is heavy.
    fn write_turn(&mut self, requests: Vec<Request>, closing: bool) {
        let mut light = self.lanes.sort(requests);
        if closing {
            // Nothing is written behind the end.
            light = self.lanes.take_waiting().into_iter().chain(light).collect();
        }
        while !light.is_empty() {
            self.write_group(&mut light, GROUP_BYTES_MAX, closing);
        }
        // Full memtables would keep the light ones waiting as well.
        if self.lanes.has_waiting() && self.lanes.are_due(self.maintenance.wait_for_half()) {
            let mut heavy = self.lanes.take_waiting();
            self.write_group(&mut heavy, HEAVY_GROUP_BYTES_MAX, closing);
            self.lanes.give_back(heavy);
        }
    }

    /// Writes requests from the front, as many as make a group.
    fn write_group(&mut self, requests: &mut VecDeque<Request>, bytes_max: usize, closing: bool) {
        let mut overlay = Overlay::default();
        let mut answers = Answers::default();
        while overlay.bytes() < bytes_max {
            let Some(request) = requests.pop_front() else { break };
            if request.reply.is_closed() {
                continue;
            }
            let outcome = self.decide(request.work, &mut overlay);
            let waits = request.durable && outcome.is_ok();
            let answered = if waits { &mut answers.durable } else { &mut answers.buffered };
            answered.push((request.reply, outcome));
        }
        if let Err(error) = self.commit(overlay) {
            return answers.refuse(&error);
        }
        self.health.batches.fetch_add(answers.len(), Ordering::Relaxed);
        send(answers.buffered);
        if closing || !answers.durable.is_empty() {
            self.sync();
        }
        if self.health.is_poisoned() {
            answers.durable.iter_mut().for_each(|(_, outcome)| *outcome = Err(self.health.error()));
        }
        send(answers.durable);
    }

    fn decide(&mut self, work: Work, group: &mut Overlay) -> Result<Done> {
        if self.health.is_poisoned() {
            return Err(self.health.error());
        }
        let mut draft = Draft::new(&self.spaces, group, self.clock.now());
        let done = match work {
            Work::Apply(batch) => apply(&mut draft, &batch.partitions)?,
            Work::Swap { partition, expected, head, changes } => swap(&mut draft, partition, expected, *head, changes)?,
            Work::Bulk { key, value } => {
                draft.put_bulk(key, value);
                Done::Written
            }
            Work::Purge(entries) => purge(&mut draft, &entries)?,
            Work::Close => Done::Written,
        };
        let own = draft.finish();
        self.lanes.learn(&own);
        group.absorb(own);
        Ok(done)
    }

    fn commit(&mut self, overlay: Overlay) -> Result<()> {
        let writes = overlay.into_writes();
        if writes.is_empty() {
            return Ok(());
        }
        self.maintenance.wait_for_room()?;
        let group = Group { number: self.last + 1, seqno: self.spaces.next_seqno(), writes };
        match self.journal.append(&group) {
            Ok(()) => {}
            Err(full @ JournalError::Full) => return Err(Error::caused(Kind::Full, "nothing was written", full)),
            Err(failed) => return Err(self.fail("writing the journal failed", &failed)),
        }
        let packed = || group.writes.iter().filter(|(space, ..)| *space == Space::Packed).map(|(_, key, _)| key);
        packed().for_each(|key| self.spaces.cache.close(key));
        self.spaces.insert(&group);
        packed().for_each(|key| self.spaces.cache.open(key));
        self.last = group.number;
        self.maintenance.after_group();
        if self.health.groups.fetch_add(1, Ordering::Relaxed).is_multiple_of(COLD_CHECK_GROUPS) {
            let stored = self.spaces.tree(Space::Packed).disk_bytes();
            self.health.cold.store(stored > self.cache_bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Syncs what was committed since the last sync, if anything was.
    fn sync(&mut self) {
        if self.health.is_poisoned() || self.last == self.synced {
            return;
        }
        match self.journal.sync() {
            Ok(()) => {
                self.synced = self.last;
                self.health.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(failed) => {
                self.fail("syncing the journal failed", &failed);
            }
        }
    }

    fn fail(&self, what: &str, error: &JournalError) -> Error {
        let reason = format!("{what}: {error}");
        tracing::error!("{reason}; no writes are taken until the server is restarted");
        self.health.poison(&reason);
        self.health.error()
    }
}

impl Answers {
    fn len(&self) -> u64 {
        (self.buffered.len() + self.durable.len()) as u64
    }

    /// Answers an error to all that would have been written; who was refused before keeps its own.
    fn refuse(self, error: &Error) {
        for (reply, outcome) in self.buffered.into_iter().chain(self.durable) {
            let _ = reply.send(outcome.and_then(|_| Err(error.clone())));
        }
    }
}

/// Whoever gave up waiting is not there to hear it.
fn send(answers: Vec<(oneshot::Sender<Result<Done>>, Result<Done>)>) {
    for (reply, outcome) in answers {
        let _ = reply.send(outcome);
    }
}

fn apply(draft: &mut Draft<'_>, parts: &[PartitionChanges]) -> Result<Done> {
    for part in parts {
        draft.apply(part)?;
    }
    Ok(Done::Written)
}

fn swap(
    draft: &mut Draft<'_>,
    partition: Partition,
    expected: Option<Stamp>,
    head: Head,
    mut changes: Vec<Change>,
) -> Result<Done> {
    let current = draft.row(&partition, &head.row.name)?;
    if current.as_ref().map(|row| row.stamp) != expected {
        return Ok(Done::Swapped(Swap::Conflict(current)));
    }
    let shadow = head.shadow_change();
    changes.push(Change::Put(head.row));
    draft.change(&partition, &changes, None)?;
    if let Some((partition, change)) = shadow {
        draft.change(&partition, &[change], None)?;
    }
    Ok(Done::Swapped(Swap::Applied))
}

fn purge(draft: &mut Draft<'_>, entries: &[(Space, bytes::Bytes)]) -> Result<Done> {
    let mut purged = 0;
    for (space, key) in entries {
        match draft.purge(*space, key) {
            Ok(count) => purged += count,
            // It could not be told what it holds, so it stays; the others go.
            Err(error) if error.kind == Kind::Damaged => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Done::Purged(purged))
}
