//! Applies updates in an editor: the rules of each data type.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::rules::refusals::DatatypeError;

use super::context::DatatypeContext;
use super::editor::{DatatypeEditor, PRESENT, ShownRow};
use super::head::{CounterResets, CounterTotals, RemovalMarker};
use super::hll::{HllChunk, HllPlace};
use super::needs::AbsentTarget;
use super::row_name::{CounterSource, DatatypeLeaf, DatatypePath, DatatypeRowName, FieldName};
use super::value::{DatatypeUpdate, EmbeddedUpdate, MapEdits, SetEdit};

impl DatatypeEditor {
    /// Applies an update whole, or not at all. A repeated `request_id` changes nothing.
    ///
    /// # Errors
    /// [`DatatypeError::NotPresent`] for a removal without context of something absent, and damage.
    pub fn update(
        &mut self,
        update: &DatatypeUpdate,
        context: Option<&DatatypeContext>,
        request_id: Option<&Bytes>,
    ) -> Result<(), DatatypeError> {
        let mark = self.mark();
        self.try_update(update, context, request_id).inspect_err(|_| self.roll_back(mark))
    }

    fn try_update(
        &mut self,
        update: &DatatypeUpdate,
        context: Option<&DatatypeContext>,
        request_id: Option<&Bytes>,
    ) -> Result<(), DatatypeError> {
        let root = DatatypePath::root();
        if let Some(id) = request_id {
            let name = DatatypeRowName::Data(root.clone(), DatatypeLeaf::Request(id.clone())).encode();
            // Race: a client repeats an increment whose answer was lost; its id is in the same batch [invariant 111].
            if self.shown(&name)?.is_some() {
                return Ok(());
            }
            self.put_for_a_while(name, PRESENT);
        }
        self.touched = true;
        match update {
            DatatypeUpdate::Counter(by) => self.increment(&root, *by),
            DatatypeUpdate::Set(edits) => self.edit_set(&root, edits, context),
            DatatypeUpdate::Gset(adds) => {
                adds.iter().for_each(|element| self.add_element(&root, element));
                Ok(())
            }
            DatatypeUpdate::Hll(adds) => self.add_to_registers(&root, adds),
            DatatypeUpdate::Map(edits) => self.edit_map(&root, edits, context),
        }
    }

    /// Removes the whole value that was read, or what the context covers of it, with its clocks. A concurrent update survives
    /// with its own content.
    ///
    /// # Errors
    /// Damage.
    pub fn delete(&mut self, context: Option<&DatatypeContext>) -> Result<(), DatatypeError> {
        self.remove_value(&DatatypePath::root(), context)?;
        let gone: Vec<_> = self.head.clocks_seen(context).collect();
        for (actor, clock) in gone {
            self.take_at(&DatatypeRowName::Clock(actor).encode(), clock);
        }
        self.touched = false;
        Ok(())
    }

    fn increment(&mut self, path: &DatatypePath, by: i64) -> Result<(), DatatypeError> {
        let (source, totals) = self.own_counter(path)?;
        let name = DatatypeRowName::Data(path.clone(), DatatypeLeaf::Counter(source)).encode();
        self.put(name, totals.plus(by).encode());
        Ok(())
    }

    fn add_element(&mut self, path: &DatatypePath, element: &Bytes) {
        let leaf = DatatypeLeaf::Element(element.clone(), self.terms.actor);
        // A new stamp, also for an element that is there: an older context does not remove it [invariant 110].
        self.put(DatatypeRowName::Data(path.clone(), leaf).encode(), PRESENT);
    }

    fn edit_set(
        &mut self,
        path: &DatatypePath,
        edits: &[SetEdit],
        context: Option<&DatatypeContext>,
    ) -> Result<(), DatatypeError> {
        for edit in edits {
            match edit {
                SetEdit::Add(element) => self.add_element(path, element),
                SetEdit::Remove(element) => {
                    let shown = self.shown_below(&path.element_prefix(element))?;
                    if context.is_none() && shown.is_empty() {
                        return Err(AbsentTarget::Element(element.clone()).into());
                    }
                    self.take_seen(&shown, context);
                }
            }
        }
        Ok(())
    }

    fn add_to_registers(&mut self, path: &DatatypePath, adds: &[Bytes]) -> Result<(), DatatypeError> {
        let (precision, actor) = (self.terms.precision, self.terms.actor);
        let name = |chunk| DatatypeRowName::Data(path.clone(), DatatypeLeaf::Chunk(precision, chunk, actor)).encode();
        let mut chunks: BTreeMap<u8, (HllChunk, bool)> = BTreeMap::new();
        for element in adds {
            let place = HllPlace::for_element(element, precision);
            if let std::collections::btree_map::Entry::Vacant(vacant) = chunks.entry(place.chunk) {
                let stored = self.shown(&name(place.chunk))?.map(|row| HllChunk::decode(row.value, precision));
                vacant.insert((stored.transpose()?.unwrap_or_else(|| HllChunk::new(precision)), false));
            }
            if let Some((chunk, is_raised)) = chunks.get_mut(&place.chunk) {
                *is_raised |= chunk.raise(place);
            }
        }
        for (number, (chunk, is_raised)) in chunks {
            if is_raised {
                self.put(name(number), chunk.encode());
            }
        }
        Ok(())
    }

    fn edit_map(
        &mut self,
        path: &DatatypePath,
        edits: &MapEdits,
        context: Option<&DatatypeContext>,
    ) -> Result<(), DatatypeError> {
        for field in &edits.removes {
            self.remove_field(path, field, context)?;
        }
        for edit in &edits.updates {
            let child = path.child(&edit.field());
            // Every update below a field says anew that it is there: a concurrent removal of the field leaves it.
            let presence = DatatypeLeaf::Presence(self.terms.actor);
            self.put(DatatypeRowName::Data(child.clone(), presence).encode(), PRESENT);
            match &edit.update {
                EmbeddedUpdate::Counter(by) => self.increment(&child, *by)?,
                EmbeddedUpdate::Set(edits) => self.edit_set(&child, edits, context)?,
                EmbeddedUpdate::Register(value) => self.assign(&child, value)?,
                EmbeddedUpdate::Flag(enabled) => self.set_flag(&child, *enabled, context)?,
                EmbeddedUpdate::Map(edits) => self.edit_map(&child, edits, context)?,
            }
        }
        Ok(())
    }

    fn assign(&mut self, path: &DatatypePath, value: &Bytes) -> Result<(), DatatypeError> {
        // The clock of the batch is above these rows, so this value wins over every one that was read.
        let shown = self.shown_below(&path.register_prefix())?;
        self.take_seen(&shown, None);
        let name = DatatypeRowName::Data(path.clone(), DatatypeLeaf::Register(self.terms.actor)).encode();
        self.put(name, [&[1], &value[..]].concat().into());
        Ok(())
    }

    fn set_flag(
        &mut self,
        path: &DatatypePath,
        enabled: bool,
        context: Option<&DatatypeContext>,
    ) -> Result<(), DatatypeError> {
        if enabled {
            let name = DatatypeRowName::Data(path.clone(), DatatypeLeaf::Flag(self.terms.actor)).encode();
            self.put(name, PRESENT);
        } else {
            let shown = self.shown_below(&path.flag_prefix())?;
            self.take_seen(&shown, context);
        }
        Ok(())
    }

    fn remove_field(
        &mut self,
        path: &DatatypePath,
        field: &FieldName,
        context: Option<&DatatypeContext>,
    ) -> Result<(), DatatypeError> {
        let child = path.child(field);
        if context.is_none() && !self.shown_below(&child.prefix())?.iter().any(ShownRow::shows_field) {
            return Err(AbsentTarget::Field(field.clone()).into());
        }
        self.remove_value(&child, context)
    }

    /// Removes what the context covers of the value at `path`.
    fn remove_value(&mut self, path: &DatatypePath, context: Option<&DatatypeContext>) -> Result<(), DatatypeError> {
        let shown = self.shown_below(&path.prefix())?;
        if !self.is_oversized(path) {
            return self.remove_rows(shown, context);
        }
        // Rows of this batch are newer than the marker.
        let batch_rows: Vec<_> = shown.into_iter().filter(|row| row.stamp == self.terms.clock).collect();
        self.remove_rows(batch_rows, context)?;
        self.put_marker(path, context);
        Ok(())
    }

    fn remove_rows(&mut self, shown: Vec<ShownRow>, context: Option<&DatatypeContext>) -> Result<(), DatatypeError> {
        let sources = live_sources(&shown)?;
        let mut resets: BTreeMap<Bytes, CounterResets> = BTreeMap::new();
        for row in shown.into_iter().filter(|row| row.is_seen(context)) {
            match row.leaf {
                // Zeros stay as they are: written anew by each removal, they would never expire [invariant 115].
                DatatypeLeaf::Counter(source) if !sources.contains(&(row.path.clone(), source)) => {}
                // A row that grows is taken back to zero by its own writer: a late write of before is older [invariant 108].
                DatatypeLeaf::Counter(source) if source.actor == self.terms.actor => {
                    self.zero(&row.name, CounterTotals::default().encode());
                }
                DatatypeLeaf::Chunk(precision, _, actor) if actor == self.terms.actor => {
                    self.zero(&row.name, HllChunk::new(precision).encode());
                }
                // Race: its writer may add to it at this moment; only what was seen is gone [invariant 108].
                DatatypeLeaf::Counter(source) => {
                    let name = DatatypeRowName::Data(row.path, DatatypeLeaf::Resets(self.terms.actor)).encode();
                    let known = self.shown(&name)?.map(|row| CounterResets::decode(row.value)).transpose()?;
                    let resets = resets.entry(name).or_insert_with(|| known.unwrap_or_default());
                    resets.add(source, CounterTotals::decode(row.value)?);
                }
                // Resets stay as long as what they reset, and ids of requests until no retry comes any more.
                DatatypeLeaf::Resets(_) | DatatypeLeaf::Request(_) => {}
                _ => self.take(&row.name),
            }
        }
        for (name, mut resets) in resets {
            // Bound: a source that was zeroed is no more, and its reset would stay for ever [invariant 115].
            let DatatypeRowName::Data(path, _) = DatatypeRowName::decode(&name)? else { continue };
            resets.0.retain(|source, _| sources.contains(&(path.clone(), *source)));
            self.put(name, resets.encode());
        }
        Ok(())
    }

    /// Writes zeros over an own row, or forgets a row of this batch.
    fn zero(&mut self, name: &Bytes, zeros: Bytes) {
        match self.is_stored(name) {
            true => self.put_for_a_while(name.clone(), zeros),
            false => self.take(name),
        }
    }

    /// Removes a part that is too large to be removed row by row.
    fn put_marker(&mut self, path: &DatatypePath, context: Option<&DatatypeContext>) {
        let clocks = context.map_or_else(|| self.seen_clocks(), |context| context.clocks.clone());
        let remover = self.terms.actor;
        let mut marker = RemovalMarker { path: path.clone(), remover, clocks, stamp: self.terms.clock };
        // An earlier marker of this actor has the same row: what it removed stays removed.
        for known in self.head.markers.iter().filter(|known| known.path == *path && known.remover == remover) {
            for (actor, clock) in &known.clocks {
                let latest = marker.clocks.entry(*actor).or_default();
                *latest = (*clock).max(*latest);
            }
        }
        self.put(DatatypeRowName::Marker(path.clone(), remover).encode(), marker.encode());
        self.head.markers.push(marker);
    }

    fn take_seen(&mut self, shown: &[ShownRow], context: Option<&DatatypeContext>) {
        shown.iter().filter(|row| row.is_seen(context)).for_each(|row| self.take(&row.name));
    }
}

/// The counters' rows that were not zeroed.
fn live_sources(shown: &[ShownRow]) -> Result<BTreeSet<(DatatypePath, CounterSource)>, DatatypeError> {
    let mut sources = BTreeSet::new();
    for row in shown {
        if let DatatypeLeaf::Counter(source) = row.leaf
            && CounterTotals::decode(row.value.clone())?.operations > 0
        {
            sources.insert((row.path.clone(), source));
        }
    }
    Ok(sources)
}
