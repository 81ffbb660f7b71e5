//! Drains the replication queue of every node of a source, beside the passes over its keys.
//!
//! ```text
//! node ──> reader: up to eight fetches at a time ──> queue_key: one element to its key
//!            ├─ length and counters now and then ──> QueueWatch: were elements lost?
//!            └─ a loss opens a gap ──> the next pass over all keys that begins afterwards closes it
//! ```
//! While every queue is drained and no gap is open, passes only check, once an hour.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::Timestamp;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::move_run::{MoveRun, MoveStopped};
use crate::queue_source::{QueueFetch, QueueStanding, TakenElement};
use crate::rules::{QueueLoss, QueueWatch, ReplicatedChange};
use crate::source::Source;

/// Most elements of a node under way at a time.
const ELEMENTS_AT_ONCE: usize = 8;
/// Pauses while a queue is empty: the first, and the longest.
const EMPTY_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// Longest pause while a node does not answer.
const AWAY_PAUSE_MAX: Duration = Duration::from_secs(4);
/// Pause while a node has no such queue.
const LACKING_PAUSE: Duration = Duration::from_secs(10);
/// How often a node is asked for the length of its queue, and for its counters.
const LENGTH_INTERVAL: Duration = Duration::from_secs(2);
const TOTALS_INTERVAL: Duration = Duration::from_secs(10);
/// How often all keys are checked although the queues bring every change.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Longest time between two looks at whether a pass is due.
const PASS_LOOK: Duration = Duration::from_secs(10);
/// How notes about the way of following begin.
const NOTE_PREFIX: &str = "the source is followed by";

/// Reads the queue of one node.
struct QueueReader {
    run: Arc<MoveRun<Source>>,
    types: Arc<Vec<Bytes>>,
    host: String,
    node: usize,
    watch: QueueWatch,
    under_way: JoinSet<EndedFetch>,
    /// Fetches at a time: one while the queue is empty.
    width: usize,
    pause: Duration,
    length_due: Instant,
    totals_due: Instant,
}

/// A fetch that ended.
struct EndedFetch {
    /// The mark of the watch when it was sent.
    mark: u64,
    /// Whether no other one was under way.
    is_alone: bool,
    sent: Timestamp,
    /// The gaps of this run when it was sent.
    gaps: u64,
    brought: Brought,
}

/// What a fetch brought.
enum Brought {
    Nothing,
    Element,
    Unreadable(String),
    Refused(String),
    Unanswered(String),
}

impl MoveRun<Source> {
    /// Drains the queues from the time on that their elements may be imported.
    pub(crate) async fn follow_queues(self: &Arc<Self>) {
        let Some(types) = self.source.queue.await_scope().await else { return };
        let mut readers = JoinSet::new();
        for (node, host) in self.source.calls().hosts().iter().enumerate() {
            readers.spawn(QueueReader::new(Arc::clone(self), Arc::clone(&types), host.clone(), node).read());
        }
        // A reader has no end: one that fails leaves its node to passes.
        while let Some(Err(error)) = readers.join_next().await {
            tracing::error!(%error, "reader of a replication queue failed: passes over all keys go on");
            (0..self.source.calls().hosts().len()).for_each(|node| self.stand(node, QueueStanding::Away));
        }
    }

    /// Asks every node for the queue, tells how the source is followed, and begins to drain queues once there are some and
    /// `is_ready`. `is_first`: nothing was copied yet, so nothing is missing.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn look_for_queues(
        &self,
        types: &[Bytes],
        is_ready: bool,
        is_first: bool,
    ) -> Result<(), MoveStopped> {
        let queue = &self.source.queue;
        let (hosts, mut lacking) = (self.source.calls().hosts(), Vec::new());
        for host in hosts {
            // A node that does not answer now is no node without a queue.
            if let Ok(None) = self.source.queue_length(host).await {
                lacking.push(host.as_str());
            }
        }
        let unnamed = self.source.members().await.ok().flatten().unwrap_or_default().saturating_sub(hosts.len());
        queue.state.lock().unnamed = unnamed;
        self.tell_instead(NOTE_PREFIX, follow_note(&queue.name, hosts.len(), &lacking, unnamed));
        if is_ready && lacking.len() < hosts.len() && queue.scope.borrow().is_none() {
            self.begin_queues(types, is_first).await?;
        }
        Ok(())
    }

    async fn begin_queues(&self, types: &[Bytes], is_first: bool) -> Result<(), MoveStopped> {
        let before = self.note(|progress| progress.queue.began);
        let now = self.now();
        // Race: a run before this one, or an earlier move, took elements that it did not bring to their keys [invariant 194].
        if before > Timestamp::ZERO {
            self.open_gap("the job began anew".to_owned());
        } else if !is_first || !self.store.buckets().await?.is_empty() {
            self.open_gap("keys were copied before the queue was followed".to_owned());
        }
        self.note(|progress| {
            progress.queue.followed = false;
            progress.queue.began = if before > Timestamp::ZERO { before } else { now };
        });
        // Before the first element is taken.
        self.save().await?;
        self.source.queue.scope.send_replace(Some(Arc::new(types.to_vec())));
        Ok(())
    }

    /// Notes that elements were lost.
    fn open_gap(&self, why: String) {
        self.source.queue.state.lock().open_gap();
        tracing::info!(why, "elements of a replication queue may be lost: a pass over all keys follows");
        self.note(|progress| {
            progress.queue.gaps += 1;
            progress.queue.gap = why;
        });
        self.source.queue.changed.notify_waiters();
    }

    fn stand(&self, node: usize, standing: QueueStanding) {
        let (is_changed, followed) = {
            let mut state = self.source.queue.state.lock();
            (state.stand(node, standing), state.is_followed())
        };
        self.note(|progress| progress.queue.followed = followed);
        if is_changed {
            self.source.queue.changed.notify_waiters();
        }
    }

    /// Waits for the next pass: while the queues bring every change, it only checks.
    pub(crate) async fn await_due_pass(&self) {
        loop {
            let changed = self.source.queue.changed.notified();
            if self.is_pass_due() {
                return;
            }
            self.note(|progress| progress.error.clear());
            let _ = timeout(PASS_LOOK, changed).await;
        }
    }

    fn is_pass_due(&self) -> bool {
        let followed = self.source.queue.state.lock().is_followed();
        let (open, last) = self.note(|progress| (progress.queue.open_gaps(), progress.complete_until));
        !followed || open > 0 || self.now().since(last) >= CHECK_INTERVAL.as_micros() as u64
    }

    /// The name under which unreadable elements of a node are set aside.
    fn element_aside(&self, host: &str) -> String {
        format!("an element of queue {} of {host}", self.source.queue.name)
    }

    /// The last gap so far, for the pass that begins now.
    pub(crate) fn gaps(&self) -> u64 {
        self.note(|progress| progress.queue.gaps)
    }

    /// Gaps that no pass has closed.
    pub(crate) fn open_gaps(&self) -> u64 {
        self.note(|progress| progress.queue.open_gaps())
    }

    /// Elements so far that changed something here.
    pub(crate) fn queue_changes(&self) -> u64 {
        self.note(|progress| progress.queue.changes)
    }

    /// Closes the gaps up to this one: a pass that began after it has read every key.
    pub(crate) fn close_gaps(&self, until: u64) {
        let open = self.note(|progress| {
            progress.queue.gaps_closed = progress.queue.gaps_closed.max(until);
            progress.queue.open_gaps()
        });
        if open == 0 {
            self.source.calls().hosts().iter().for_each(|host| self.forget_aside(|| self.element_aside(host)));
        }
    }

    /// Takes one element, and brings it to its key.
    async fn take_one(self: Arc<Self>, types: Arc<Vec<Bytes>>, host: String, node: usize) -> Brought {
        let taken = match self.source.take_element(&host).await {
            Ok(QueueFetch::Element(taken)) => taken,
            Ok(QueueFetch::Empty) => return Brought::Nothing,
            Ok(QueueFetch::Unreadable(why)) => return Brought::Unreadable(why),
            Ok(QueueFetch::Refused(why)) => return Brought::Refused(why),
            Err(error) => return Brought::Unanswered(error.to_string()),
        };
        let at = written_at(&taken, self.now());
        let number = self.source.queue.state.lock().begin(node, at);
        let is_moving = |name: &Bytes| types.contains(if name.is_empty() { &DEFAULT_TYPE } else { name });
        let changed = if is_moving(&taken.key.bucket_type) { self.take_in(*taken, node).await } else { false };
        let until = {
            let mut state = self.source.queue.state.lock();
            state.end(node, number);
            state.until()
        };
        self.note(|progress| {
            progress.queue.elements += 1;
            progress.queue.changes += u64::from(changed);
            progress.queue.until = until;
        });
        Brought::Element
    }
}

/// The type of buckets without one.
static DEFAULT_TYPE: Bytes = Bytes::from_static(b"default");

impl QueueReader {
    fn new(run: Arc<MoveRun<Source>>, types: Arc<Vec<Bytes>>, host: String, node: usize) -> Self {
        let now = Instant::now();
        Self {
            run,
            types,
            host,
            node,
            watch: QueueWatch::default(),
            under_way: JoinSet::new(),
            width: 1,
            pause: EMPTY_PAUSES[0],
            length_due: now,
            totals_due: now,
        }
    }

    /// Has no end.
    async fn read(mut self) -> Infallible {
        loop {
            self.ask().await;
            if self.run.source.queue.state.lock().standing(self.node) == QueueStanding::Lacking {
                sleep(LACKING_PAUSE).await;
                self.length_due = Instant::now();
                continue;
            }
            while self.under_way.len() < self.width {
                self.send();
            }
            if let Some(ended) = self.under_way.join_next().await {
                self.end(ended).await;
            }
        }
    }

    fn send(&mut self) {
        let (run, types) = (Arc::clone(&self.run), Arc::clone(&self.types));
        let (host, node, mark) = (self.host.clone(), self.node, self.watch.mark());
        let (is_alone, sent) = (self.width == 1, self.run.now());
        let gaps = self.run.source.queue.state.lock().gaps();
        self.under_way.spawn(async move {
            let brought = run.take_one(types, host, node).await;
            EndedFetch { mark, is_alone, sent, gaps, brought }
        });
    }

    async fn end(&mut self, ended: Result<EndedFetch, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return self.lose(QueueLoss::Unanswered(error.to_string())),
        };
        match ended.brought {
            Brought::Element => {
                self.answered();
                self.watch.took();
                self.width = (self.width * 2).min(ELEMENTS_AT_ONCE);
                self.pause = EMPTY_PAUSES[0];
            }
            Brought::Nothing => {
                self.answered();
                self.emptied(&ended).await;
            }
            Brought::Unreadable(why) => {
                self.answered();
                self.watch.took();
                self.run.set_aside(self.run.element_aside(&self.host), why.clone());
                self.lose(QueueLoss::Unreadable(why));
            }
            Brought::Refused(why) => {
                self.answered();
                self.watch.took();
                self.lose(QueueLoss::Unanswered(why));
                self.rest(EMPTY_PAUSES[1]).await;
            }
            Brought::Unanswered(why) => self.failed(why).await,
        }
    }

    async fn emptied(&mut self, ended: &EndedFetch) {
        self.width = 1;
        if !self.under_way.is_empty() {
            return;
        }
        if ended.is_alone {
            self.watch.emptied(ended.mark).into_iter().for_each(|loss| self.lose(loss));
        }
        let until = {
            let mut state = self.run.source.queue.state.lock();
            state.emptied(self.node, ended.sent, ended.gaps);
            state.until()
        };
        self.run.note(|progress| progress.queue.until = until);
        self.rest(EMPTY_PAUSES[1]).await;
    }

    /// A pause; each further one is twice as long.
    async fn rest(&mut self, longest: Duration) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(longest);
    }

    /// Asks for the length and the counters when they are due.
    async fn ask(&mut self) {
        let now = Instant::now();
        if now < self.length_due || self.watch.is_away() && !self.under_way.is_empty() {
            return;
        }
        self.length_due = now + LENGTH_INTERVAL;
        self.watch.ask_length();
        match self.run.source.queue_length(&self.host).await {
            Ok(Some(length)) => {
                self.answered();
                self.watch.counted(length);
            }
            Ok(None) => self.lack(),
            Err(error) => return self.failed(error.to_string()).await,
        }
        if now >= self.totals_due {
            self.ask_totals(now).await;
        }
    }

    /// Asks for the counters. A node without them does not tell of a full queue before the next check of all keys.
    async fn ask_totals(&mut self, now: Instant) {
        let Ok(totals) = self.run.source.queue_totals(&self.host).await else { return };
        self.totals_due = now + TOTALS_INTERVAL;
        if let Some(loss) = totals.and_then(|totals| self.watch.totalled(totals)) {
            self.lose(loss);
        }
    }

    fn answered(&mut self) {
        self.watch.answered().into_iter().for_each(|loss| self.lose(loss));
        self.run.stand(self.node, QueueStanding::Followed);
    }

    /// The node has no such queue, or no longer.
    fn lack(&mut self) {
        let before = self.run.source.queue.state.lock().standing(self.node);
        if before != QueueStanding::Lacking {
            self.run.stand(self.node, QueueStanding::Lacking);
            self.lose(QueueLoss::Unanswered(format!("it has no queue {}", self.run.source.queue.name)));
        }
    }

    async fn failed(&mut self, why: String) {
        self.width = 1;
        self.run.stand(self.node, QueueStanding::Away);
        self.watch.failed(why).into_iter().for_each(|loss| self.lose(loss));
        self.rest(AWAY_PAUSE_MAX).await;
    }

    fn lose(&self, loss: QueueLoss) {
        self.run.open_gap(format!("{}: {loss}", self.host));
    }
}

/// The time of an element's write. A clock from the future is that of now.
fn written_at(taken: &TakenElement, now: Timestamp) -> Timestamp {
    let written = match taken.element.as_ref().map(|element| &element.change) {
        Some(ReplicatedChange::Object(object)) => object.siblings.iter().map(|sibling| sibling.modified).max(),
        Some(ReplicatedChange::Reap { time, .. }) => Some(*time),
        None => None,
    };
    written.map_or(now, |written| written.min(now))
}

/// How the source is followed, and what its operator may do for it.
fn follow_note(queue: &str, nodes: usize, lacking: &[&str], unnamed: usize) -> String {
    let passes = "the source is followed by passes over all keys: stop its writers at the end, verify, then finish";
    if lacking.len() == nodes {
        return format!(
            "{passes}. It has no queue {queue}; for a lag below a second, set replrtq_enablesrc = enabled and \
             replrtq_srcqueue = {queue}:any in the riak.conf of every node of a Riak 3, and restart one after the other"
        );
    }
    if !lacking.is_empty() {
        return format!(
            "{passes}. {} have no queue {queue}: set replrtq_enablesrc = enabled and replrtq_srcqueue = {queue}:any in \
             their riak.conf, and restart them one after the other",
            lacking.join(", ")
        );
    }
    if unnamed > 0 {
        return format!(
            "{passes}. It has {unnamed} nodes that the address does not name, and changes are in the queues of all: \
             cancel, and start with every node"
        );
    }
    format!(
        "the source is followed by queue {queue} of its {nodes} nodes, and all keys are checked once an hour: stop its \
         writers at the end, verify, then finish"
    )
}
