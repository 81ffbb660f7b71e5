//! Compare-and-set on heads: one conditional batch, on one partition of one table, at SERIAL.
//!
//! ```text
//!         guard: stamp and history of the head, from the cache or from a read
//!   ┌──>  conditional batch: head (v, s, w) IF s = stamp, and the other changes
//!   │       applied     the writer has its answer
//!   │       refused     read the head: a conflict; or the head has expired and its stamp is the guard now; or an earlier
//!   │                   attempt that got no answer was applied
//!   │       in doubt    read the head at SERIAL, which ends every attempt in flight: applied, a conflict, or
//!   └───────────────────not applied: send the same head with the same id again; or so many writers followed that the head
//!                       does not tell: `TimedOut`
//! ```
//! Conditional writes use SERIAL, never LOCAL_SERIAL: with a majority in each datacenter a head could have two values.
//! The rows written with the head carry the transaction's timestamps, so they have the order of the heads.

use std::time::Duration;

use larder_store::cas_history::{CasHistory, CasOutcome};
use larder_store::{CallOptions, CasResult, Change, ConsistencyLevel, Error, Kind, Partition, Result, Row, Timestamp};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::batch::BatchType;
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::{Instant, sleep_until};

use crate::client::{BoundStatement, ClusterClient, RequestFailure, check_deadline};
use crate::encoding::{BoundValue, timestamp, ttl_seconds};
use crate::errors;
use crate::metrics::count;
use crate::partitions::KnownHead;
use crate::read::{StoredRow, live_row};
use crate::statements::RowStatement;

/// The first pause after an attempt in doubt; each pause is twice as long as the last, plus up to half as jitter.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The longest pause, without jitter.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// One compare-and-set, with all its attempts.
struct CasRequest<'a> {
    partition: &'a Partition,
    expected: Option<Timestamp>,
    head: &'a Row,
    changes: &'a [Change],
    options: &'a CallOptions,
    /// The id that the head's history has if an attempt was applied.
    id: u64,
    /// Attempts without an answer.
    unanswered: u32,
    /// The history of the head that the last attempt was to replace.
    replaced: CasHistory,
}

/// The stamp that the head must have, and the history of the head that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CasGuard {
    stamp: Option<Timestamp>,
    history: CasHistory,
}

/// The decision for a compare-and-set, from the head as it is stored.
#[derive(Debug, PartialEq, Eq)]
enum CasDecision {
    Applied,
    Conflict(Option<Row>),
    Send(CasGuard),
    /// An attempt was not answered, and so many writers followed that the head does not tell.
    Unknown,
}

/// The outcome of one attempt.
enum AttemptOutcome {
    Applied,
    Refused,
    InDoubt(RequestFailure),
}

impl ClusterClient {
    /// Compare-and-sets a head; the caller has checked the contract.
    pub(crate) async fn compare_and_set(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: &Row,
        changes: &[Change],
        options: &CallOptions,
    ) -> Result<CasResult> {
        let what = partition.table.name();
        check_deadline(options, what)?;
        if changes.iter().any(|change| matches!(change, Change::Clear { .. })) {
            // A transaction gives all its writes one timestamp, so a removal of the whole partition would remove the
            // head too.
            return Err(Error::new(
                Kind::Misuse,
                format!("{what}: a compare-and-set cannot clear its partition: name the rows"),
            ));
        }
        self.ensure(partition, options.deadline).await?;
        // One id for all attempts: whichever of them is applied, the head names it [invariant 21].
        let id = self.cas_ids.next();
        let mut request = CasRequest {
            partition,
            expected,
            head,
            changes,
            options,
            id,
            unanswered: 0,
            replaced: CasHistory::default(),
        };
        let mut guard = match self.cached_guard(&request) {
            Some(guard) => guard,
            None => {
                count(&self.counters.heads_looked_up);
                match self.read_head(&request, None).await? {
                    CasDecision::Send(guard) => guard,
                    decision => return self.cas_result(&request, decision),
                }
            }
        };
        loop {
            // Remembered before sending: the outcome is judged against the head that this attempt replaces.
            request.replaced = guard.history;
            let decision = match self.send_cas(&request, guard).await? {
                AttemptOutcome::Applied => {
                    self.cache_head(&request, guard);
                    return Ok(CasResult::Applied);
                }
                AttemptOutcome::Refused => self.read_head(&request, Some(guard)).await?,
                AttemptOutcome::InDoubt(failure) => {
                    // The attempt may still be applied by another coordinator: only a SERIAL read ends it.
                    count(&self.counters.cas_in_doubt);
                    request.unanswered += 1;
                    self.resolve_in_doubt(&request, failure).await?
                }
            };
            match decision {
                // The same head with the same id: if two attempts are applied one after the other, the second one fails
                // its guard.
                CasDecision::Send(next) => guard = next,
                decision => return self.cas_result(&request, decision),
            }
            count(&self.counters.cas_repeated);
            pause(&request).await?;
        }
    }

    /// The guard from the head cache, if the cache has the expected stamp.
    fn cached_guard(&self, request: &CasRequest<'_>) -> Option<CasGuard> {
        // Without an expected head nothing is read: an expired row that still exists refuses the guard and is read then.
        let Some(expected) = request.expected else {
            return Some(CasGuard { stamp: None, history: CasHistory::default() });
        };
        let known = self.heads.get(request.partition, &request.head.name)?;
        // A head that has expired by the store's clock counts as absent, so its stamp guards nothing.
        let is_live = known.expires.is_none_or(|expires| expires > self.clock.now());
        (known.stamp == expected && is_live).then_some(CasGuard { stamp: Some(expected), history: known.history })
    }

    fn cache_head(&self, request: &CasRequest<'_>, guard: CasGuard) {
        // Only after an applied answer: the cached history must be the stored one.
        let Row { stamp, expires, ref name, .. } = *request.head;
        let history = guard.history.followed_by(request.id);
        self.heads.put(request.partition, name, KnownHead { stamp, expires, history });
    }

    fn cas_result(&self, request: &CasRequest<'_>, decision: CasDecision) -> Result<CasResult> {
        match decision {
            CasDecision::Conflict(head) => Ok(CasResult::Conflict(head)),
            CasDecision::Applied | CasDecision::Send(_) => {
                if request.unanswered > 0 {
                    count(&self.counters.cas_found_applied);
                }
                Ok(CasResult::Applied)
            }
            CasDecision::Unknown => {
                let what = request.partition.table.name();
                let text = format!(
                    "{what}: a compare-and-set was not answered, and so many followed that its head does not tell"
                );
                Err(Error::new(Kind::TimedOut, text))
            }
        }
    }

    /// Sends the conditional batch once.
    async fn send_cas(&self, request: &CasRequest<'_>, guard: CasGuard) -> Result<AttemptOutcome> {
        let CasRequest { partition, head, changes, options, .. } = *request;
        let now = self.clock.now();
        let (key, history) = (BoundValue::Blob(&partition.key), guard.history.followed_by(request.id).encode());
        let mut all = Vec::with_capacity(changes.len() + 1);
        let values = vec![
            BoundValue::Int(ttl_seconds(head.expires, now)),
            BoundValue::Stored(&head.value, head.expires),
            BoundValue::BigInt(timestamp(head.stamp)?),
            BoundValue::Blob(&history),
            key,
            BoundValue::Blob(&head.name),
            BoundValue::Timestamp(guard.stamp.map(timestamp).transpose()?),
        ];
        // Race: the statement gives the head a greater stamp; a guard that kept it would pass a second writer [invariant 20].
        all.push(BoundStatement { statement: RowStatement::CompareAndSet, partition, values });
        for change in changes {
            all.push(bind_change(partition, change, now)?);
        }
        // Never ALL: a commit at ALL fails over one missing copy after the majority has agreed.
        let consistency = self.consistency(partition, ConsistencyLevel::Quorum, true);
        // Begun before sending: if the caller drops this future, the partition is in doubt.
        let in_flight = self.in_doubt.begin(partition);
        let sent = match &all[..] {
            [statement] => self.execute(statement, consistency, options.deadline).await,
            several => self.batch(BatchType::Unlogged, several, consistency, options.deadline).await,
        };
        match sent {
            Ok(answer) => {
                let applied = is_applied(partition.table.name(), answer)?;
                // Settled only after the answer was understood: until then the partition stays in doubt.
                in_flight.settled();
                Ok(if applied { AttemptOutcome::Applied } else { AttemptOutcome::Refused })
            }
            // After an unanswered attempt even a clear refusal proves nothing about the earlier one.
            Err(failure) if is_in_doubt(&failure) || request.unanswered > 0 => Ok(AttemptOutcome::InDoubt(failure)),
            Err(failure) => {
                in_flight.settled();
                Err(failure.into())
            }
        }
    }

    /// Reads the head at SERIAL until the outcome of an attempt in doubt is known.
    async fn resolve_in_doubt(&self, request: &CasRequest<'_>, failure: RequestFailure) -> Result<CasDecision> {
        let what = request.partition.table.name();
        let CasRequest { partition, head, options, .. } = *request;
        // A copy counts the pauses; the request's own count decides later what a failure means.
        let mut tries = CasRequest { unanswered: 0, ..*request };
        loop {
            // At SERIAL: the read finishes the attempt or rules it out, so it cannot be applied after a repeat [invariant 21].
            match self.row(partition, &head.name, Consistency::Serial, options.deadline).await {
                Ok(stored) => return Ok(decide(request, stored.as_ref(), self.clock.now())),
                // Not sent: too few replicas answer, so no pause of a few tenths of a second helps.
                Err(RequestFailure::Store(_)) => break,
                Err(_) if pause(&tries).await.is_ok() => tries.unanswered += 1,
                Err(_) => break,
            }
        }
        let cause = Error::from(failure);
        Err(Error {
            kind: Kind::TimedOut,
            context: format!("{what}: the outcome of a compare-and-set is unknown: {cause}"),
            ..cause
        })
    }

    /// Reads the head. A quorum may answer a head older than the one that refused the guard; then reads again at
    /// SERIAL.
    async fn read_head(&self, request: &CasRequest<'_>, refused: Option<CasGuard>) -> Result<CasDecision> {
        let CasRequest { partition, head, expected, options, .. } = *request;
        let consistency = self.consistency(partition, ConsistencyLevel::Quorum, false);
        let stored = self.row(partition, &head.name, consistency, options.deadline).await?;
        let decision = decide(request, stored.as_ref(), self.clock.now());
        // A quorum read may return an older head than the refused attempt met; its guard would be refused again and
        // again.
        let is_new = match &decision {
            CasDecision::Applied | CasDecision::Unknown => true,
            CasDecision::Conflict(decision) => decision.as_ref().is_some_and(|row| Some(row.stamp) > expected),
            CasDecision::Send(guard) => refused.is_none_or(|refused| refused.stamp != guard.stamp),
        };
        if is_new {
            return Ok(decision);
        }
        let stored = self.row(partition, &head.name, Consistency::Serial, options.deadline).await?;
        Ok(decide(request, stored.as_ref(), self.clock.now()))
    }
}

/// Decides a compare-and-set from the stored head.
fn decide(request: &CasRequest<'_>, stored: Option<&StoredRow>, now: Timestamp) -> CasDecision {
    let history = stored.and_then(|stored| stored.history).unwrap_or_default();
    let head = live_row(stored, now);
    let unchanged = head.map(|row| row.stamp) == request.expected;
    match history.own_outcome(request.id, &request.replaced, unchanged) {
        CasOutcome::Applied => CasDecision::Applied,
        // An expired head may still exist in Cassandra, and its stamp is the one that the condition compares.
        CasOutcome::NotApplied => CasDecision::Send(CasGuard { stamp: stored.map(|stored| stored.row.stamp), history }),
        CasOutcome::Unknown if request.unanswered > 0 => CasDecision::Unknown,
        // Every attempt was answered, and none was applied.
        CasOutcome::Lost | CasOutcome::Unknown => CasDecision::Conflict(head.cloned()),
    }
}

fn bind_change<'a>(partition: &'a Partition, change: &'a Change, now: Timestamp) -> Result<BoundStatement<'a>> {
    let key = BoundValue::Blob(&partition.key);
    let (statement, values) = match change {
        Change::Put(row) => {
            let ttl = BoundValue::Int(ttl_seconds(row.expires, now));
            let (value, stamp) =
                (BoundValue::Stored(&row.value, row.expires), BoundValue::BigInt(timestamp(row.stamp)?));
            (RowStatement::PutBeside, vec![ttl, value, stamp, key, BoundValue::Blob(&row.name)])
        }
        Change::Remove { name, .. } => (RowStatement::RemoveBeside, vec![key, BoundValue::Blob(name)]),
        Change::Clear { .. } => return Err(Error::new(Kind::Misuse, "a compare-and-set cannot clear its partition")),
    };
    Ok(BoundStatement { statement, partition, values })
}

/// Reads the column `[applied]`, which is the first one.
pub(crate) fn is_applied(what: &str, answer: QueryResult) -> Result<bool> {
    let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
    let row = answer.first_row::<CqlRow>().map_err(|error| errors::unreadable(what, error))?;
    Ok(matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true)))))
}

/// Whether the attempt may have been applied although it failed.
fn is_in_doubt(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::DeadlinePassed(_) => true,
        // Not sent: preparing or binding failed.
        RequestFailure::Store(_) => false,
        RequestFailure::Driver(_, error) => match &**error {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
                // The coordinator gave up; a later one may still finish what some replicas accepted.
                matches!(
                    error,
                    DbError::WriteTimeout { .. }
                        | DbError::ReadTimeout { .. }
                        | DbError::WriteFailure { .. }
                        | DbError::ReadFailure { .. }
                        | DbError::Overloaded
                        | DbError::ServerError
                        | DbError::Other(_)
                ) || is_unavailable_for_commit(error)
            }
            // The request may have arrived, and its answer was lost with the connection.
            ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_)) => true,
            ExecutionError::RequestTimeout(_) => true,
            _ => false,
        },
    }
}

/// Whether the commit missed replicas. The commit follows the agreement, so another coordinator may finish it later. An
/// agreement that misses replicas reports SERIAL instead.
fn is_unavailable_for_commit(error: &DbError) -> bool {
    let DbError::Unavailable { consistency, .. } = error else { return false };
    // Race: the replicas may have agreed before the commit found too few of them [invariant 86].
    !matches!(consistency, Consistency::Serial | Consistency::LocalSerial)
}

/// Pauses before the next attempt, so that racing writers do not collide again.
async fn pause(request: &CasRequest<'_>) -> Result<()> {
    let base = PAUSE_FIRST.saturating_mul(1 << request.unanswered.min(8)).min(PAUSE_MAX);
    // Ids of two writers differ, so their pauses do.
    let jitter = request.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let until = Instant::now() + base + base.mul_f64(jitter as f64 / f64::from(1 << 25));
    if until >= request.options.deadline {
        return Err(errors::deadline_passed(request.partition.table.name()));
    }
    sleep_until(until).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Durability, Table};
    use scylla::errors::WriteType;

    fn head(stamp: Timestamp, expires: Option<Timestamp>, ids: &[u64]) -> StoredRow {
        let history = ids.iter().fold(CasHistory::default(), |history, id| history.followed_by(*id));
        StoredRow { row: Row { name: "".into(), value: "v".into(), stamp, expires }, history: Some(history) }
    }

    #[track_caller]
    fn check(expected: Option<Timestamp>, stored: Option<&StoredRow>, decision: CasDecision) {
        check_after(0, expected, stored, decision);
    }

    /// The decision after `unanswered` attempts to replace a head with the history 1, 2.
    #[track_caller]
    fn check_after(unanswered: u32, expected: Option<Timestamp>, stored: Option<&StoredRow>, decision: CasDecision) {
        let options = CallOptions::new(ConsistencyLevel::Quorum, Instant::now(), Durability::Disk);
        let partition = Partition::new(Table::Heads, "p");
        let new = head(Timestamp(100), None, &[]).row;
        let replaced = head(Timestamp(5), None, &[1, 2]).history.unwrap();
        let (changes, id) = (&[], 7);
        let request = CasRequest {
            partition: &partition,
            expected,
            head: &new,
            changes,
            options: &options,
            id,
            unanswered,
            replaced,
        };
        assert_eq!(decide(&request, stored, Timestamp(50)), decision);
    }

    #[test]
    fn the_stored_head_decides_a_compare_and_set() {
        let send = |stored: &StoredRow| CasGuard { stamp: Some(stored.row.stamp), history: stored.history.unwrap() };
        let nothing = CasGuard { stamp: None, history: CasHistory::default() };
        let (old, other) = (head(Timestamp(5), None, &[1, 2]), head(Timestamp(6), None, &[1, 2, 3]));
        check(Some(Timestamp(5)), Some(&old), CasDecision::Send(send(&old)));
        check(Some(Timestamp(5)), Some(&other), CasDecision::Conflict(Some(other.row.clone())));
        check(Some(Timestamp(5)), None, CasDecision::Conflict(None));
        check(None, None, CasDecision::Send(nothing));
        check(None, Some(&old), CasDecision::Conflict(Some(old.row.clone())));
    }

    #[test]
    fn a_write_whose_head_was_replaced_counts_as_applied() {
        for since in 0..32 {
            let ids: Vec<u64> = [1, 2, 7].into_iter().chain(100..100 + since).collect();
            check_after(1, Some(Timestamp(5)), Some(&head(Timestamp(200), None, &ids)), CasDecision::Applied);
        }
    }

    #[test]
    fn an_unanswered_write_conflicts_only_if_it_certainly_was_not_applied() {
        for since in [5, 31, 32, 60] {
            let ids: Vec<u64> = [1, 2].into_iter().chain(100..100 + since).collect();
            let later = head(Timestamp(200), None, &ids);
            let conflict = || CasDecision::Conflict(Some(later.row.clone()));
            check_after(0, Some(Timestamp(5)), Some(&later), conflict());
            check_after(
                1,
                Some(Timestamp(5)),
                Some(&later),
                if since < 32 { conflict() } else { CasDecision::Unknown },
            );
        }
    }

    #[test]
    fn a_write_that_failed_at_its_commit_is_in_doubt() {
        let failed = |error: DbError| {
            let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "from the node".into()));
            is_in_doubt(&RequestFailure::Driver("heads", Box::new(error)))
        };
        let unavailable = |consistency| DbError::Unavailable { consistency, required: 2, alive: 1 };
        assert!(!failed(unavailable(Consistency::Serial)), "no replica was asked to agree");
        assert!(failed(unavailable(Consistency::Quorum)) && failed(unavailable(Consistency::All)));
        assert!(failed(DbError::Overloaded), "too many hints: this fails after the agreement");
        let (consistency, received, required) = (Consistency::Serial, 1, 2);
        assert!(failed(DbError::WriteTimeout { consistency, received, required, write_type: WriteType::Cas }));
        assert!(!failed(DbError::Invalid));
    }

    #[test]
    fn an_expired_head_is_absent_and_its_stamp_is_still_the_guard() {
        let expired = head(Timestamp(5), Some(Timestamp(50)), &[1]);
        check(Some(Timestamp(5)), Some(&expired), CasDecision::Conflict(None));
        check(
            None,
            Some(&expired),
            CasDecision::Send(CasGuard { stamp: Some(Timestamp(5)), history: expired.history.unwrap() }),
        );
        let is_live = head(Timestamp(5), Some(Timestamp(51)), &[1]);
        check(None, Some(&is_live), CasDecision::Conflict(Some(is_live.row.clone())));
    }
}
