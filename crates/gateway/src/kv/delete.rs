//! Deleting an object: a tombstone in place of what was seen. A write it did not see survives.

use larder_model::address::Address;
use larder_model::causality::{Removed, Unlisted, Versions, Write};
use larder_model::rows::Micros;
use larder_store::{Level, Partition};

use super::permit::{Asked, Permit};
use super::put::{Basis, Target};
use super::{DeleteObject, Deleted, Quorums};
use crate::config::DeleteMode;
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
            let basis = match &request.context {
                Some(bytes) if request.conditions.is_empty() => Basis::of(self.open_context(bytes, &request.address)?),
                _ => {
                    let seen = self.versions(&request.address, &permit, reading).await?;
                    self.check(&request.conditions, &seen)?;
                    if let Some(nothing) = nothing_to_delete(&request, &seen) {
                        return Ok(nothing);
                    }
                    match &request.context {
                        Some(bytes) => Basis::of(self.open_context(bytes, &request.address)?),
                        None => Basis { removed: Removed::seen(&seen), covers: seen.context.covers, replaced: 0 },
                    }
                }
            };
            self.write_tombstone(&request.address, &permit, asked, basis).await?;
            Ok(Deleted::Done)
        })
        .await
    }

    async fn write_tombstone(&self, address: &Address, permit: &Permit, asked: Asked, basis: Basis) -> Result<()> {
        let mode = permit.mode;
        let clock = self.issue().await?;
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
            false => self.all_entries(address, clock, &asked.options).await?,
        };
        self.commit(Target { address, permit, asked }, &partition, write, forget).await?;
        Ok(())
    }

    /// When a tombstone written now goes.
    fn tombstone_expiry(&self) -> Option<Micros> {
        match self.config.delete_mode {
            DeleteMode::Keep => None,
            DeleteMode::After(time) => {
                Some(self.now().saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
            }
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
