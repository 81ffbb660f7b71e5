//! The lock clock: the time by which locks end, kept in the store so that no restart sets it back.
//!
//! The rule is [`LockTime`]. Each gateway follows its own machine's clock; the stored time is the latest of any, and a gateway
//! begins with it.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_rows::{Batch, Change, MarkRow, Row, Timestamp};
use larder_store::{Partition, ReadQuery};
use parking_lot::Mutex;

use super::Result;
use crate::catalogue::S3Catalogue;
use crate::rules::lock_time::LockTime;

/// The name of its row among the clock marks. No node has it: names of nodes are text without control characters.
const ROW_NAME: &[u8] = b"\0lock clock";
/// A lag behind the machine's clock that is worth a line in the log, in microseconds.
const LAG_LOGGED: u64 = 3_600_000_000;

/// The lock clock of one gateway.
pub struct LockClock {
    gateway: Arc<Core>,
    /// `None` until a lock is first looked at.
    time: Mutex<Option<LockTime>>,
}

/// What the lock clock shows at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockMoment {
    /// A lock has ended if its end is not after this time.
    pub(crate) ended: Timestamp,
    /// A lock that begins now begins at this time.
    pub(crate) begins: Timestamp,
}

impl LockClock {
    /// The lock clock of a gateway.
    pub(crate) fn new(gateway: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self { gateway: Arc::clone(gateway), time: Mutex::default() })
    }

    /// What it shows now.
    ///
    /// # Errors
    /// Any error of the store, for the first call.
    pub(crate) async fn read(&self) -> Result<LockMoment> {
        if self.time.lock().is_none() {
            self.begin().await?;
        }
        Ok(self.advance())
    }

    /// Follows the machine's clock, and exchanges times with the store. Call it once a minute: the fewer calls, the longer it lags
    /// after a standstill. Costs nothing while no bucket has object lock.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn tick(&self) -> Result<()> {
        let catalogue = self.gateway.catalogue().current();
        let is_used = S3Catalogue::within(&catalogue).buckets().any(|bucket| bucket.object_lock.is_some());
        drop(catalogue);
        if !is_used {
            return Ok(());
        }
        let LockMoment { ended, .. } = self.read().await?;
        let stored = self.stored().await?.unwrap_or_default();
        if stored < ended {
            self.store(ended).await?;
        }
        let node = self.gateway.context();
        let mut time = self.time.lock();
        *time = time.map(|time| time.raised_to(stored, node.monotonic()));
        drop(time);
        let lag = node.now().since(ended);
        if lag > LAG_LOGGED {
            tracing::warn!(
                seconds = lag / 1_000_000,
                "the lock clock is behind this machine's clock, after a standstill or because the clock was set ahead: until it has caught up, object locks hold longer"
            );
        }
        Ok(())
    }

    /// Begins with the stored time; in a store that never had one, with the machine's clock.
    async fn begin(&self) -> Result<()> {
        let node = self.gateway.context();
        let stored = match self.stored().await? {
            Some(stored) => stored,
            None => {
                let now = node.now();
                // Crash: the next run would otherwise begin with its own clock, which may be ahead.
                self.store(now).await?;
                now
            }
        };
        let at = node.monotonic();
        let mut time = self.time.lock();
        *time = Some(time.map_or(LockTime { time: stored, at }, |time| time.raised_to(stored, at)));
        Ok(())
    }

    fn advance(&self) -> LockMoment {
        let node = self.gateway.context();
        let (wall, monotonic) = (node.now(), node.monotonic());
        let mut slot = self.time.lock();
        // Callers have begun: without a time nothing would have ended yet.
        let begun = slot.unwrap_or(LockTime { time: Timestamp::ZERO, at: monotonic });
        // Before it advances: a clock that was set back shortens no new lock.
        let begins = begun.beginning(wall, monotonic);
        let time = begun.advanced(wall, monotonic);
        *slot = Some(time);
        LockMoment { ended: time.time, begins }
    }

    async fn stored(&self) -> Result<Option<Timestamp>> {
        let query = ReadQuery::one(Bytes::from_static(ROW_NAME));
        let page = self.gateway.context().read_at_quorum(&Partition::marks(), &query).await?;
        let row = page.rows.into_iter().next();
        Ok(row.map(|row| MarkRow::decode(row.value)).transpose()?.map(|row| row.mark))
    }

    async fn store(&self, time: Timestamp) -> Result<()> {
        // Race: the time is its own stamp, so of two gateways' times the later one stays.
        let row = Row {
            name: Bytes::from_static(ROW_NAME),
            value: MarkRow { mark: time }.encode(),
            stamp: time,
            expires: None,
        };
        let batch = Batch::single(Partition::marks(), vec![Change::Put(row)]);
        Ok(self.gateway.context().apply_at_quorum(batch).await?)
    }
}
