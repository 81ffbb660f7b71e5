//! The checkpoint of an import: its export and its progress. The target stores it, so it cannot describe another target, and
//! writes it only after the segments it counts are on disk.

use bytes::Bytes;
use larder_store::{Batch, Change, Partition, ReadQuery, Row, Table, Timestamp};
use serde::{Deserialize, Serialize};

use crate::retry::{read, with_durable_retries};
use crate::{Error, Result, StorePair};

const NAME: Bytes = Bytes::from_static(b"import");
const VERSION: u8 = 1;

/// The checkpoint of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportCheckpoint {
    /// The export's identity.
    pub(crate) id: String,
    /// Segments in the target, and on disk.
    pub(crate) segments: u32,
    /// Whether all segments are there.
    pub(crate) complete: bool,
    #[serde(skip)]
    stamp: Timestamp,
}

impl ImportCheckpoint {
    /// The checkpoint of a new import; it replaces `before`.
    pub(crate) fn new(id: &str, before: Option<&Self>) -> Self {
        Self {
            id: id.to_owned(),
            segments: 0,
            complete: false,
            stamp: before.map_or(Timestamp::ZERO, |before| before.stamp),
        }
    }

    /// The target's checkpoint, if it has one.
    pub(crate) async fn read(stores: &StorePair) -> Result<Option<Self>> {
        let page = read(stores, &partition(), &ReadQuery::one(NAME)).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(None) };
        let unreadable = |error: &dyn std::fmt::Display| Error::unreadable("reading the mark of an import", error);
        let json = match row.value.split_first() {
            Some((&VERSION, json)) => json,
            _ => return Err(unreadable(&"unknown format version")),
        };
        let checkpoint: Self = serde_json::from_slice(json).map_err(|error| unreadable(&error))?;
        Ok(Some(Self { stamp: row.stamp, ..checkpoint }))
    }

    /// Writes the checkpoint to disk. The sync covers all earlier writes: a crash never leaves a checkpoint ahead of its rows.
    pub(crate) async fn write(&mut self, stores: &StorePair) -> Result<()> {
        // A greater stamp makes this row win over the previous checkpoint.
        self.stamp += 1;
        let unreadable = |error| Error::unreadable("writing the mark of an import", error);
        let json = serde_json::to_vec(self).map_err(unreadable)?;
        let value = [&[VERSION], &json[..]].concat().into();
        let row = Row { name: NAME, value, stamp: self.stamp, expires: None };
        let (store, batch) = (&stores.store, &Batch::single(partition(), vec![Change::Put(row)]));
        let write = |options| async move { store.apply(batch.clone(), &options).await };
        with_durable_retries("writing the mark of an import", write).await
    }
}

fn partition() -> Partition {
    Partition::new(Table::Marks, Bytes::from_static(b"imports"))
}
