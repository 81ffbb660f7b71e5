//! One key of a move: what its source has is compared with what was copied, and copied where it changed.

use std::array::IntoIter;
use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::{ImportComparison, ImportOutcome, ImportedValue, KvImport};
use larder_rows::address::Address;
use larder_rows::{MoveWish, MovedRow, MovedState};
use tokio::time::sleep;

use crate::move_run::{KeyFailure, KeyOutcome, MoveRun, MoveStopped, SweepKind, shown_name};
use crate::progress::MoveCount;
use crate::rules::{SourceObject, SourceOrder, SourceValue};
use crate::source::{Source, SourceState};
use crate::source_calls::SourceError;

/// Pauses before an import is tried again.
const IMPORT_PAUSES: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(2), Duration::from_secs(5)];
/// Pause before a concurrent state is read again: the nodes of the source may settle it.
pub(crate) const SETTLE_PAUSE: Duration = Duration::from_millis(300);
/// Pause before a key is read again of which the source showed an older state.
pub(crate) const DOUBT_PAUSE: Duration = Duration::from_secs(5);

impl From<SourceError> for KeyFailure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Unreachable(why) => Self::Unanswered(why),
            SourceError::Refused { .. } | SourceError::Value(_) | SourceError::TooLarge => {
                Self::Aside(error.to_string())
            }
            SourceError::Listing(_) | SourceError::Props(_) => Self::Aside(error.to_string()),
        }
    }
}

impl From<Error> for KeyFailure {
    fn from(error: Error) -> Self {
        if is_lasting(&error) { Self::Aside(error.to_string()) } else { Self::Stopped(error.into()) }
    }
}

/// The pauses before an import is tried again.
pub(crate) struct ImportPauses(IntoIter<Duration, 3>);

impl Default for ImportPauses {
    fn default() -> Self {
        Self(IMPORT_PAUSES.into_iter())
    }
}

/// A state of the source, with its order behind the one that was copied.
pub(crate) struct Settled {
    pub(crate) order: SourceOrder,
    pub(crate) object: SourceObject,
}

impl MoveRun<Source> {
    /// Brings a key to the state of its source. One that cannot be copied is set aside. `folded` is the clock that a fold showed.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(crate) async fn sync_key(
        &self,
        address: &Address,
        folded: Option<&Bytes>,
        kind: SweepKind,
    ) -> Result<KeyOutcome, MoveStopped> {
        let outcome = self.look_at_key(address, folded, kind).await?;
        if !outcome.is_doubted {
            return Ok(outcome);
        }
        sleep(DOUBT_PAUSE).await;
        self.look_at_key(address, None, kind).await
    }

    async fn look_at_key(
        &self,
        address: &Address,
        folded: Option<&Bytes>,
        kind: SweepKind,
    ) -> Result<KeyOutcome, MoveStopped> {
        let turn = self.source.turns.wait(address).await;
        let result = self.try_sync(address, folded, kind).await;
        drop(turn);
        self.end_key_result(address, result).await
    }

    /// Sets a key aside that cannot be copied.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(crate) async fn end_key_result(
        &self,
        address: &Address,
        result: Result<KeyOutcome, KeyFailure>,
    ) -> Result<KeyOutcome, MoveStopped> {
        match result {
            Ok(outcome) => {
                self.forget_aside(|| shown(address));
                Ok(outcome)
            }
            Err(KeyFailure::Aside(why)) => {
                self.set_aside(shown(address), why);
                Ok(KeyOutcome::default())
            }
            Err(KeyFailure::Unanswered(why)) => {
                // A source that answers otherwise has something wrong with this key alone.
                self.source.ping(false).await?;
                self.set_aside(shown(address), why);
                Ok(KeyOutcome::default())
            }
            Err(KeyFailure::Stopped(stopped)) => Err(stopped),
        }
    }

    async fn try_sync(
        &self,
        address: &Address,
        folded: Option<&Bytes>,
        kind: SweepKind,
    ) -> Result<KeyOutcome, KeyFailure> {
        let before = self.store.moved_row(address).await?;
        if let Some(row) = before.as_ref().filter(|row| row.complete && !row.concurrent) {
            let unchanged = match kind {
                SweepKind::Seed => true,
                SweepKind::Follow => self.is_unchanged(address, folded, row).await?,
                SweepKind::Verify => false,
            };
            if unchanged {
                return Ok(KeyOutcome::default());
            }
        }
        let mut fetched = self.source.fetch(address, false).await?;
        if fetched.state == SourceState::Absent {
            let is_known = |row: &MovedRow| row.state == MovedState::Deleted && kind != SweepKind::Verify;
            if before.as_ref().is_none_or(is_known) {
                return Ok(KeyOutcome::default());
            }
            fetched = self.source.fetch(address, true).await?;
        }
        if is_doubtful(&fetched.state, before.as_ref()) {
            // The memory of the first answer goes before that of the second is asked for, or two keys could wait for each other.
            drop(fetched);
            sleep(SETTLE_PAUSE).await;
            fetched = self.source.fetch(address, true).await?;
        }
        let settled = order_of(&fetched.state, before.as_ref());
        if settled.order == SourceOrder::Concurrent {
            self.count(MoveCount::Concurrent, 1);
        }
        self.settle(address, before, settled, kind).await
    }

    /// Whether the source still has the clock that was copied.
    async fn is_unchanged(
        &self,
        address: &Address,
        folded: Option<&Bytes>,
        row: &MovedRow,
    ) -> Result<bool, KeyFailure> {
        let clock = match folded {
            // A tombstone's, perhaps: then the key is read.
            Some(clock) => Some(clock.clone()),
            None => self.source.head(address).await?,
        };
        Ok(match clock {
            Some(clock) => row.state != MovedState::Deleted && SourceOrder::is_same_clock(&clock, &row.clock),
            None => row.state == MovedState::Deleted,
        })
    }

    /// Imports a state in its order behind the one before it.
    pub(crate) async fn settle(
        &self,
        address: &Address,
        before: Option<MovedRow>,
        settled: Settled,
        kind: SweepKind,
    ) -> Result<KeyOutcome, KeyFailure> {
        if self.is_datatype(address, &settled.object).await? {
            return self.settle_datatype(address, before, settled, kind).await;
        }
        let Settled { order, object: state } = settled;
        // The bytes of a clock tell an import that broke off from another one.
        let same = before.as_ref().filter(|_| order == SourceOrder::Same).map(|row| row.clock.clone());
        let import = KvImport {
            address: address.clone(),
            values: state.values.into_iter().map(imported).collect(),
            replaces: order != SourceOrder::Concurrent,
            actor: self.order.actor,
            clock: same.unwrap_or(state.clock),
            before,
        };
        if order == SourceOrder::Newer && self.is_here_already(&import).await? {
            let comparison = (kind == SweepKind::Verify).then_some(ImportComparison::Equal);
            return Ok(KeyOutcome { comparison, ..KeyOutcome::default() });
        }
        let changed = match order {
            SourceOrder::Older => return self.doubt(address, import.before.as_ref()).await,
            SourceOrder::Same => {
                // The rest of a state that is known: the source has not changed.
                if has_more_to_do(import.before.as_ref(), import.values.is_empty()) {
                    self.import(&import).await?;
                }
                false
            }
            SourceOrder::Newer | SourceOrder::Concurrent => self.import(&import).await?,
        };
        let comparison = match kind {
            SweepKind::Verify => Some(self.compare(import).await?),
            SweepKind::Seed | SweepKind::Follow => None,
        };
        Ok(KeyOutcome { changed, comparison, is_doubted: false })
    }

    /// Whether a state with another clock has the values that are here: a Larder drops tombstones from its contexts, and an
    /// operator may have copied the key before. Then its clock alone is noted.
    async fn is_here_already(&self, import: &KvImport) -> Result<bool, KeyFailure> {
        if import.values.is_empty() && import.before.is_none() {
            return Ok(true);
        }
        if self.gateway.kv.compare_import(import).await? != ImportComparison::Equal {
            return Ok(false);
        }
        let before = import.before.as_ref();
        let state = match (import.values.is_empty(), before.map(|row| row.state)) {
            (true, _) => MovedState::Deleted,
            (false, Some(MovedState::Kept)) => MovedState::Kept,
            (false, _) => MovedState::Here,
        };
        let row = MovedRow {
            state,
            concurrent: false,
            complete: true,
            written: u32::try_from(import.values.len()).unwrap_or(u32::MAX),
            stamp: before.map(|row| row.stamp).unwrap_or_default(),
            clock: import.clock.clone(),
        };
        self.store.write_moved_row(&import.address, &row).await?;
        Ok(true)
    }

    /// Drops an older state, and has the next look read the key again: if the source still shows it, the key was deleted,
    /// reaped, and written anew with a clock that begins again.
    pub(crate) async fn doubt(&self, address: &Address, before: Option<&MovedRow>) -> Result<KeyOutcome, KeyFailure> {
        self.count(MoveCount::Older, 1);
        if let Some(row) = before {
            self.store.write_moved_row(address, &MovedRow { concurrent: true, ..row.clone() }).await?;
        }
        // What is here cannot be compared with it: a verification has to come once more.
        Ok(KeyOutcome { changed: true, comparison: None, is_doubted: true })
    }

    async fn import(&self, import: &KvImport) -> Result<bool, KeyFailure> {
        if import.values.is_empty() && import.before.is_none() {
            return Ok(false);
        }
        let mut pauses = ImportPauses::default();
        let outcome = loop {
            match self.gateway.kv.import(import).await {
                Ok(outcome) => break outcome,
                Err(error) => pauses.wait_after(error).await?,
            }
        };
        match outcome {
            ImportOutcome::Imported => {
                self.count(MoveCount::Copied, 1);
                self.count(MoveCount::Bytes, import.values.iter().map(value_bytes).sum());
            }
            ImportOutcome::Deleted => self.count(MoveCount::Deleted, 1),
            ImportOutcome::Kept => self.count(MoveCount::Kept, 1),
        }
        Ok(true)
    }

    async fn compare(&self, import: KvImport) -> Result<ImportComparison, KeyFailure> {
        let before = self.store.moved_row(&import.address).await?;
        let import = KvImport { before, ..import };
        let found = self.gateway.kv.compare_import(&import).await?;
        if found != ImportComparison::Differs || self.order.wish != MoveWish::Repair {
            return Ok(found);
        }
        self.import(&KvImport { replaces: true, ..import.clone() }).await?;
        let before = self.store.moved_row(&import.address).await?;
        Ok(self.gateway.kv.compare_import(&KvImport { before, ..import }).await?)
    }
}

/// The order of a state of the source behind the one that was copied, and its values.
pub(crate) fn order_of(state: &SourceState, before: Option<&MovedRow>) -> Settled {
    let object = match state {
        SourceState::Found(object) => object.clone(),
        // A source that forgot a tombstone: the clock stays, so that an older state is known as one.
        SourceState::Absent => {
            let clock = before.map(|row| row.clock.clone()).unwrap_or_default();
            SourceObject { clock, values: Vec::new() }
        }
    };
    Settled { order: before.map_or(SourceOrder::Newer, |row| order_behind(&object, row)), object }
}

/// Whether a state is read once more, by a strict read: two clocks do not order it, or a deleted key is back.
fn is_doubtful(state: &SourceState, before: Option<&MovedRow>) -> bool {
    let (SourceState::Found(object), Some(row)) = (state, before) else { return false };
    match SourceOrder::of_answer(&object.clock, &row.clock) {
        SourceOrder::Concurrent => true,
        // Race: a node that missed a write answers twice, and its older state is taken for a new beginning.
        SourceOrder::Older => row.concurrent,
        SourceOrder::Same | SourceOrder::Newer => row.state == MovedState::Deleted && !object.values.is_empty(),
    }
}

fn order_behind(state: &SourceObject, row: &MovedRow) -> SourceOrder {
    match SourceOrder::of_answer(&state.clock, &row.clock) {
        // A key that was deleted and reaped begins a clock of its own when it is written again.
        SourceOrder::Concurrent if row.state == MovedState::Deleted || row.concurrent => SourceOrder::Newer,
        SourceOrder::Older if row.concurrent => SourceOrder::Newer,
        // The source says that nothing is left.
        SourceOrder::Concurrent if state.values.is_empty() => SourceOrder::Newer,
        order => order,
    }
}

/// Whether a state with the clock that was copied is not all here.
pub(crate) fn has_more_to_do(before: Option<&MovedRow>, is_deleted: bool) -> bool {
    let Some(row) = before else { return true };
    let is_back = row.state == MovedState::Deleted && !is_deleted;
    let is_gone = row.state != MovedState::Deleted && is_deleted;
    !row.complete || row.concurrent || is_back || is_gone
}

pub(crate) fn imported(value: SourceValue) -> ImportedValue {
    let SourceValue { content, modified, vtag } = value;
    ImportedValue { content, modified, vtag }
}

fn value_bytes(value: &ImportedValue) -> u64 {
    value.content.body.length()
}

impl ImportPauses {
    /// Waits before an import is made again that failed: it may have been made, and changes nothing then.
    ///
    /// # Errors
    /// The failure, if it lasts.
    pub(crate) async fn wait_after(&mut self, error: Error) -> Result<(), KeyFailure> {
        match self.0.next().filter(|_| !is_lasting(&error)) {
            Some(pause) => sleep(pause).await,
            None => return Err(error.into()),
        }
        Ok(())
    }
}

/// Whether an import of the same values fails again.
pub(crate) fn is_lasting(error: &Error) -> bool {
    match error {
        Error::UnknownType(_) | Error::BadAddress(_) | Error::TooLarge { .. } | Error::MetadataTooLarge { .. } => true,
        Error::IndexTooLarge { .. } | Error::TooManySiblings { .. } | Error::Datatype(_) | Error::NotDatatype => true,
        Error::DatatypePut | Error::DatatypeNeedsSiblings | Error::NotBuilt(_) | Error::Damaged(_) => true,
        Error::QuorumAboveN { .. } | Error::Context(_) | Error::Condition(_) | Error::Precommit(_) => true,
        Error::Refused(_) | Error::Type(_) | Error::Superseded | Error::BrokenBody(_) => true,
        Error::Unsatisfied { .. } | Error::NodeConfirms { .. } | Error::Changed | Error::TimedOut => false,
        Error::Overloaded { .. } | Error::NotReady(_) | Error::DiskFull | Error::Internal(_) => false,
    }
}

/// The address of a listed key; a name that no key here may have is told.
pub(crate) fn key_address(bucket: &larder_rows::address::BucketAddress, key: Bytes) -> Result<Address, String> {
    Address::new(bucket.clone(), key).map_err(|error| error.to_string())
}

/// An address on one line; long names are cut.
pub(crate) fn shown(address: &Address) -> String {
    let (bucket, key) = (&address.bucket, &address.key);
    let [bucket_type, bucket, key] = [&bucket.bucket_type, &bucket.bucket, key].map(|name| shown_name(name));
    format!("/types/{bucket_type}/buckets/{bucket}/keys/{key}")
}
