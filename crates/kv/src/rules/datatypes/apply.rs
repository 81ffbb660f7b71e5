//! Applies updates in an editor: the rules of each data type.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::rules::refusals::DatatypeError;

use super::context::{ActorClocks, DatatypeContext};
use super::editor::{DatatypeEditor, PRESENT, ShownRow};
use super::head::{CounterResets, CounterTotals, RemovalMarker};
use super::hll::{HllChunk, HllForm, HllPlace};
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
        let named = request_id.filter(|_| self.terms.names_increments());
        if let Some(id) = request_id {
            let name = |leaf| DatatypeRowName::Data(root.clone(), leaf).encode();
            let (note, increment) =
                (name(DatatypeLeaf::Request(id.clone())), name(DatatypeLeaf::Increment(id.clone())));
            // Race: a client repeats an increment whose answer was lost; its id is in the same batch [invariant 111].
            if self.shown(&note)?.is_some() {
                return Ok(());
            }
            if let Some(made) = self.shown(&increment)? {
                if named.is_some() {
                    self.put_again(made);
                }
                return Ok(());
            }
            // The row of a counter's increment is the note that it was made.
            if named.is_none() || !matches!(update, DatatypeUpdate::Counter(_)) {
                self.put_for_a_while(note, PRESENT);
            }
        }
        self.touched = true;
        match update {
            DatatypeUpdate::Counter(by) => match named {
                Some(id) => {
                    self.put_increment(&root, id, *by);
                    Ok(())
                }
                None => self.increment(&root, *by),
            },
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
        let clocks = self.clocks_to_take(context)?;
        self.remove_value(&DatatypePath::root(), context)?;
        for (actor, clock) in clocks {
            self.take_at(&DatatypeRowName::Clock(actor).encode(), clock);
        }
        self.touched = false;
        Ok(())
    }

    /// The clocks that go with the value: those that the client saw, all without a context.
    fn clocks_to_take(&self, context: Option<&DatatypeContext>) -> Result<ActorClocks, DatatypeError> {
        let mut clocks = self.head.clocks.clone();
        let Some(context) = context else { return Ok(clocks) };
        let shown = self.shown_below(&DatatypePath::root().prefix())?;
        let unseen = shown.iter().filter(|row| !row.is_seen(Some(context)));
        let remaining: BTreeSet<_> = unseen.filter_map(ShownRow::actor).collect();
        clocks.retain(|actor, clock| {
            let name = DatatypeRowName::Clock(*actor).encode();
            // Race: rows that the client did not see stay, and without a clock nobody would see them [invariant 156].
            let is_named = || context.covers(&name, *actor, *clock) && !remaining.contains(actor);
            context.is_within_clocks(*actor, *clock) || is_named()
        });
        Ok(clocks)
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
        let (form, actor) = (HllForm::new(self.terms.precision), self.terms.actor);
        let name = |chunk| DatatypeRowName::Data(path.clone(), DatatypeLeaf::Chunk(form, chunk, actor)).encode();
        let mut chunks: BTreeMap<u8, (HllChunk, bool)> = BTreeMap::new();
        for element in adds {
            let place = HllPlace::for_element(element, self.terms.precision);
            if let std::collections::btree_map::Entry::Vacant(vacant) = chunks.entry(place.chunk) {
                let stored = self.shown(&name(place.chunk))?;
                // Race: another gateway may have removed a row of a batch without an answer: what it has is written anew [invariant 153].
                let is_unsure =
                    stored.as_ref().is_some_and(|row| self.terms.confirmed.is_some_and(|last| row.stamp > last));
                let chunk = stored.map(|row| HllChunk::decode(row.value, form)).transpose()?;
                vacant.insert((chunk.unwrap_or_else(|| HllChunk::new(form)), is_unsure));
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
        let clocks = context.map_or_else(|| self.head.clocks.clone(), |context| context.clocks.clone());
        let is_single = |row: &ShownRow| {
            // Rows of this batch are newer than the marker.
            let is_newer = row.stamp == self.terms.clock;
            // Race: another gateway adds to its totals meanwhile, and its next row would bring them back [invariant 155].
            is_newer || self.terms.names_increments() && (row.is_counted() || !row.is_within(&clocks))
        };
        let single = shown.into_iter().filter(is_single).collect();
        self.remove_rows(single, context)?;
        self.put_marker(path, clocks);
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
                DatatypeLeaf::Chunk(form, _, actor) if actor == self.terms.actor => {
                    self.zero(&row.name, HllChunk::new(form).encode());
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
    fn put_marker(&mut self, path: &DatatypePath, clocks: ActorClocks) {
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
