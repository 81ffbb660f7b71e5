//! What a key's task knows beyond the rows: the batch that has no answer, and the clock that its row does not confirm yet.

use std::time::Duration;

use larder_core::node_context::internal_options;
use larder_core::{Error, Result};
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{CallOptions, ConsistencyLevel, Kind};
use tokio::time::Instant;

use super::unanswered::UnansweredBatch;
use super::writers::{DatatypeKey, DatatypeWriters};
use crate::rules::datatypes::{ClockValue, DatatypeRowName};

/// Time in which an engine of one machine has said whether a batch is stored. Clients wait as long as they asked for.
const FATE_TIMEOUT: Duration = Duration::from_secs(600);

/// Rows of all actors together that may stand beyond the confirmed clocks of a key at rest. A context names a hundred rows.
const UNCONFIRMED_ROWS_MAX: usize = 16;

/// The time that a key has to be at rest before its last batch is confirmed or sent again, at first and at last.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_MAX: Duration = Duration::from_secs(30);

/// The state of a key's task between two batches.
#[derive(Debug)]
pub(super) struct KeyProgress {
    pub(super) unanswered: Option<UnansweredBatch>,
    /// The clock of the last batch, if its row has to say that a quorum has it.
    unconfirmed: Option<Timestamp>,
    quiet: Duration,
}

/// The clocks of a batch that is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBatch {
    pub(super) clock: Timestamp,
    pub(super) confirmed: Timestamp,
    /// The actors that have rows in the key.
    pub(super) actors: usize,
}

impl Default for KeyProgress {
    fn default() -> Self {
        Self { unanswered: None, unconfirmed: None, quiet: QUIET }
    }
}

impl KeyProgress {
    /// Whether nothing is left to send.
    pub(super) fn is_settled(&self) -> bool {
        self.unanswered.is_none() && self.unconfirmed.is_none()
    }

    /// Whether a batch has no answer.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    pub(super) fn unanswered_bytes(&self) -> usize {
        self.unanswered.as_ref().map_or(0, |unanswered| unanswered.batch.bytes())
    }

    /// The time to wait for further changes before the rest is sent.
    pub(super) fn quiet(&self) -> Duration {
        self.quiet
    }
}

impl DatatypeWriters {
    /// Writes a batch, and over replicas the one without an answer inside it.
    pub(super) async fn write(
        &self,
        key: &DatatypeKey,
        batch: Batch,
        sent: SentBatch,
        progress: &mut KeyProgress,
        options: CallOptions,
    ) -> Result<()> {
        let store = &self.context.ports.store;
        if !self.is_replicated() {
            // Crash: an empty batch waits for the sync, too: what its updates found may not be on disk yet [invariant 149].
            // Race: the batch is awaited longer than its clients wait: the next one, decided without it, would write over what
            // it stores late [invariant 111].
            // An unanswered batch is never sent again: it would bring back rows that were removed since [invariant 112].
            return store.apply(batch, &until_decided(options)).await.map_err(Error::from);
        }
        let batch = match &progress.unanswered {
            // Race: what the changes found may be in that batch alone [invariant 153].
            Some(unanswered) => unanswered.followed_by(batch),
            None => batch,
        };
        if batch.partitions.is_empty() {
            return Ok(());
        }
        let beyond = self.clock_to_confirm(&batch, sent.actors);
        // Crash: kept before it is sent, so that a lost answer leaves nothing unknown [invariant 153].
        let kept = self.unanswered.keep(&key.address.bucket, batch.clone(), sent.confirmed, sent.clock)?;
        let before = progress.unanswered.replace(kept);
        if let Err(error) = store.apply(batch, &options).await {
            if is_refusal(error.kind) {
                progress.unanswered = before;
            }
            return Err(error.into());
        }
        *progress = KeyProgress::default();
        self.confirmed.note(&key.partition, sent.clock);
        progress.unconfirmed = beyond;
        Ok(())
    }

    /// The clock that has to be confirmed after this batch: with so many rows contexts could not name them one by one.
    fn clock_to_confirm(&self, batch: &Batch, actors: usize) -> Option<Timestamp> {
        let own = DatatypeRowName::Clock(self.actor()).encode();
        let changes = &batch.partitions.first()?.changes;
        // Without a clock row the batch deleted the key: a clock written now would bring it back.
        let clock = changes.iter().find_map(|change| match change {
            Change::Put(row) if row.name == own => Some(row.stamp),
            _ => None,
        });
        clock.filter(|_| changes.len().saturating_mul(actors.max(1)) > UNCONFIRMED_ROWS_MAX)
    }

    /// Sends what is left of a key at rest.
    ///
    /// # Errors
    /// The store's; what was not sent is still there.
    pub(super) async fn settle(&self, key: &DatatypeKey, progress: &mut KeyProgress) -> Result<()> {
        progress.quiet = (progress.quiet * 2).min(QUIET_MAX);
        let options = internal_options(ConsistencyLevel::Quorum);
        if let Some(unanswered) = &progress.unanswered {
            let (clock, beyond) = (unanswered.clock, self.clock_to_confirm(&unanswered.batch, usize::MAX));
            // The same rows at the same stamps: where a replica has them, or their removal, nothing changes.
            self.context.ports.store.apply(unanswered.batch.clone(), &options).await?;
            self.confirmed.note(&key.partition, clock);
            progress.unanswered = None;
            progress.unconfirmed = beyond;
        }
        if let Some(clock) = progress.unconfirmed {
            let name = DatatypeRowName::Clock(self.actor()).encode();
            let value = ClockValue { confirmed: clock }.encode();
            // Race: at the stamp that it has: of equal stamps the greater value wins, and a removal wins over both, so a key that
            // was deleted meanwhile stays deleted [invariant 152].
            let change = Change::Put(Row { name, value, stamp: clock, expires: None });
            self.context.ports.store.apply(Batch::single(key.partition.clone(), vec![change]), &options).await?;
        }
        *progress = KeyProgress::default();
        Ok(())
    }
}

/// Whether the engine says that it stored nothing, and never will.
fn is_refusal(kind: Kind) -> bool {
    matches!(kind, Kind::TooLarge | Kind::TooManyRows { .. } | Kind::Changed | Kind::Full | Kind::Misuse)
}

/// The options of a batch, with the time after which its fate is given up as unknown.
fn until_decided(options: CallOptions) -> CallOptions {
    CallOptions { deadline: options.deadline.max(Instant::now() + FATE_TIMEOUT), ..options }
}
