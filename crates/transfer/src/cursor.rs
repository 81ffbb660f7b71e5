//! Where a walk over a store stands: kept at the end of each segment, so that it can be gone on with.

use std::collections::VecDeque;

use bytes::Bytes;
use larder_store::Partition;
use serde::{Deserialize, Serialize};

use crate::scope::ORDER;

/// A place between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cursor {
    /// Which of the tables in [`ORDER`]; behind the last are the blobs, and behind them the end.
    pub(crate) step: usize,
    /// Whether the table's partitions were asked for.
    pub(crate) listed: bool,
    /// Where the engine goes on with the table's partitions, or the last blob that was taken.
    pub(crate) next: Option<Name>,
    /// Partitions of the last page that are still to be read.
    pub(crate) rest: VecDeque<Place>,
    /// The last row taken of the first of them.
    pub(crate) within: Option<Name>,
}

/// A partition of the cursor's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    n_val: u8,
    key: Name,
}

/// Bytes, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Name(pub(crate) Bytes);

impl Cursor {
    /// The number of the step that takes the blobs.
    pub(crate) const BLOBS: usize = ORDER.len();

    /// Begins the next step.
    pub(crate) fn step_on(&mut self) {
        *self = Self { step: self.step + 1, ..Self::default() };
    }

    /// Whether everything was taken.
    pub(crate) fn is_at_the_end(&self) -> bool {
        self.step > Self::BLOBS
    }

    /// The partition that is being read.
    pub(crate) fn partition(&self) -> Option<Partition> {
        self.rest.front().and_then(|place| self.partition_of(place))
    }

    /// A partition that is still to be read.
    pub(crate) fn partition_of(&self, place: &Place) -> Option<Partition> {
        let table = *ORDER.get(self.step)?;
        Some(Partition { table, n_val: place.n_val, key: place.key.0.clone() })
    }

    /// Takes a page of partitions.
    pub(crate) fn take_page(&mut self, partitions: Vec<Partition>, next: Option<Bytes>) {
        self.listed = true;
        self.next = next.map(Name);
        self.rest = partitions.into_iter().map(|one| Place { n_val: one.n_val, key: Name(one.key) }).collect();
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        if !text.len().is_multiple_of(2) {
            return Err("an odd number of digits");
        }
        (0..text.len())
            .step_by(2)
            .map(digit)
            .collect::<Option<Vec<u8>>>()
            .map(|bytes| Self(bytes.into()))
            .ok_or("no digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::Table;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_come_back(bytes: Vec<u8>) {
            let name = Name(bytes.into());
            prop_assert_eq!(Name::try_from(String::from(name.clone())), Ok(name));
        }

        #[test]
        fn any_text_is_a_name_or_an_error(text: String) {
            let _ = Name::try_from(text);
        }
    }

    #[test]
    fn cursors_come_back_from_json() {
        let mut cursor = Cursor::default();
        cursor.take_page(vec![Partition { table: ORDER[0], n_val: 5, key: "\u{1}k".into() }], Some("n".into()));
        cursor.within = Some(Name("row".into()));
        let json = serde_json::to_vec(&cursor).unwrap();
        assert_eq!(serde_json::from_slice::<Cursor>(&json).unwrap(), cursor);
        assert_eq!(cursor.partition().map(|one| (one.table, one.n_val)), Some((Table::Catalogue, 5)));
        cursor.step = Cursor::BLOBS;
        assert_eq!(cursor.partition(), None);
        cursor.step_on();
        assert!(cursor.is_at_the_end());
    }
}
