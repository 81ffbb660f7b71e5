//! Compare-and-set on heads: one conditional batch, on one partition of one table, at SERIAL.
//!
//! ```text
//!         what is known of the head: its stamp and writers, remembered or read
//!   ┌──>  conditional batch: head (v, s, w) IF s = stamp, and its other changes
//!   │       applied     answered
//!   │       refused     the head is read: a conflict; or it has expired and its stamp is the guard now; or an attempt of
//!   │                   this swap that seemed lost was applied
//!   │       unknown     the head is read at SERIAL, which decides what was under way: applied, a conflict, or
//!   └───────────────────not applied: again, with the same head and the same id; or so many others have written since that
//!                       the head does not say: `TimedOut`
//! ```
//! Transactions are as many datacenters as there are: SERIAL, never LOCAL_SERIAL. Two groups that agree on their own are two
//! heads. The rows beside the head carry the transaction's timestamps, so the order of their writes is that of the heads.

use std::time::Duration;

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::batch::BatchType;
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::{Instant, sleep_until};

use larder_store::writers::{Verdict, Writers};
use larder_store::{Change, Error, Kind, Level, Micros, Options, Partition, Result, Row, Stamp, Swap};

use crate::cluster::{Bound, Cluster, Failure, in_time};
use crate::encoding::{Value, timestamp, ttl_seconds};
use crate::errors;
use crate::figures::count;
use crate::read::{Stored, live};
use crate::statements::Statement;
use crate::writers::Known;

/// The first pause after an attempt that was not decided; each is twice as long, and up to half as much again.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// One swap, whatever number of attempts it takes.
struct Attempt<'a> {
    partition: &'a Partition,
    expected: Option<Stamp>,
    head: &'a Row,
    changes: &'a [Change],
    options: &'a Options,
    /// Named by the head if it was written.
    id: u64,
    /// How often it was sent without an answer.
    unknown: u32,
    /// The writers of the head that the last attempt was to replace.
    replaced: Writers,
}

/// What the guard has to be, and the writers of the head that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guard {
    stamp: Option<Stamp>,
    writers: Writers,
}

/// What a look at the head says.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Applied,
    Conflict(Option<Row>),
    Go(Guard),
    /// An attempt was not answered, and too many have written since.
    Forgotten,
}

/// What became of an attempt.
enum Outcome {
    Applied,
    Refused,
    Unknown(Failure),
}

impl Cluster {
    /// Swaps a head whose contract has been checked.
    pub(crate) async fn swap(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: &Row,
        changes: &[Change],
        options: &Options,
    ) -> Result<Swap> {
        let what = partition.table.name();
        in_time(options, what)?;
        if changes.iter().any(|change| matches!(change, Change::Clear { .. })) {
            // A transaction gives all it writes one timestamp, and a removal of that timestamp takes the head too.
            return Err(Error::new(Kind::Misuse, format!("{what}: a swap cannot clear its partition: name the rows")));
        }
        self.ensure(partition, options.deadline).await?;
        let id = self.ids.next();
        let mut attempt =
            Attempt { partition, expected, head, changes, options, id, unknown: 0, replaced: Writers::default() };
        let mut guard = match self.remembered(&attempt) {
            Some(guard) => guard,
            None => {
                count(&self.counters.heads_looked_up);
                match self.look(&attempt, None).await? {
                    Found::Go(guard) => guard,
                    found => return self.answer(&attempt, found),
                }
            }
        };
        loop {
            attempt.replaced = guard.writers;
            let found = match self.attempt(&attempt, guard).await? {
                Outcome::Applied => {
                    self.remember(&attempt, guard);
                    return Ok(Swap::Applied);
                }
                Outcome::Refused => self.look(&attempt, Some(guard)).await?,
                Outcome::Unknown(failure) => {
                    count(&self.counters.swaps_unknown);
                    attempt.unknown += 1;
                    self.decided(&attempt, failure).await?
                }
            };
            match found {
                Found::Go(next) => guard = next,
                found => return self.answer(&attempt, found),
            }
            count(&self.counters.swaps_repeated);
            pause(&attempt).await?;
        }
    }

    /// What is remembered of the head, if that is enough to try.
    fn remembered(&self, attempt: &Attempt<'_>) -> Option<Guard> {
        let Some(expected) = attempt.expected else {
            return Some(Guard { stamp: None, writers: Writers::default() });
        };
        let known = self.heads.get(attempt.partition, &attempt.head.name)?;
        let lives = known.expires.is_none_or(|expires| expires > self.clock.now());
        (known.stamp == expected && lives).then_some(Guard { stamp: Some(expected), writers: known.writers })
    }

    fn remember(&self, attempt: &Attempt<'_>, guard: Guard) {
        let Row { stamp, expires, ref name, .. } = *attempt.head;
        let writers = guard.writers.followed_by(attempt.id);
        self.heads.put(attempt.partition, name, Known { stamp, expires, writers });
    }

    fn answer(&self, attempt: &Attempt<'_>, found: Found) -> Result<Swap> {
        match found {
            Found::Conflict(head) => Ok(Swap::Conflict(head)),
            Found::Applied | Found::Go(_) => {
                if attempt.unknown > 0 {
                    count(&self.counters.swaps_found_applied);
                }
                Ok(Swap::Applied)
            }
            Found::Forgotten => {
                let what = attempt.partition.table.name();
                let text = format!("{what}: a swap was not answered, and so many followed that its head does not tell");
                Err(Error::new(Kind::TimedOut, text))
            }
        }
    }

    /// Sends the conditional batch once.
    async fn attempt(&self, attempt: &Attempt<'_>, guard: Guard) -> Result<Outcome> {
        let Attempt { partition, head, changes, options, .. } = *attempt;
        let now = self.clock.now();
        let (key, writers) = (Value::Blob(&partition.key), guard.writers.followed_by(attempt.id).encode());
        let mut all = Vec::with_capacity(changes.len() + 1);
        let values = vec![
            Value::Int(ttl_seconds(head.expires, now)),
            Value::Stored(&head.value, head.expires),
            Value::BigInt(timestamp(head.stamp)?),
            Value::Blob(&writers),
            key,
            Value::Blob(&head.name),
            Value::Stamp(guard.stamp.map(timestamp).transpose()?),
        ];
        all.push(Bound { statement: Statement::Swap, partition, values });
        for change in changes {
            all.push(beside(partition, change, now)?);
        }
        // Never ALL: a commit that asks for every copy fails over one of them after the others have agreed.
        let consistency = self.consistency(partition, Level::Quorum, true);
        let under_way = self.undecided.begin(partition);
        let sent = match &all[..] {
            [one] => self.execute(one, consistency, options.deadline).await,
            several => self.batch(BatchType::Unlogged, several, consistency, options.deadline).await,
        };
        match sent {
            Ok(answer) => {
                let applied = is_applied(partition.table.name(), answer)?;
                under_way.ended();
                Ok(if applied { Outcome::Applied } else { Outcome::Refused })
            }
            Err(failure) if is_undecided(&failure) || attempt.unknown > 0 => Ok(Outcome::Unknown(failure)),
            Err(failure) => {
                under_way.ended();
                Err(failure.into())
            }
        }
    }

    /// Looks what became of an attempt that nobody answered, until that can be said.
    async fn decided(&self, attempt: &Attempt<'_>, failure: Failure) -> Result<Found> {
        let what = attempt.partition.table.name();
        let Attempt { partition, head, options, .. } = *attempt;
        let mut tries = Attempt { unknown: 0, ..*attempt };
        loop {
            match self.row(partition, &head.name, Consistency::Serial, options.deadline).await {
                Ok(stored) => return Ok(judge(attempt, stored.as_ref(), self.clock.now())),
                Err(_) if pause(&tries).await.is_ok() => tries.unknown += 1,
                Err(_) => break,
            }
        }
        let cause = Error::from(failure);
        Err(Error { kind: Kind::TimedOut, context: format!("{what}: a swap was not decided: {cause}"), ..cause })
    }

    /// Looks at the head. An answer that may be older than what is known already is looked for again at SERIAL.
    async fn look(&self, attempt: &Attempt<'_>, refused: Option<Guard>) -> Result<Found> {
        let Attempt { partition, head, expected, options, .. } = *attempt;
        let consistency = self.consistency(partition, Level::Quorum, false);
        let stored = self.row(partition, &head.name, consistency, options.deadline).await?;
        let found = judge(attempt, stored.as_ref(), self.clock.now());
        let is_new = match &found {
            Found::Applied | Found::Forgotten => true,
            Found::Conflict(found) => found.as_ref().is_some_and(|row| Some(row.stamp) > expected),
            Found::Go(guard) => refused.is_none_or(|refused| refused.stamp != guard.stamp),
        };
        if is_new {
            return Ok(found);
        }
        let stored = self.row(partition, &head.name, Consistency::Serial, options.deadline).await?;
        Ok(judge(attempt, stored.as_ref(), self.clock.now()))
    }
}

/// What a head means for a swap.
fn judge(attempt: &Attempt<'_>, stored: Option<&Stored>, now: Micros) -> Found {
    let writers = stored.and_then(|stored| stored.writers).unwrap_or_default();
    let head = live(stored, now);
    let unchanged = head.map(|row| row.stamp) == attempt.expected;
    match writers.verdict(attempt.id, &attempt.replaced, unchanged) {
        Verdict::Done => Found::Applied,
        // One that has expired may still be there for Cassandra, and is what its guard sees.
        Verdict::Open => Found::Go(Guard { stamp: stored.map(|stored| stored.row.stamp), writers }),
        Verdict::Forgotten if attempt.unknown > 0 => Found::Forgotten,
        // Whatever was sent was answered: nothing of it is there.
        Verdict::Lost | Verdict::Forgotten => Found::Conflict(head.cloned()),
    }
}

fn beside<'a>(partition: &'a Partition, change: &'a Change, now: Micros) -> Result<Bound<'a>> {
    let key = Value::Blob(&partition.key);
    let (statement, values) = match change {
        Change::Put(row) => {
            let ttl = Value::Int(ttl_seconds(row.expires, now));
            let (value, stamp) = (Value::Stored(&row.value, row.expires), Value::BigInt(timestamp(row.stamp)?));
            (Statement::PutBeside, vec![ttl, value, stamp, key, Value::Blob(&row.name)])
        }
        Change::Remove { name, .. } => (Statement::RemoveBeside, vec![key, Value::Blob(name)]),
        Change::Clear { .. } => return Err(Error::new(Kind::Misuse, "a swap cannot clear its partition")),
    };
    Ok(Bound { statement, partition, values })
}

/// Reads the column `[applied]`, which is the first.
fn is_applied(what: &str, answer: QueryResult) -> Result<bool> {
    let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
    let row = answer.first_row::<CqlRow>().map_err(|error| errors::unreadable(what, error))?;
    Ok(matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true)))))
}

/// Whether the swap may have been applied though it failed.
fn is_undecided(failure: &Failure) -> bool {
    match failure {
        Failure::Late(_) => true,
        Failure::Store(_) => false,
        Failure::Driver(_, error) => match &**error {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
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
            ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_)) => true,
            ExecutionError::RequestTimeout(_) => true,
            _ => false,
        },
    }
}

/// Whether replicas were missed by the commit, which follows their agreement: others may carry it out later. Those that are
/// missed before it are missed at SERIAL.
fn is_unavailable_for_commit(error: &DbError) -> bool {
    let DbError::Unavailable { consistency, .. } = error else { return false };
    !matches!(consistency, Consistency::Serial | Consistency::LocalSerial)
}

/// Waits a little, so that racing swaps do not race again at once.
async fn pause(attempt: &Attempt<'_>) -> Result<()> {
    let base = PAUSE.saturating_mul(1 << attempt.unknown.min(8)).min(PAUSE_MAX);
    // The id is random enough to part two swaps.
    let jitter = attempt.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let until = Instant::now() + base + base.mul_f64(jitter as f64 / f64::from(1 << 25));
    if until >= attempt.options.deadline {
        return Err(errors::late(attempt.partition.table.name()));
    }
    sleep_until(until).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Durability, Table};
    use scylla::errors::WriteType;

    fn head(stamp: Stamp, expires: Option<Micros>, ids: &[u64]) -> Stored {
        let writers = ids.iter().fold(Writers::default(), |writers, id| writers.followed_by(*id));
        Stored { row: Row { name: "".into(), value: "v".into(), stamp, expires }, writers: Some(writers) }
    }

    #[track_caller]
    fn check(expected: Option<Stamp>, stored: Option<&Stored>, found: Found) {
        check_after(0, expected, stored, found);
    }

    /// After so many attempts to replace a head of the writers 1 and 2 that were not answered.
    #[track_caller]
    fn check_after(unknown: u32, expected: Option<Stamp>, stored: Option<&Stored>, found: Found) {
        let options = Options::new(Level::Quorum, Instant::now(), Durability::Disk);
        let partition = Partition::own(Table::Heads, "p");
        let new = head(100, None, &[]).row;
        let replaced = head(5, None, &[1, 2]).writers.unwrap();
        let (changes, id) = (&[], 7);
        let attempt =
            Attempt { partition: &partition, expected, head: &new, changes, options: &options, id, unknown, replaced };
        assert_eq!(judge(&attempt, stored, 50), found);
    }

    #[test]
    fn a_head_decides_what_became_of_a_swap() {
        let go = |stored: &Stored| Guard { stamp: Some(stored.row.stamp), writers: stored.writers.unwrap() };
        let nothing = Guard { stamp: None, writers: Writers::default() };
        let (old, other) = (head(5, None, &[1, 2]), head(6, None, &[1, 2, 3]));
        check(Some(5), Some(&old), Found::Go(go(&old)));
        check(Some(5), Some(&other), Found::Conflict(Some(other.row.clone())));
        check(Some(5), None, Found::Conflict(None));
        check(None, None, Found::Go(nothing));
        check(None, Some(&old), Found::Conflict(Some(old.row.clone())));
    }

    #[test]
    fn a_swap_whose_head_was_replaced_had_been_applied() {
        for since in 0..32 {
            let ids: Vec<u64> = [1, 2, 7].into_iter().chain(100..100 + since).collect();
            check_after(1, Some(5), Some(&head(200, None, &ids)), Found::Applied);
        }
    }

    #[test]
    fn a_swap_that_was_not_answered_conflicts_only_where_it_certainly_was_not_applied() {
        for since in [5, 31, 32, 60] {
            let ids: Vec<u64> = [1, 2].into_iter().chain(100..100 + since).collect();
            let later = head(200, None, &ids);
            let conflict = || Found::Conflict(Some(later.row.clone()));
            check_after(0, Some(5), Some(&later), conflict());
            check_after(1, Some(5), Some(&later), if since < 32 { conflict() } else { Found::Forgotten });
        }
    }

    #[test]
    fn a_swap_that_failed_at_its_commit_was_once_called_not_applied() {
        let failed = |error: DbError| {
            let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "said the node".into()));
            is_undecided(&Failure::Driver("heads", Box::new(error)))
        };
        let unavailable = |consistency| DbError::Unavailable { consistency, required: 2, alive: 1 };
        assert!(!failed(unavailable(Consistency::Serial)), "nobody was asked to agree");
        assert!(failed(unavailable(Consistency::Quorum)) && failed(unavailable(Consistency::All)));
        assert!(failed(DbError::Overloaded), "too many hints: after the agreement");
        let (consistency, received, required) = (Consistency::Serial, 1, 2);
        assert!(failed(DbError::WriteTimeout { consistency, received, required, write_type: WriteType::Cas }));
        assert!(!failed(DbError::Invalid));
    }

    #[test]
    fn an_expired_head_is_absent_but_guards() {
        let expired = head(5, Some(50), &[1]);
        check(Some(5), Some(&expired), Found::Conflict(None));
        check(None, Some(&expired), Found::Go(Guard { stamp: Some(5), writers: expired.writers.unwrap() }));
        let lives = head(5, Some(51), &[1]);
        check(None, Some(&lives), Found::Conflict(Some(lives.row.clone())));
    }
}
