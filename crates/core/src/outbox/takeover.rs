//! Takes over the notices of runs that ended: at the start, when those of the former run under the same name come first, and later
//! those of killed gateways.
//!
//! The rows are moved into the partition of the taker, so one run is responsible for each of them. Two gateways that take one
//! notice over, or an owner that was only slow, send it twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use larder_rows::{ActorId, Batch, Change, NoticeRow, Row};
use larder_store::{ConsistencyLevel, Partition, RateLimitedLog, ReadQuery, Stopped, Table};

use super::{AddressedNotice, Outbox, WaitingNotice, notice_row};
use crate::members::{Member, Members};
use crate::node_context::internal_options;
use crate::{Error, Result};

/// Interval of looks for the notices of dead gateways.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Runs per page.
const PAGE_RUNS: usize = 100;
/// Notices that are moved in one batch.
const PAGE_NOTICES: usize = 50;

static UNREADABLE: RateLimitedLog = RateLimitedLog::new();

/// Looks for notices of dead gateways, until it is aborted: one gateway does, as it sweeps for all.
pub(crate) async fn watch_for_orphans(outbox: Arc<Outbox>, members: Arc<Members>) {
    loop {
        match members.is_leader().await {
            Ok(true) => take_over_once(&outbox, &members).await,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "read of the members failed: notices of dead gateways wait"),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Takes over as many notices as there are places; a failure is logged, and leaves the rest to the next look.
pub(crate) async fn take_over_once(outbox: &Outbox, members: &Members) {
    match outbox.take_over(members).await {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "webhook notices of earlier runs taken over"),
        Err(error) => tracing::warn!(%error, "takeover of webhook notices failed: they wait for the next look"),
    }
}

impl Outbox {
    async fn take_over(&self, members: &Members) -> Result<usize> {
        // The name was claimed: another heartbeat under it is the last one of the run before this one [invariant 202].
        let is_namesake = |member: &Member| member.row.node == self.context.config.node;
        let others = members.list().await?.into_iter().filter(|member| !is_namesake(member));
        let live: BTreeSet<ActorId> = others.map(|member| member.actor).collect();
        let (mut count, mut after) = (0, None);
        loop {
            let options = internal_options(ConsistencyLevel::Quorum);
            let page = self.context.ports.store.partitions(Table::Outbox, after, PAGE_RUNS, &options).await?;
            for partition in page.partitions {
                let owner = partition.outbox_actor();
                if owner.is_some_and(|owner| !self.is_own(owner) && !live.contains(&owner)) {
                    count += self.take_over_run(&partition).await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }

    /// Moves the notices of one run. Those without a place stay.
    async fn take_over_run(&self, partition: &Partition) -> Result<usize> {
        let mut notice_rows = self.notice_rows(partition).await?;
        // Race: a place says nothing of its time; the older notices of a key come first, as its owner had them [invariant 173].
        notice_rows.sort_by_key(|(_, notice)| notice.time);
        let (mut count, mut left) = (0, notice_rows.into_iter().peekable());
        while left.peek().is_some() {
            let Some(moved) = self.move_rows(partition, left.by_ref().take(PAGE_NOTICES).collect()).await? else {
                break;
            };
            count += moved;
        }
        Ok(count)
    }

    /// The notices of one run: as many as an outbox has places.
    async fn notice_rows(&self, partition: &Partition) -> Result<Vec<(Row, NoticeRow)>> {
        let (mut notice_rows, mut query) = (Vec::new(), ReadQuery::all(PAGE_NOTICES));
        loop {
            let page = self.context.read_at_quorum(partition, &query).await?;
            let last = page.rows.last().map(|row| row.name.clone());
            notice_rows.extend(page.rows.into_iter().filter_map(|row| self.decode(row)));
            match last {
                Some(last) if page.stopped == Stopped::Limit => query.continue_after(&last),
                _ => return Ok(notice_rows),
            }
        }
    }

    /// Moves rows to places of this gateway; `None` where there is no room.
    async fn move_rows(&self, from: &Partition, notice_rows: Vec<(Row, NoticeRow)>) -> Result<Option<usize>> {
        let (rows, notices): (Vec<Row>, Vec<NoticeRow>) = notice_rows.into_iter().unzip();
        let notices = self.addressed(notices);
        let places = self.state.lock().places.take_free(&notices, self.context.now());
        let Some(places) = places else { return Ok(None) };
        let placed: Vec<(u32, AddressedNotice)> = places.into_iter().zip(notices).collect();
        // Race: the places may have had other rows; a new clock is above their stamps and removals [invariant 138].
        let stamp = match self.issuer.issue().await {
            Ok(stamp) => stamp,
            Err(error) => {
                self.free(&placed);
                return Err(error);
            }
        };
        let put = |(place, notice): &(u32, AddressedNotice)| Change::Put(notice_row(*place, stamp, &notice.row));
        // The copies first: where the batch is sent in parts, a crash in between leaves a notice twice.
        let mut batch = Batch::single(self.partition(), placed.iter().map(put).collect());
        let gone = |row: Row| Change::Remove { name: row.name, stamp: row.stamp };
        batch.add(from.clone(), rows.into_iter().map(gone).collect());
        let written = self.context.apply_at_quorum(batch).await;
        // Race: a batch that met a failed replica may still be carried out from the log of batches [invariant 138].
        if written.as_ref().is_err_and(Error::has_written_nothing) {
            self.free(&placed);
            return written.map(|()| None);
        }
        // Also of an unknown outcome: the former rows may be gone, and then the copies are all there is.
        let count = placed.len();
        self.enqueue(placed.into_iter().map(|(place, notice)| WaitingNotice::new(place, stamp, notice)).collect());
        written.map(|()| Some(count))
    }

    fn decode(&self, row: Row) -> Option<(Row, NoticeRow)> {
        match NoticeRow::decode(row.value.clone()) {
            Ok(notice) => Some((row, notice)),
            Err(error) => {
                // Each look finds it again.
                if let Some(line) = UNREADABLE.admit(self.context.monotonic()) {
                    let left_out = line.left_out;
                    tracing::error!(%error, left_out, "a webhook notice cannot be read: it stays and is not sent");
                }
                None
            }
        }
    }
}
