//! Which row a write goes to, and what it leaves to those after it.
//!
//! ```text
//! fresh     put -> a new slot, the rows it replaces are removed       removed rows leave nothing behind
//! reused    put -> an own slot that is known to be dead, or a new one;   every removal weighs until it is compacted
//!                  its row covers the slots it knows dead
//! ```
//! A slot is this run's own: no other writes to it. It may be written again once all of it is dead: its last *issued* clock,
//! whatever became of that write, is named by the context or covered by it, or was a tombstone or replaced by a write that
//! was acknowledged. That clock is noted before the write is sent and never taken back, so two writes in flight never share a
//! row. The memory is bounded; what it forgets costs a row, never data, for a slot not remembered is never taken again.

use larder_model::causality::{Actor, Clock, Cover, Known, Removed, Slot, Unlisted, Write, dead_until};
use larder_model::hash;
use larder_model::limits::SLOTS_REMEMBERED_MAX;
use larder_store::{EngineLimits, Partition};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use super::put::Basis;
use crate::{Rule, Rules};

/// How long an entry of a view may have been there before its row: beyond this the row does not come any more.
const ENTRY_AHEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// How writes find their rows, as suits the engine.
pub(crate) enum Slots {
    /// Every write has a slot of its own.
    Fresh,
    /// Slots are taken again.
    Reused(Box<Memory>),
}

/// The own slots of keys lately written.
pub(crate) struct Memory {
    keys: Mutex<Cache<u128, Vec<Own>, BySlots>>,
    open_max: usize,
    rules: Rules,
}

/// One own slot of a key.
#[derive(Debug, Clone, Copy)]
struct Own {
    birth: Clock,
    /// The last clock it was given to.
    issued: Clock,
    /// Whether nothing of it lives up to that clock, and nothing is under way.
    dead: bool,
}

#[derive(Clone)]
struct BySlots;

impl Weighter<u128, Vec<Own>> for BySlots {
    fn weight(&self, _: &u128, slots: &Vec<Own>) -> u64 {
        1 + slots.len() as u64
    }
}

impl Slots {
    /// What suits an engine. A gateway has up to `open_max` slots of a key in use before it asks how many rows there are.
    pub(crate) fn suiting(limits: &EngineLimits, open_max: usize, rules: Rules) -> Self {
        if !limits.keeps_tombstones {
            return Self::Fresh;
        }
        let keys = Mutex::new(Cache::with_weighter(SLOTS_REMEMBERED_MAX / 2, SLOTS_REMEMBERED_MAX as u64, BySlots));
        Self::Reused(Box::new(Memory { keys, open_max, rules }))
    }

    /// The slot of a write by `actor` at `clock`, which must have been issued after `basis` was read. From now on it is in use.
    pub(super) fn take(&self, actor: Actor, clock: Clock, partition: &Partition, basis: &Basis) -> Slot {
        match self {
            Self::Fresh => Slot { actor, birth: clock },
            Self::Reused(memory) => memory.take(actor, clock, partition, basis),
        }
    }

    /// The dead slots that the write into `own` knows of.
    pub(super) fn known(&self, own: Slot, basis: &Basis) -> Known {
        match self {
            Self::Reused(memory) if memory.rules.has(Rule::CarryCovers) => {
                Known::by(own, &basis.covers, &basis.removed)
            }
            _ => Known::default(),
        }
    }

    /// The entries that a put takes from views: of replaced rows none, for the key lives on and covers name them; but those of
    /// slots that nobody remembers after it.
    pub(super) fn unlisted_by_put(&self, known: Known) -> Unlisted {
        match self {
            Self::Reused(memory) if memory.rules.has(Rule::LeaveKeyRows) => Unlisted::Slots(known.dropped),
            _ => Unlisted::Removed,
        }
    }

    /// The entries that a deletion takes from views: of all that is dead with it.
    pub(super) fn unlisted_by_delete(&self, basis: &Basis) -> Unlisted {
        match self {
            Self::Reused(memory) if memory.rules.has(Rule::UnlistCovered) => {
                let Known { mut carried, dropped } =
                    Known::by(Slot { actor: 0, birth: 0 }, &basis.covers, &basis.removed);
                carried.extend(dropped);
                Unlisted::Slots(carried)
            }
            _ => Unlisted::Removed,
        }
    }

    /// Whether the store is to count the rows of the key.
    pub(super) fn wants_count(&self, partition: &Partition) -> bool {
        match self {
            Self::Fresh => true,
            Self::Reused(memory) => memory.is_crowded(partition),
        }
    }

    /// Notes that a write was acknowledged; `counted` if the store found the key within its limit.
    pub(super) fn settled(&self, partition: &Partition, write: &Write, counted: bool) {
        if let Self::Reused(memory) = self
            && write.mode.names_slots()
        {
            memory.settled(partition, write, counted);
        }
    }

    /// Whether the row that an entry written at `stamp` belongs to, and is not there, will not come any more.
    pub(crate) fn is_orphan(&self, stamp: Clock, now: Clock) -> bool {
        match self {
            // Entries come and go with their rows.
            Self::Fresh => true,
            Self::Reused(_) => stamp.saturating_add(ENTRY_AHEAD_MICROS) < now,
        }
    }

    /// Forgets everything, as eviction does with one key after the other.
    #[cfg(feature = "rules")]
    pub(crate) fn forget(&self) {
        if let Self::Reused(memory) = self {
            memory.keys.lock().clear();
        }
    }
}

impl Memory {
    fn take(&self, actor: Actor, clock: Clock, partition: &Partition, basis: &Basis) -> Slot {
        let named: Vec<Cover> = basis.removed.iter().filter_map(Removed::cover).collect();
        let mut keys = self.keys.lock();
        let birth = match keys.get_mut_or_guard(&name_of(partition)) {
            Ok(Some(mut slots)) => self.take_of(&mut slots, actor, clock, &named, &basis.covers),
            Ok(None) => clock,
            Err(guard) => {
                let birth = if self.rules.has(Rule::NewBirthWhenForgotten) { clock } else { 1 };
                guard.insert(vec![Own { birth, issued: clock, dead: false }]);
                birth
            }
        };
        Slot { actor, birth }
    }

    /// Takes a dead slot, rather one that the context names as it is: that one is overwritten, and nothing has to be removed.
    fn take_of(&self, slots: &mut Vec<Own>, actor: Actor, clock: Clock, named: &[Cover], covers: &[Cover]) -> Clock {
        let reuses_dead = self.rules.has(Rule::ReuseTombstones);
        let until = |dead: &[Cover], own: &Own| dead_until(dead, Slot { actor, birth: own.birth });
        for own in slots.iter_mut() {
            own.dead |= until(covers, own) >= own.issued;
        }
        let is_named = |own: &Own| until(named, own) >= own.issued;
        let is_free = |own: &Own| own.issued < clock && (is_named(own) || own.dead && reuses_dead);
        if let Some(own) = slots.iter_mut().filter(|own| is_free(own)).max_by_key(|own| (is_named(own), own.issued)) {
            own.dead = false;
            if self.rules.has(Rule::IssueBeforeSend) {
                own.issued = clock;
            }
            return own.birth;
        }
        if slots.len() > 2 * self.open_max {
            slots.remove(0);
        }
        slots.push(Own { birth: clock, issued: clock, dead: false });
        clock
    }

    fn is_crowded(&self, partition: &Partition) -> bool {
        let keys = self.keys.lock();
        let slots = keys.peek(&name_of(partition));
        slots.is_some_and(|slots| slots.iter().filter(|own| !own.dead).count() > self.open_max)
    }

    fn settled(&self, partition: &Partition, write: &Write, counted: bool) {
        let written = write.row.as_ref().and_then(|row| Slot::from_row_name(&row.name).ok());
        let mut gone: Vec<Cover> = write.removed.iter().filter_map(Removed::cover).collect();
        if write.tombstone {
            gone.extend(written.map(|slot| Cover { slot, clock: write.clock }));
        }
        let Some(actor) = written.map(|slot| slot.actor) else { return };
        let mut keys = self.keys.lock();
        let Some(mut slots) = keys.get_mut(&name_of(partition)) else { return };
        let is_written = |own: &Own| written.is_some_and(|slot| slot.birth == own.birth);
        for own in slots.iter_mut() {
            if is_written(own) {
                own.issued = own.issued.max(write.clock);
            }
            own.dead |= dead_until(&gone, Slot { actor, birth: own.birth }) >= own.issued;
        }
        // What was thought to be open is not, or the count would have been above the limit.
        if counted {
            slots.retain(|own| own.dead || is_written(own));
        }
    }
}

/// Keys are remembered by a hash, whatever their length.
fn name_of(partition: &Partition) -> u128 {
    hash::id128(&[&[partition.table.code(), partition.n_val], &partition.key])
}
