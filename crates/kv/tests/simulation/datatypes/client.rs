//! A client of data types.

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_kv::Quorums;
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{
    DatatypeUpdate, DatatypeValue, EmbeddedUpdate, FieldEdit, FieldName, MapEdits, SetEdit,
};
use larder_rows::Row;
use larder_store::{CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store};

use crate::simulation::world::{SimWorld, address};

/// A key of each kind: the name of a type with this data type.
pub(crate) const KINDS: [&str; 5] = ["counter", "set", "gset", "map", "hll"];

pub(crate) async fn add_types(world: &SimWorld) {
    for kind in KINDS {
        world.add_type(kind, &format!("{{\"datatype\":\"{kind}\"}}")).await;
    }
}

pub(crate) fn fetch_of(kind: &'static str, key: &str) -> DatatypeFetch {
    DatatypeFetch {
        address: address(kind, key),
        quorums: Quorums::default(),
        include_context: true,
        begin: DatatypeBegin::First,
        timeout: None,
    }
}

pub(crate) fn change_of(kind: &'static str, key: &str, update: DatatypeUpdate) -> DatatypeChange {
    DatatypeChange {
        address: address(kind, key),
        update,
        context: None,
        request_id: None,
        quorums: Quorums::default(),
        timeout: None,
    }
}

pub(crate) fn adds(elements: &[&str]) -> DatatypeUpdate {
    DatatypeUpdate::Set(
        elements.iter().map(|element| SetEdit::Add(Bytes::copy_from_slice(element.as_bytes()))).collect(),
    )
}

pub(crate) fn removes(elements: &[&str]) -> DatatypeUpdate {
    let remove = |element: &&str| SetEdit::Remove(Bytes::copy_from_slice(element.as_bytes()));
    DatatypeUpdate::Set(elements.iter().map(remove).collect())
}

pub(crate) fn field(name: &str, update: EmbeddedUpdate) -> DatatypeUpdate {
    let edit = FieldEdit { name: Bytes::copy_from_slice(name.as_bytes()), update };
    DatatypeUpdate::Map(MapEdits { removes: Vec::new(), updates: vec![edit] })
}

pub(crate) fn remove_field(field: FieldName) -> DatatypeUpdate {
    DatatypeUpdate::Map(MapEdits { removes: vec![field], updates: Vec::new() })
}

impl SimWorld {
    /// Updates a data type with a context, or without.
    pub(crate) async fn update(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
        update: DatatypeUpdate,
        context: Option<&Bytes>,
    ) -> Result<()> {
        let change = DatatypeChange { context: context.cloned(), ..change_of(kind, key, update) };
        self.nodes[at].gateway.kv.update_datatype(change).await
    }

    /// A whole value with its context.
    pub(crate) async fn fetch(
        &self,
        at: usize,
        kind: &'static str,
        key: &str,
    ) -> Result<Option<(DatatypeValue, Option<Bytes>)>> {
        match self.nodes[at].gateway.kv.fetch_datatype(fetch_of(kind, key)).await? {
            Some(reader) => reader.whole(usize::MAX).await.map(Some),
            None => Ok(None),
        }
    }

    /// The elements of a set; none of a set that is not there.
    pub(crate) async fn elements(&self, at: usize, key: &str) -> Result<(Vec<String>, Option<Bytes>)> {
        match self.fetch(at, "set", key).await? {
            Some((DatatypeValue::Set(elements), context)) => {
                let texts = elements.iter().map(|element| String::from_utf8_lossy(element).into_owned());
                Ok((texts.collect(), context))
            }
            Some(other) => Err(Error::Internal(format!("{other:?} is no set"))),
            None => Ok((Vec::new(), None)),
        }
    }

    /// The value of a counter.
    pub(crate) async fn total(&self, at: usize, kind: &'static str, key: &str) -> Result<Option<i128>> {
        match self.fetch(at, kind, key).await? {
            Some((DatatypeValue::Counter(total), _)) => Ok(Some(total)),
            Some(other) => Err(Error::Internal(format!("{other:?} is no counter"))),
            None => Ok(None),
        }
    }

    /// The rows of a key as they are stored.
    pub(crate) async fn stored_rows(&self, kind: &'static str, key: &str) -> Vec<Row> {
        let partition = Partition::datatype(&address(kind, key), 3);
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
        let options = CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered);
        self.store.read(&partition, &ReadQuery::all(usize::MAX), &options).await.unwrap().rows
    }
}
