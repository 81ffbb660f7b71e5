//! The rows that an update has to read, beside the head. Additions read nothing: their cost does not depend on the value.

use bytes::Bytes;
use larder_rows::ActorId;
use larder_rows::limits::DATATYPE_REMOVAL_ROWS_MAX;

use super::hll::HllPlace;
use super::row_name::{DatatypeLeaf, DatatypePath, DatatypeRowName};
use super::update::{DatatypeUpdate, EmbeddedUpdate, MapEdits, SetEdit};

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
    /// The rows to read before this update by `actor` is applied.
    #[must_use]
    pub fn needs(&self, actor: ActorId, precision: u8, request_id: Option<&Bytes>) -> Vec<NeededRows> {
        let root = DatatypePath::root();
        let mut needs = Vec::new();
        match self {
            Self::Counter(_) => {
                needs.push(NeededRows::below(root.counter_prefix(actor)));
            }
            Self::Set(edits) => set_needs(&root, edits, &mut needs),
            Self::Gset(_) => {}
            Self::Hll(adds) => {
                let chunk = |element: &Bytes| {
                    let place = HllPlace::for_element(element, precision);
                    NeededRows::one(&root, DatatypeLeaf::Chunk(precision, place.chunk, actor))
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
