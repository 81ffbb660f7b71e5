//! Objects of the stand-in: dotted version vector sets.

use std::collections::BTreeMap;

/// A vector clock: the count of each actor.
pub(super) type StandInClock = BTreeMap<Vec<u8>, u64>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterValue {
    pub(super) text: String,
    pub(super) dot: (Vec<u8>, u64),
    /// Microseconds since 1970.
    pub(super) modified: u64,
    pub(super) vtag: String,
    pub(super) is_deleted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClusterObject {
    pub(super) clock: StandInClock,
    pub(super) values: Vec<ClusterValue>,
}

impl ClusterObject {
    pub(super) fn live(&self) -> impl Iterator<Item = &ClusterValue> {
        self.values.iter().filter(|value| !value.is_deleted)
    }

    pub(super) fn is_live(&self) -> bool {
        self.live().next().is_some()
    }

    /// Writes a value in place of those that the context saw; returns their texts.
    pub(super) fn write(
        &mut self,
        actor: &[u8],
        context: Option<StandInClock>,
        mut value: ClusterValue,
    ) -> Vec<String> {
        let context = context.unwrap_or_default();
        let (replaced, kept) =
            std::mem::take(&mut self.values).into_iter().partition::<Vec<_>, _>(|value| saw(&context, &value.dot));
        self.values = kept;
        merge_clock(&mut self.clock, &context);
        let count = self.clock.entry(actor.to_vec()).or_default();
        *count += 1;
        value.dot = (actor.to_vec(), *count);
        self.values.push(value);
        replaced.into_iter().filter(|value| !value.is_deleted).map(|value| value.text).collect()
    }

    /// Takes in an object without dots, as a sink does: the newer clock wins, and of concurrent ones all values stay.
    pub(super) fn take_in(&mut self, pushed: Self) {
        let has_all = |clock: &StandInClock, other: &StandInClock| {
            other.iter().all(|(actor, count)| saw(clock, &(actor.clone(), *count)))
        };
        if has_all(&self.clock, &pushed.clock) {
            return;
        }
        if has_all(&pushed.clock, &self.clock) {
            *self = pushed;
            return;
        }
        let new = pushed.values.into_iter().filter(|value| self.values.iter().all(|known| known.text != value.text));
        let new: Vec<_> = new.collect();
        self.values.extend(new);
        merge_clock(&mut self.clock, &pushed.clock);
    }

    /// Takes in what another replica has: a value stays unless the other side saw it and has it no more.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut values: Vec<_> = std::mem::take(&mut self.values)
            .into_iter()
            .filter(|value| other.values.contains(value) || !saw(&other.clock, &value.dot))
            .collect();
        let new = other.values.iter().filter(|value| !values.contains(value) && !saw(&self.clock, &value.dot));
        let new: Vec<_> = new.cloned().collect();
        values.extend(new);
        values.sort_by(|a, b| a.vtag.cmp(&b.vtag));
        self.values = values;
        merge_clock(&mut self.clock, &other.clock);
    }
}

fn saw(clock: &StandInClock, (actor, count): &(Vec<u8>, u64)) -> bool {
    clock.get(actor).is_some_and(|seen| seen >= count)
}

fn merge_clock(clock: &mut StandInClock, other: &StandInClock) {
    for (actor, count) in other {
        let own = clock.entry(actor.clone()).or_default();
        *own = (*own).max(*count);
    }
}
