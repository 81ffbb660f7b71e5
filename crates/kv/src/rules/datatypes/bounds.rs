//! Bounds of an update, checked before anything is read.

use bytes::Bytes;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::limits::{
    DATATYPE_DEPTH_MAX, DATATYPE_EDITS_MAX, DATATYPE_NAME_BYTES_MAX, DATATYPE_ROW_NAME_BYTES_MAX, REGISTER_BYTES_MAX,
};

use super::row_name::DatatypePath;
use super::update::{DatatypeUpdate, EmbeddedUpdate, MapEdits, SetEdit};

/// Bytes of a row name beside its path and its escaped element.
const NAME_REST: usize = 32;

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

fn check_length(part: &'static str, length: usize, max: usize) -> Result<(), DatatypeError> {
    if length > max { Err(DatatypeError::UpdateTooLarge { part, max }) } else { Ok(()) }
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
