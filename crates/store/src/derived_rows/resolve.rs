//! Resolving an intent: the value that a reader returns, and the row that replaces the intent.

use bytes::Bytes;

use super::DerivedRowStore;
use super::format::{self, DAY, HeadName};
use crate::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, DerivedRow, Durability, Partition, ReadQuery, Result, Row,
    Store, Timestamp,
};

/// Age below which an intent is left to its writer. A shorter time is correct too, but fences more writers that are
/// only slow.
const INTENT_YOUNG_MICROS: u64 = 30 * 1_000_000;

/// The action of a reader that met an intent.
#[derive(Debug, PartialEq, Eq)]
enum IntentAction {
    /// The head is newer than the intent: write the confirmed row.
    Confirm,
    /// The writer may be between intent and head: write nothing.
    Leave,
    /// The writer is late: rewrite the head with this stamp.
    Fence(Timestamp),
    /// There is no head to fence, and no writer is this slow.
    Remove,
}

/// An intent that a reader met.
pub(super) struct Intent<'a> {
    pub(super) partition: &'a Partition,
    pub(super) name: &'a Bytes,
    pub(super) stamp: Timestamp,
    pub(super) head: &'a HeadName,
}

impl Intent<'_> {
    fn derived_row(&self, value: Option<Bytes>) -> DerivedRow {
        DerivedRow { partition: self.partition.clone(), name: self.name.clone(), value }
    }
}

impl<S: Store + ?Sized> DerivedRowStore<S> {
    /// The derived row of an intent as its head decides; replaces the intent if the protocol allows it.
    ///
    /// # Errors
    /// Errors of reading the head. A later reader resolves an intent that cannot be replaced now.
    pub(super) async fn resolve(&self, intent: &Intent<'_>, options: &CallOptions) -> Result<Option<Row>> {
        // At least at a quorum: a stale head would look older than the intent, and its writer would be fenced in vain.
        let options = &CallOptions { level: options.level.max(ConsistencyLevel::Quorum), ..*options };
        let HeadName { partition, row } = intent.head;
        let page = self.inner.read(partition, &ReadQuery::one(row.clone()), options).await?;
        // Fencing is correct at any age; the age only spares writers that are slow.
        let mut head = page.rows.into_iter().next();
        // The engine's time: a gateway with a fast clock would fence every slow writer.
        let now = self.now(options).await?;
        loop {
            let action = next_action(head.as_ref().map(|head| head.stamp), intent.stamp, now);
            let Some(current) = head else {
                if action == IntentAction::Remove {
                    self.remove(intent, options).await;
                }
                return Ok(None);
            };
            let mut stamp = current.stamp;
            let (_, derived) = format::decode_guarded(current.value.clone())?;
            let derived = intent.derived_row(derived.and_then(|derived| derived.value));
            match action {
                IntentAction::Leave | IntentAction::Remove => {}
                // The head was committed after the intent, so its writer may be dead: confirm in its place.
                IntentAction::Confirm => self.confirm(&derived, stamp, options).await,
                // Fence, then confirm: in the other order a slow writer could write its head after its intent is gone
                // [invariant 53].
                IntentAction::Fence(greater) => match self.fence(partition, current, greater, options).await {
                    Ok(CasResult::Applied) => {
                        stamp = greater;
                        self.confirm(&derived, stamp, options).await;
                    }
                    // The writer, or another reader, was faster: decide again with the head it wrote.
                    Ok(CasResult::Conflict(newer)) => {
                        super::check_deadline(options)?;
                        head = newer;
                        continue;
                    }
                    // The fence may have happened. The value is that of the head as it was read, which is correct
                    // either way.
                    Err(_) => {}
                },
            }
            return Ok(derived.value.map(|value| Row { name: derived.name, value, stamp, expires: None }));
        }
    }

    /// Rewrites a head unchanged with a greater stamp: from then on a compare-and-set that expects the old stamp fails.
    async fn fence(
        &self,
        partition: &Partition,
        head: Row,
        stamp: Timestamp,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let expected = Some(head.stamp);
        self.inner.apply_if(partition, expected, Row { stamp, ..head }.into(), Vec::new(), options).await
    }

    async fn remove(&self, intent: &Intent<'_>, options: &CallOptions) {
        // Buffered: the next reader repeats a removal that a crash takes back.
        let options = CallOptions { durability: Durability::Buffered, ..*options };
        // At the intent's own stamp: the row of a newer writer survives.
        let change = Change::Remove { name: intent.name.clone(), stamp: intent.stamp };
        let _ = self.inner.apply(Batch::single(intent.partition.clone(), vec![change]), &options).await;
    }
}

/// The action for an intent with the stamp `intent` whose head has the stamp `head`.
fn next_action(head: Option<Timestamp>, intent: Timestamp, now: Timestamp) -> IntentAction {
    let age = now.since(intent);
    match head {
        Some(head) if head > intent => IntentAction::Confirm,
        // Two above both: the next writer's intent needs a free stamp between the old head and its own.
        Some(head) if age >= INTENT_YOUNG_MICROS => IntentAction::Fence(now.max(head + 2).max(intent + 2)),
        None if age >= DAY => IntentAction::Remove,
        Some(_) | None => IntentAction::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_is_left_to_its_writer_then_its_writer_is_fenced() {
        assert_eq!(next_action(Some(Timestamp(101)), Timestamp(100), Timestamp::ZERO), IntentAction::Confirm);
        assert_eq!(next_action(Some(Timestamp(50)), Timestamp(100), Timestamp(100)), IntentAction::Leave);
        assert_eq!(
            next_action(Some(Timestamp(50)), Timestamp(100), Timestamp::ZERO),
            IntentAction::Leave,
            "an intent from a clock ahead of the store's is young"
        );
        assert_eq!(
            next_action(Some(Timestamp(50)), Timestamp(100), Timestamp(100 + INTENT_YOUNG_MICROS)),
            IntentAction::Fence(Timestamp(100 + INTENT_YOUNG_MICROS))
        );
        assert_eq!(
            next_action(Some(Timestamp(100)), Timestamp(100), Timestamp(99 + INTENT_YOUNG_MICROS)),
            IntentAction::Leave
        );
        assert_eq!(
            next_action(None, Timestamp(100), Timestamp(100 + INTENT_YOUNG_MICROS)),
            IntentAction::Leave,
            "there is no head to fence"
        );
        assert_eq!(next_action(None, Timestamp(100), Timestamp(100 + DAY)), IntentAction::Remove);
    }
}
