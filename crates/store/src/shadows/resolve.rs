//! What a pending shadow reads as, and how it is settled.

use bytes::Bytes;

use super::form::{self, DAY, HeadName};
use super::{Rule, Shadowed};
use crate::{
    Batch, Change, Durability, Level, Micros, Options, Partition, ReadQuery, Result, Row, Shadow, Stamp, Store, Swap,
};

/// How long a pending shadow is left to its writer. Shorter is as right, and disturbs more writers.
const YOUNG: Micros = 30 * 1_000_000;

/// What to do about a pending shadow.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The head has decided: write down what it says.
    Confirm,
    /// The writer may be on its way.
    Leave,
    /// The writer is late: give the head this stamp.
    Touch(Stamp),
    /// There is nothing to touch, and nobody comes any more.
    Remove,
}

/// A shadow that tells its readers to ask.
pub(super) struct Pending<'a> {
    pub(super) partition: &'a Partition,
    pub(super) name: &'a Bytes,
    pub(super) stamp: Stamp,
    pub(super) head: &'a HeadName,
}

impl Pending<'_> {
    fn reads(&self, value: Option<Bytes>) -> Shadow {
        Shadow { partition: self.partition.clone(), name: self.name.clone(), value }
    }
}

impl<S: Store + ?Sized> Shadowed<S> {
    /// The pending shadow as its head says; settles it if it may.
    ///
    /// # Errors
    /// Those of reading the head: what cannot be settled now is settled by a later reader.
    pub(super) async fn resolve(&self, pending: &Pending<'_>, options: &Options) -> Result<Option<Row>> {
        let options = &Options { level: options.level.max(Level::Quorum), ..*options };
        let HeadName { partition, row } = pending.head;
        let page = self.inner.read(partition, &ReadQuery::one(row.clone()), options).await?;
        let mut head = page.rows.into_iter().next();
        let now = self.now(options).await?;
        loop {
            let step = step(head.as_ref().map(|head| head.stamp), pending.stamp, now);
            let Some(current) = head else {
                if step == Step::Remove {
                    self.remove(pending, options).await;
                }
                return Ok(None);
            };
            let mut stamp = current.stamp;
            let (_, shadow) = form::of_guarded(current.value.clone())?;
            let shadow = pending.reads(shadow.and_then(|shadow| shadow.value));
            match step {
                Step::Leave | Step::Remove => {}
                Step::Confirm => self.confirm(&shadow, stamp, options).await,
                Step::Touch(_) if !self.has(Rule::TouchBeforeDiscard) => {
                    self.confirm(&shadow, pending.stamp + 1, options).await;
                }
                Step::Touch(greater) => match self.touch(partition, current, greater, options).await {
                    Ok(Swap::Applied) => {
                        stamp = greater;
                        self.confirm(&shadow, stamp, options).await;
                    }
                    Ok(Swap::Conflict(newer)) => {
                        super::in_time(options)?;
                        head = newer;
                        continue;
                    }
                    // Perhaps it is touched. What was read before was true then, and so is the answer.
                    Err(_) => {}
                },
            }
            return Ok(shadow.value.map(|value| Row { name: shadow.name, value, stamp, expires: None }));
        }
    }

    /// Rewrites a head as it is: who swaps against its old stamp is refused from now on.
    async fn touch(&self, partition: &Partition, head: Row, stamp: Stamp, options: &Options) -> Result<Swap> {
        let expected = Some(head.stamp);
        self.inner.apply_if(partition, expected, Row { stamp, ..head }.into(), Vec::new(), options).await
    }

    async fn remove(&self, pending: &Pending<'_>, options: &Options) {
        let options = Options { durability: Durability::Buffered, ..*options };
        let change = Change::Remove { name: pending.name.clone(), stamp: pending.stamp };
        let _ = self.inner.apply(Batch::of(pending.partition.clone(), vec![change]), &options).await;
    }
}

/// What is to be done about a shadow pending at `pending` whose head has the stamp `head`.
fn step(head: Option<Stamp>, pending: Stamp, now: Micros) -> Step {
    let age = now.saturating_sub(pending);
    match head {
        Some(head) if head > pending => Step::Confirm,
        Some(head) if age >= YOUNG => Step::Touch(now.max(head + 2).max(pending + 2)),
        None if age >= DAY => Step::Remove,
        Some(_) | None => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_left_alone_then_fenced() {
        assert_eq!(step(Some(101), 100, 0), Step::Confirm);
        assert_eq!(step(Some(50), 100, 100), Step::Leave);
        assert_eq!(step(Some(50), 100, 0), Step::Leave, "a clock ahead of the store's is no age");
        assert_eq!(step(Some(50), 100, 100 + YOUNG), Step::Touch(100 + YOUNG));
        assert_eq!(step(Some(100), 100, 99 + YOUNG), Step::Leave);
        assert_eq!(step(None, 100, 100 + YOUNG), Step::Leave, "nothing there to fence it with");
        assert_eq!(step(None, 100, 100 + DAY), Step::Remove);
    }
}
