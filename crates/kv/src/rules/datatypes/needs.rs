//! The rows that an update has to read, beside the head. Additions read nothing: their cost does not depend on the value.

use bytes::Bytes;
use larder_core::rules::erlang;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::ActorId;
use larder_rows::limits::{
    DATATYPE_DEPTH_MAX, DATATYPE_EDITS_MAX, DATATYPE_NAME_BYTES_MAX, DATATYPE_REMOVAL_ROWS_MAX,
    DATATYPE_ROW_NAME_BYTES_MAX, REGISTER_BYTES_MAX,
};

use super::hll::{HllForm, HllPlace};
use super::row_name::{DatatypeLeaf, DatatypePath, DatatypeRowName, FieldName};
use super::value::{DatatypeUpdate, EmbeddedUpdate, MapEdits, SetEdit};

/// Rows of one name or of one prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeededRows {
    /// The prefix of their names.
    pub prefix: Bytes,
    /// Whether the row has exactly this name.
    pub single: bool,
    /// The part of the value whose removal needs them. If there are more than [`DATATYPE_REMOVAL_ROWS_MAX`], these need not be
    /// read to the end.
    pub removed: Option<DatatypePath>,
}

impl NeededRows {
    /// The rows for the removal of the value at `path`.
    #[must_use]
    pub fn to_remove(path: DatatypePath) -> Self {
        Self { prefix: path.prefix(), single: false, removed: Some(path) }
    }

    /// Most rows to read.
    #[must_use]
    pub fn limit(&self) -> usize {
        match (self.single, &self.removed) {
            (true, _) => 1,
            // One more tells that the part is larger.
            (false, Some(_)) => DATATYPE_REMOVAL_ROWS_MAX + 1,
            (false, None) => usize::MAX,
        }
    }

    fn below(prefix: Bytes) -> Self {
        Self { prefix, single: false, removed: None }
    }

    fn one(path: &DatatypePath, leaf: DatatypeLeaf) -> Self {
        Self { prefix: DatatypeRowName::Data(path.clone(), leaf).encode(), single: true, removed: None }
    }
}

impl DatatypeUpdate {
    /// The rows to read before this update by `actor` is applied; `names_increments`: an increment with an id is a row of its own.
    #[must_use]
    pub fn needs(
        &self,
        actor: ActorId,
        precision: u8,
        request_id: Option<&Bytes>,
        names_increments: bool,
    ) -> Vec<NeededRows> {
        let root = DatatypePath::root();
        let mut needs = Vec::new();
        match self {
            Self::Counter(_) => {
                // The other engine's note of the same id, if the key was moved here.
                needs.extend(request_id.map(|id| NeededRows::one(&root, DatatypeLeaf::Increment(id.clone()))));
                if request_id.is_none() || !names_increments {
                    needs.push(NeededRows::below(root.counter_prefix(actor)));
                }
            }
            Self::Set(edits) => set_needs(&root, edits, &mut needs),
            Self::Gset(_) => {}
            Self::Hll(adds) => {
                let chunk = |element: &Bytes| {
                    let place = HllPlace::for_element(element, precision);
                    NeededRows::one(&root, DatatypeLeaf::Chunk(HllForm::new(precision), place.chunk, actor))
                };
                needs.extend(adds.iter().map(chunk));
            }
            Self::Map(edits) => map_needs(&root, edits, actor, &mut needs),
        }
        needs.extend(request_id.map(|id| NeededRows::one(&root, DatatypeLeaf::Request(id.clone()))));
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

fn set_needs(path: &DatatypePath, edits: &[SetEdit], needs: &mut Vec<NeededRows>) {
    for edit in edits {
        if let SetEdit::Remove(element) = edit {
            needs.push(NeededRows::below(path.element_prefix(element)));
        }
    }
}

fn map_needs(path: &DatatypePath, edits: &MapEdits, actor: ActorId, needs: &mut Vec<NeededRows>) {
    needs.extend(edits.removes.iter().map(|field| NeededRows::to_remove(path.child(field))));
    for edit in &edits.updates {
        let child = path.child(&edit.field());
        match &edit.update {
            EmbeddedUpdate::Counter(_) => needs.push(NeededRows::below(child.counter_prefix(actor))),
            EmbeddedUpdate::Set(edits) => set_needs(&child, edits, needs),
            EmbeddedUpdate::Register(_) => needs.push(NeededRows::below(child.register_prefix())),
            EmbeddedUpdate::Flag(true) => {}
            EmbeddedUpdate::Flag(false) => needs.push(NeededRows::below(child.flag_prefix())),
            EmbeddedUpdate::Map(edits) => map_needs(&child, edits, actor, needs),
        }
    }
}

/// Bytes of a row name beside its path and its escaped element.
pub(super) const NAME_REST: usize = 32;

/// Counts the edits of an update.
#[derive(Default)]
struct EditCount {
    edits: usize,
}

impl DatatypeUpdate {
    /// Checks the sizes of an update, and the number and depth of its edits.
    ///
    /// # Errors
    /// [`DatatypeError::UpdateTooLarge`], [`DatatypeError::TooMany`].
    pub fn check(&self) -> Result<(), DatatypeError> {
        let mut count = EditCount::default();
        let root = DatatypePath::root();
        match self {
            Self::Counter(_) => Ok(()),
            Self::Set(edits) => count.set(&root, edits),
            Self::Gset(adds) => adds.iter().try_for_each(|element| count.element(&root, element)),
            // Elements of a HyperLogLog are hashed: only their number counts.
            Self::Hll(adds) => adds.iter().try_for_each(|_| count.edit()),
            Self::Map(edits) => count.map(&root, edits, 1),
        }
    }
}

impl EditCount {
    fn edit(&mut self) -> Result<(), DatatypeError> {
        self.edits += 1;
        // Bound: one update is one batch, and its edits are in memory.
        if self.edits > DATATYPE_EDITS_MAX {
            return Err(DatatypeError::TooMany { part: "edits", max: DATATYPE_EDITS_MAX });
        }
        Ok(())
    }

    fn element(&mut self, path: &DatatypePath, element: &Bytes) -> Result<(), DatatypeError> {
        self.edit()?;
        check_length("an element", element.len(), DATATYPE_NAME_BYTES_MAX)?;
        // A zero byte is stored as two.
        let zeros = element.iter().filter(|byte| **byte == 0).count();
        let name = path.bytes() + element.len() + zeros + NAME_REST;
        check_length("an element with the fields around it", name, DATATYPE_ROW_NAME_BYTES_MAX)
    }

    fn set(&mut self, path: &DatatypePath, edits: &[SetEdit]) -> Result<(), DatatypeError> {
        edits.iter().try_for_each(|edit| match edit {
            SetEdit::Add(element) | SetEdit::Remove(element) => self.element(path, element),
        })
    }

    fn map(&mut self, path: &DatatypePath, edits: &MapEdits, depth: usize) -> Result<(), DatatypeError> {
        if depth > DATATYPE_DEPTH_MAX {
            return Err(DatatypeError::TooMany { part: "maps in each other", max: DATATYPE_DEPTH_MAX });
        }
        let removes = edits.removes.iter().cloned();
        for field in removes.chain(edits.updates.iter().map(super::FieldEdit::field)) {
            self.edit()?;
            check_length("the name of a field", field.name.len(), DATATYPE_NAME_BYTES_MAX)?;
            let name = path.child(&field).bytes() + NAME_REST;
            check_length("a field with the fields around it", name, DATATYPE_ROW_NAME_BYTES_MAX)?;
        }
        for edit in &edits.updates {
            let child = path.child(&edit.field());
            match &edit.update {
                EmbeddedUpdate::Counter(_) | EmbeddedUpdate::Flag(_) => {}
                EmbeddedUpdate::Register(value) => check_length("a register", value.len(), REGISTER_BYTES_MAX)?,
                EmbeddedUpdate::Set(edits) => self.set(&child, edits)?,
                EmbeddedUpdate::Map(edits) => self.map(&child, edits, depth + 1)?,
            }
        }
        Ok(())
    }
}

pub(super) fn check_length(part: &'static str, length: usize, max: usize) -> Result<(), DatatypeError> {
    if length > max { Err(DatatypeError::UpdateTooLarge { part, max }) } else { Ok(()) }
}

/// The thing that a removal did not find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbsentTarget {
    /// An element of a set.
    Element(Bytes),
    /// A field of a map.
    Field(FieldName),
}

impl AbsentTarget {
    /// The Erlang term of the refusal, as Riak shows it over both protocols.
    #[must_use]
    pub fn erlang(&self) -> String {
        let what = match self {
            Self::Element(element) => erlang::binary(element),
            Self::Field(field) => format!("{{{},{}}}", erlang::binary(&field.name), field.embedded.riak_module()),
        };
        format!("{{precondition,{{not_present,{what}}}}}")
    }
}

impl From<AbsentTarget> for DatatypeError {
    fn from(absent: AbsentTarget) -> Self {
        Self::NotPresent(absent.erlang())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::datatypes::FieldEdit;

    fn nested(depth: usize, name: &Bytes) -> DatatypeUpdate {
        let wrap = |edits, _| {
            let update = EmbeddedUpdate::Map(edits);
            MapEdits { removes: Vec::new(), updates: vec![FieldEdit { name: name.clone(), update }] }
        };
        DatatypeUpdate::Map((1..depth).fold(MapEdits::default(), wrap))
    }

    #[test]
    fn updates_at_their_bounds_are_taken_and_larger_ones_refused() {
        let zeros = |count: usize| Bytes::from(vec![0; count]);
        let add = |element| DatatypeUpdate::Set(vec![SetEdit::Add(element)]);
        assert_eq!(add(zeros(DATATYPE_NAME_BYTES_MAX)).check(), Ok(()));
        assert!(add(zeros(DATATYPE_NAME_BYTES_MAX + 1)).check().is_err());
        assert_eq!(nested(DATATYPE_DEPTH_MAX, &"m".into()).check(), Ok(()));
        assert!(nested(DATATYPE_DEPTH_MAX + 1, &"m".into()).check().is_err());
        assert!(nested(9, &zeros(DATATYPE_NAME_BYTES_MAX / 2)).check().is_err(), "the whole path is too long");
        let adds = |count| DatatypeUpdate::Hll(vec![Bytes::new(); count]);
        assert_eq!(adds(DATATYPE_EDITS_MAX).check(), Ok(()));
        assert!(adds(DATATYPE_EDITS_MAX + 1).check().is_err());
    }
}

#[cfg(test)]
mod absent_target_tests {
    use super::*;
    use crate::rules::datatypes::EmbeddedType;

    #[test]
    fn the_terms_of_absent_targets_are_riaks() {
        let element = AbsentTarget::Element("zz".into());
        assert_eq!(element.erlang(), "{precondition,{not_present,<<\"zz\">>}}");
        let field = AbsentTarget::Field(FieldName::new("name", EmbeddedType::Register));
        assert_eq!(field.erlang(), "{precondition,{not_present,{<<\"name\">>,riak_dt_lwwreg}}}");
    }
}
