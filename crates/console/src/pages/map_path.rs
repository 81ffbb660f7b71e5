//! The place of a map within others: the names of the fields that lead to it. A form names it as text.

use bytes::Bytes;
use larder_kv::rules::datatypes::{EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldValue, MapEdits};
use larder_rows::limits::DATATYPE_DEPTH_MAX;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::escaped::shown;
use crate::faults::ConsoleFault;

/// Most bytes of the places that a form lists: each repeats the names above it.
const LISTED_BYTES_MAX: usize = 256 * 1024;

/// The names of the fields around a map, outermost first; none for the outermost map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MapPath(Vec<Bytes>);

impl MapPath {
    /// Reads [`Self::text`] back.
    ///
    /// # Errors
    /// Another text; more names than maps may be nested.
    pub(super) fn parse(text: &str) -> Result<Self, ConsoleFault> {
        let Some(names) = text.strip_prefix('/') else {
            return if text.is_empty() { Ok(Self::default()) } else { Err(ConsoleFault::bad("This names no map.")) };
        };
        // Attack: an update nested without a bound would end the stack where it is dropped.
        if names.matches('/').count() + 2 > DATATYPE_DEPTH_MAX {
            return Err(ConsoleFault::bad(format!("Maps are nested {DATATYPE_DEPTH_MAX} deep at most.")));
        }
        Ok(Self(names.split('/').map(|name| percent_decode_str(name).collect::<Vec<u8>>().into()).collect()))
    }

    /// The path as the value of a form: each name after a slash, percent-encoded.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|name| format!("/{}", percent_encode(name, NON_ALPHANUMERIC))).collect()
    }

    /// The path for people.
    pub(super) fn label(&self) -> String {
        if self.0.is_empty() {
            return "the whole map".to_owned();
        }
        self.0.iter().map(|name| shown(name)).collect::<Vec<_>>().join(" / ")
    }

    /// The edits of the map here as edits of the outermost one.
    pub(super) fn enclose(&self, edits: MapEdits) -> MapEdits {
        self.0.iter().rev().fold(edits, |edits, name| {
            let update = EmbeddedUpdate::Map(edits);
            MapEdits { updates: vec![FieldEdit { name: name.clone(), update }], ..MapEdits::default() }
        })
    }

    /// The fields of the map here, within those of the outermost one.
    pub(super) fn find<'a>(&self, fields: &'a [FieldValue]) -> Option<&'a [FieldValue]> {
        self.0.iter().try_fold(fields, |fields, name| {
            let inner = fields.iter().filter(|field| field.field.name == *name);
            inner.filter_map(inner_fields).next()
        })
    }

    /// The outermost map and those within it, in the order of the page; and whether there are more.
    pub(super) fn list(fields: &[FieldValue]) -> (Vec<Self>, bool) {
        let (mut paths, mut room) = (vec![Self::default()], LISTED_BYTES_MAX);
        let is_whole = Self::default().list_within(fields, &mut paths, &mut room);
        (paths, !is_whole)
    }

    /// Maps are nested as deep as the model allows, which bounds the recursion.
    fn list_within(&self, fields: &[FieldValue], paths: &mut Vec<Self>, room: &mut usize) -> bool {
        fields.iter().filter_map(|field| Some((&field.field.name, inner_fields(field)?))).all(|(name, inner)| {
            let path = Self(self.0.iter().chain([name]).cloned().collect());
            let left = room.checked_sub(path.text().len() + path.label().len());
            left.is_some_and(|left| {
                *room = left;
                paths.push(path.clone());
                path.list_within(inner, paths, room)
            })
        })
    }
}

fn inner_fields(field: &FieldValue) -> Option<&[FieldValue]> {
    match &field.value {
        EmbeddedValue::Map(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use larder_kv::rules::datatypes::{EmbeddedType, FieldName};

    use super::*;

    fn map(name: &[u8], fields: Vec<FieldValue>) -> FieldValue {
        let field = FieldName::new(Bytes::copy_from_slice(name), EmbeddedType::Map);
        FieldValue { field, value: EmbeddedValue::Map(fields) }
    }

    #[test]
    fn a_path_survives_its_form() {
        for names in
            [Vec::<&[u8]>::new(), vec![&b""[..]], vec![b"a/b", b"", b"%2F", b"\xff\0\r\n", "\u{202e}".as_bytes()]]
        {
            let path = MapPath(names.iter().map(|name| Bytes::copy_from_slice(name)).collect());
            assert_eq!(MapPath::parse(&path.text()).unwrap(), path, "{names:?}");
        }
        for text in ["a", "a/b", &"/a".repeat(DATATYPE_DEPTH_MAX), &"/".repeat(100_000)] {
            assert!(MapPath::parse(text).is_err(), "{text}");
        }
        assert!(MapPath::parse(&"/a".repeat(DATATYPE_DEPTH_MAX - 1)).is_ok());
    }

    #[test]
    fn maps_are_listed_and_found_by_their_paths() {
        let register = FieldName::new("a", EmbeddedType::Register);
        let register = FieldValue { field: register, value: EmbeddedValue::Register(None) };
        let fields = [register, map(b"a", vec![map(b"b", vec![]), map(b"c", vec![])]), map(b"d", vec![])];
        let (paths, more) = MapPath::list(&fields);
        assert_eq!(paths.iter().map(MapPath::text).collect::<Vec<_>>(), ["", "/a", "/a/b", "/a/c", "/d"]);
        assert!(!more && paths.iter().all(|path| path.find(&fields).is_some()));
        assert_eq!(paths[1].find(&fields).unwrap().len(), 2);
        assert!(MapPath::parse("/a/d").unwrap().find(&fields).is_none());
    }

    #[test]
    fn a_list_of_paths_has_a_bound() {
        let deep = (0..60).fold(vec![], |fields, _| vec![map(&[b'x'; 4000], fields)]);
        let (paths, more) = MapPath::list(&deep);
        assert!(more && paths.len() < 20, "{}", paths.len());
    }
}
