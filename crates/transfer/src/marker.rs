//! What a target knows of an import: which one, and how far it has come. Kept in the target, so that no other target is
//! mistaken for it, and written when what it says is on disk.

use bytes::Bytes;
use larder_store::{Batch, Change, Partition, ReadQuery, Row, Stamp, Table};
use serde::{Deserialize, Serialize};

use crate::calls::{patiently_on_disk, read};
use crate::{Ends, Error, Result};

const NAME: Bytes = Bytes::from_static(b"import");
const VERSION: u8 = 1;

/// How far an import has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The export's identity.
    pub(crate) id: String,
    /// Segments that are in the target and on disk.
    pub(crate) segments: u32,
    /// Whether all of them are.
    pub(crate) complete: bool,
    #[serde(skip)]
    stamp: Stamp,
}

impl Marker {
    /// Of an import that begins; behind what is there.
    pub(crate) fn new(id: &str, before: Option<&Self>) -> Self {
        Self { id: id.to_owned(), segments: 0, complete: false, stamp: before.map_or(0, |before| before.stamp) }
    }

    /// The target's marker.
    pub(crate) async fn read(ends: &Ends) -> Result<Option<Self>> {
        let page = read(ends, &partition(), &ReadQuery::one(NAME)).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(None) };
        let unreadable = |error: &dyn std::fmt::Display| Error::unreadable("reading the mark of an import", error);
        let json = match row.value.split_first() {
            Some((&VERSION, json)) => json,
            _ => return Err(unreadable(&"unknown format version")),
        };
        let marker: Self = serde_json::from_slice(json).map_err(|error| unreadable(&error))?;
        Ok(Some(Self { stamp: row.stamp, ..marker }))
    }

    /// Writes it, and waits until all that was written before is on disk too.
    pub(crate) async fn write(&mut self, ends: &Ends) -> Result<()> {
        self.stamp += 1;
        let unreadable = |error| Error::unreadable("writing the mark of an import", error);
        let json = serde_json::to_vec(self).map_err(unreadable)?;
        let value = [&[VERSION], &json[..]].concat().into();
        let row = Row { name: NAME, value, stamp: self.stamp, expires: None };
        let (store, batch) = (&ends.store, &Batch::of(partition(), vec![Change::Put(row)]));
        let write = |options| async move { store.apply(batch.clone(), &options).await };
        patiently_on_disk("writing the mark of an import", write).await
    }
}

fn partition() -> Partition {
    Partition::own(Table::Marks, Bytes::from_static(b"imports"))
}
