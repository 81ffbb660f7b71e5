//! Deleting an object: a tombstone in place of what was seen. A write it did not see survives.

use std::time::Duration;

use larder_model::causality::{Clock, Mode, Removed, Unlisted, Versions, Write};
use larder_model::rows::Micros;
use larder_store::{Level, Partition, micros_of};

use super::permit::{Asked, Permit};
use super::put::{Basis, ConditionGuard, Target, stamps_of};
use super::{DeleteObject, Deleted, Quorums};
use crate::config::DeleteMode;
use crate::members::SKEW_MICROS_MAX;
use crate::metrics::Op;
use crate::{Gateway, Result, Rule};

impl Gateway {
    /// Deletes an object. With a context it removes what that names and reads nothing; without, what a read shows now.
    ///
    /// # Errors
    /// As [`Gateway::put`].
    pub async fn delete(&self, request: DeleteObject) -> Result<Deleted> {
        self.measured_as(Op::Delete, Deleted::outcome, async {
            let permit = self.permit(&request.address.bucket, request.timeout).await?;
            self.permit_write(&permit)?;
            let quorums = with_rw(&request.quorums, &permit);
            let asked = self.ask_write(&permit, &quorums)?.reclaiming();
            let reading = self.read_before_delete(&permit, &quorums)?;
            if permit.props.consistent {
                return self.delete_consistent(request, permit, asked).await;
            }
            let mut guard = None;
            let basis = match &request.context {
                Some(bytes) if request.conditions.is_empty() => Basis::of(self.open_context(bytes, &request.address)?),
                _ => {
                    let rows = self.rows_of(&request.address, &permit, reading).await?.rows;
                    let rows_seen = stamps_of(&rows);
                    let seen = self.shown(&permit, rows)?;
                    self.check(&request.conditions, &seen)?;
                    if let Some(nothing) = nothing_to_delete(&request, &seen) {
                        return Ok(nothing);
                    }
                    if !request.conditions.is_empty() {
                        guard = Some(ConditionGuard { conditions: request.conditions.clone(), seen: rows_seen });
                    }
                    match &request.context {
                        Some(bytes) => Basis::of(self.open_context(bytes, &request.address)?),
                        None => Basis { removed: Removed::seen(&seen), covers: seen.context.covers, replaced: 0 },
                    }
                }
            };
            let target = Target { address: &request.address, permit: &permit, asked };
            self.write_tombstone(target, basis, guard).await?;
            Ok(Deleted::Done)
        })
        .await
    }

    async fn write_tombstone(&self, target: Target<'_>, basis: Basis, guard: Option<ConditionGuard>) -> Result<()> {
        let Target { address, permit, asked } = target;
        let mode = permit.mode;
        let clock = self.clock_of_tombstone(mode, &basis).await?;
        let partition = Partition::object(address, false, permit.props.copies);
        let slot = self.slot(mode, clock, &partition, &basis);
        let (covers, unlisted) = match mode.names_slots() {
            true => (self.slots.known(slot, &basis).carried, self.slots.unlisted_by_delete(&basis)),
            false => (Vec::new(), Unlisted::Removed),
        };
        let mut write = Write::delete(mode, slot, clock, self.tombstone_expiry(), covers, basis.removed);
        write.unlisted = unlisted;
        if !self.rule(Rule::LeaveTombstone) {
            write.row = None;
        }
        let forget = match mode.names_slots() {
            true => self.stale_entries(address, &write, &asked.options).await,
            // As old as what the deletion clears: a put of the same microsecond keeps its row, and its entry.
            false => self.all_entries(address, clock - 1, &asked.options).await?,
        };
        self.commit_guarded(target, &partition, write, (forget, guard)).await?;
        if mode == Mode::WriteOnce {
            self.outwait_late_clocks(clock).await;
        }
        Ok(())
    }

    /// The clock of a tombstone. In `write_once` it takes all rows that are not newer, those of later puts among them when
    /// their gateway's clock is late: so it is no newer than what it removes.
    async fn clock_of_tombstone(&self, mode: Mode, basis: &Basis) -> Result<Clock> {
        let latest = basis.removed.iter().map(|gone| gone.clock).max();
        match latest.filter(|_| mode == Mode::WriteOnce && self.ports.store.limits().keeps_tombstones) {
            Some(latest) => Ok(latest + 1),
            None => self.issue().await,
        }
    }

    /// Waits until every gateway's clock is past this one, which it is already but for a value that was just written: a put
    /// that follows the answer is newer than the tombstone. A gateway whose clock is later than that takes no writes.
    async fn outwait_late_clocks(&self, clock: Clock) {
        if self.ports.store.limits().keeps_tombstones && self.rule(Rule::OutwaitLateClocks) {
            // Both clocks may be off, each in its own direction.
            let apart = 2 * SKEW_MICROS_MAX;
            let past = clock.saturating_add(apart).saturating_sub(self.now()).min(apart);
            tokio::time::sleep(Duration::from_micros(past)).await;
        }
    }

    /// When a tombstone written now goes.
    fn tombstone_expiry(&self) -> Option<Micros> {
        match self.config.delete_mode {
            DeleteMode::Keep => None,
            DeleteMode::After(time) => Some(self.now().saturating_add(micros_of(time))),
        }
    }

    /// A delete that reads first does so at a quorum, unless the client asked for less: a value that a few replicas lack would
    /// be back once the others are.
    fn read_before_delete(&self, permit: &Permit, quorums: &Quorums) -> Result<Asked> {
        let own = self.ask_read(permit, quorums)?;
        Ok(match quorums.r {
            Some(_) => own,
            None if self.rule(Rule::DeleteAtQuorum) => own.never_below(Level::Quorum),
            None => own.at(Level::One),
        })
    }
}

/// `rw` stands for `w` and `r` where a delete gives neither.
fn with_rw(quorums: &Quorums, permit: &Permit) -> Quorums {
    if quorums.r.is_some() || quorums.w.is_some() {
        return *quorums;
    }
    let rw = quorums.rw.or(Some(permit.props.rw));
    Quorums { w: rw, r: quorums.rw, ..*quorums }
}

pub(super) fn nothing_to_delete(request: &DeleteObject, seen: &Versions) -> Option<Deleted> {
    let absent = request.context.is_none() && seen.siblings.is_empty();
    absent.then(|| Deleted::NotFound(seen.deleted.then(|| seen.context.encode(&request.address))))
}
