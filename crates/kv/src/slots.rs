//! Chooses the slot, that is the row, of a write.
//!
//! ```text
//! fresh     put -> a new slot; the replaced rows are removed            engines where a removed row leaves no tombstone
//! reused    put -> a dead slot of this gateway, or a new one;           engines where every tombstone slows reads
//!                  its row carries the version vector of dead slots
//! ```
//! Only one run of one gateway writes to a slot. The slot is dead, and may be reused, once its last *issued* clock is
//! superseded, whether or not that write succeeded: the context names or covers the clock, or an acknowledged write was its
//! tombstone or replaced it. The allocator records the clock before the write is sent, so two writes in flight never share a
//! row. Its memory is bounded: a forgotten slot costs a row and never data, because it is never reused.

use larder_rows::limits::SLOTS_REMEMBERED_MAX;
use larder_rows::{ActorId, Timestamp, hash};
use larder_store::{EngineLimits, Partition};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::rules::causality::{
    CarriedVector, ConflictPolicy, Context, IndexRemovals, KeyWrite, SHARED_SLOT, Slot, SupersededRow, VectorEntry,
    VersionVector,
};

/// Longest time that a listing entry may precede its row, in microseconds; later the row will never come.
const ENTRY_AHEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// Allocates slots in the way that suits the engine.
pub(crate) enum SlotAllocator {
    /// Every write gets a new slot.
    Fresh,
    /// Writes reuse dead slots.
    Reused(Box<SlotMemory>),
}

/// This gateway's slots of recently written keys.
pub(crate) struct SlotMemory {
    keys: Mutex<Cache<u128, Vec<OwnedSlot>, SlotWeighter>>,
    open_max: usize,
}

/// A slot of this gateway.
#[derive(Debug, Clone, Copy)]
struct OwnedSlot {
    birth: Timestamp,
    /// The last clock issued for it.
    issued: Timestamp,
    /// Whether everything up to `issued` is superseded and no write is in flight.
    dead: bool,
}

#[derive(Clone)]
struct SlotWeighter;

impl Weighter<u128, Vec<OwnedSlot>> for SlotWeighter {
    fn weight(&self, _: &u128, slots: &Vec<OwnedSlot>) -> u64 {
        1 + slots.len() as u64
    }
}

impl SlotAllocator {
    /// The allocator for an engine. A gateway uses up to `open_max` slots of a key before it has the rows counted.
    pub(crate) fn for_engine(limits: &EngineLimits, open_max: usize) -> Self {
        if !limits.tombstones_slow_reads {
            return Self::Fresh;
        }
        let keys =
            Mutex::new(Cache::with_weighter(SLOTS_REMEMBERED_MAX / 2, SLOTS_REMEMBERED_MAX as u64, SlotWeighter));
        Self::Reused(Box::new(SlotMemory { keys, open_max }))
    }

    /// Allocates the slot of a write by `actor` at `clock`, which must have been issued after `basis` was read.
    pub(super) fn allocate(
        &self,
        actor: ActorId,
        clock: Timestamp,
        partition: &Partition,
        basis: &CausalBasis,
    ) -> Slot {
        match self {
            Self::Fresh => Slot { actor, birth: clock },
            Self::Reused(memory) => memory.allocate(actor, clock, partition, basis),
        }
    }

    /// The version vector of a write into `slot`.
    pub(super) fn carried_vector(&self, slot: Slot, basis: &CausalBasis) -> CarriedVector {
        match self {
            Self::Fresh => CarriedVector::default(),
            Self::Reused(_) => CarriedVector::from_write(slot, &basis.vector, &basis.superseded),
        }
    }

    /// Listing entries that a put removes: none of replaced rows, because the key lives on and the vector names them; only
    /// those of slots dropped from the vector.
    pub(super) fn index_removals_of_put(&self, dropped: VersionVector) -> IndexRemovals {
        match self {
            Self::Fresh => IndexRemovals::SupersededRows,
            // Removing entries of replaced rows would make each overwrite a batch over two partitions [invariant 28].
            Self::Reused(_) => IndexRemovals::Slots(dropped),
        }
    }

    /// Listing entries that a delete removes: those of all slots that are dead after it.
    pub(super) fn index_removals_of_delete(&self, basis: &CausalBasis) -> IndexRemovals {
        match self {
            Self::Fresh => IndexRemovals::SupersededRows,
            Self::Reused(_) => {
                // Overwrites left the entries of the slots in the vector, so the delete removes those too [invariant 28].
                let CarriedVector { mut stored, dropped } =
                    CarriedVector::from_write(SHARED_SLOT, &basis.vector, &basis.superseded);
                stored.extend(dropped);
                IndexRemovals::Slots(stored)
            }
        }
    }

    /// Whether no row or entry was ever written under the name of a new write.
    pub(super) fn are_names_fresh(&self, policy: ConflictPolicy) -> bool {
        matches!(self, Self::Fresh) && policy.has_slots()
    }

    /// Whether the store must count the rows of the key.
    pub(super) fn needs_row_count(&self, partition: &Partition) -> bool {
        match self {
            Self::Fresh => true,
            Self::Reused(memory) => memory.is_crowded(partition),
        }
    }

    /// Notes an acknowledged write; `counted`: the store found the key within its limit.
    pub(super) fn note_acknowledged(&self, partition: &Partition, write: &KeyWrite, counted: bool) {
        if let Self::Reused(memory) = self
            && write.policy.has_slots()
        {
            memory.note_acknowledged(partition, write, counted);
        }
    }

    /// Whether the missing row of a listing entry of this stamp will never come.
    pub(crate) fn is_orphan(&self, stamp: Timestamp, now: Timestamp) -> bool {
        match self {
            // Here entries are written and removed in one batch with their rows.
            Self::Fresh => true,
            // Race: an entry may reach a replica before its row, which may come until a day has passed [invariant 87].
            Self::Reused(_) => is_settled(stamp, now),
        }
    }
}

impl SlotMemory {
    fn allocate(&self, actor: ActorId, clock: Timestamp, partition: &Partition, basis: &CausalBasis) -> Slot {
        let named: VersionVector = basis.superseded.iter().filter_map(SupersededRow::vector_entry).collect();
        let mut keys = self.keys.lock();
        let birth = match keys.get_mut_or_guard(&key_hash(partition)) {
            Ok(Some(mut slots)) => self.allocate_among(&mut slots, actor, clock, &named, &basis.vector),
            Ok(None) => clock,
            Err(guard) => {
                // Race: a forgotten slot may hold a value that this write did not see, so it takes a new one [invariant 2].
                guard.insert(vec![OwnedSlot { birth: clock, issued: clock, dead: false }]);
                clock
            }
        };
        Slot { actor, birth }
    }

    /// Takes a dead slot, preferably one whose row the context names: overwriting it saves a removal.
    fn allocate_among(
        &self,
        slots: &mut Vec<OwnedSlot>,
        actor: ActorId,
        clock: Timestamp,
        named: &VersionVector,
        vector: &VersionVector,
    ) -> Timestamp {
        let until = |vector: &VersionVector, slot: &OwnedSlot| vector.get(Slot { actor, birth: slot.birth });
        for slot in slots.iter_mut() {
            // A vector that covers the last issued clock covers every write to the slot, also a failed one.
            slot.dead |= until(vector, slot) >= slot.issued;
        }
        let is_named = |slot: &OwnedSlot| until(named, slot) >= slot.issued;
        // Race: a put of a later clock may have taken the slot first, and would hide a row of this clock [invariant 3].
        let is_free = |slot: &OwnedSlot| slot.issued < clock && (is_named(slot) || slot.dead);
        // Reuse keeps gateways that overwrite a key in turn at one row each; new rows would leave tombstones [invariant 1].
        if let Some(slot) =
            slots.iter_mut().filter(|slot| is_free(slot)).max_by_key(|slot| (is_named(slot), slot.issued))
        {
            slot.dead = false;
            // Race: before the write is sent, so a concurrent put finds the slot in use even if this fails [invariant 3].
            slot.issued = clock;
            return slot.birth;
        }
        // Bound: a forgotten slot costs a row and never data, since no later write reuses it.
        if slots.len() > 2 * self.open_max {
            slots.remove(0);
        }
        slots.push(OwnedSlot { birth: clock, issued: clock, dead: false });
        clock
    }

    fn is_crowded(&self, partition: &Partition) -> bool {
        let keys = self.keys.lock();
        let slots = keys.peek(&key_hash(partition));
        // Open slots above the limit may be siblings: the engine counts the rows before it adds one more [invariant 9].
        slots.is_some_and(|slots| slots.iter().filter(|slot| !slot.dead).count() > self.open_max)
    }

    fn note_acknowledged(&self, partition: &Partition, write: &KeyWrite, counted: bool) {
        let written = write.row.as_ref().and_then(|row| Slot::from_row_name(&row.name).ok());
        let mut gone: VersionVector = write.superseded.iter().filter_map(SupersededRow::vector_entry).collect();
        // A tombstone holds no value: the next put without context may take its row [invariant 4].
        if write.tombstone {
            gone.extend(written.map(|slot| VectorEntry { slot, clock: write.clock }));
        }
        let Some(actor) = written.map(|slot| slot.actor) else { return };
        let mut keys = self.keys.lock();
        let Some(mut slots) = keys.get_mut(&key_hash(partition)) else { return };
        let is_written = |slot: &OwnedSlot| written.is_some_and(|row_slot| row_slot.birth == slot.birth);
        for slot in slots.iter_mut() {
            if is_written(slot) {
                slot.issued = slot.issued.max(write.clock);
            }
            // Race: a put that took the slot since has raised its issued clock, so the slot stays in use [invariant 3].
            slot.dead |= gone.get(Slot { actor, birth: slot.birth }) >= slot.issued;
        }
        // The count was within the limit, so the other slots thought open are not: forgetting them costs rows, not data.
        if counted {
            slots.retain(|slot| slot.dead || is_written(slot));
        }
    }
}

/// Whether a row that precedes its object has had all the time that the object may take.
pub(crate) fn is_settled(stamp: Timestamp, now: Timestamp) -> bool {
    stamp.saturating_add(ENTRY_AHEAD_MICROS) < now
}

/// Key of the memory: a hash of fixed length.
fn key_hash(partition: &Partition) -> u128 {
    hash::id128(&[&[partition.table.code(), partition.copies], &partition.key])
}

/// The causal past of a write: the versions of the key that it knows and replaces.
#[derive(Default)]
pub(super) struct CausalBasis {
    /// The rows it replaces.
    pub(super) superseded: Vec<SupersededRow>,
    /// The slots that were superseded before.
    pub(super) vector: VersionVector,
    /// Hash of the dots in the context it was made with, 0 for none.
    pub(super) context_hash: u64,
}

impl CausalBasis {
    /// The past that a context names.
    pub(super) fn from_context(context: Context) -> Self {
        let (superseded, context_hash) = (SupersededRow::named_by(&context), context.dots_hash());
        Self { superseded, vector: context.vector, context_hash }
    }
}
