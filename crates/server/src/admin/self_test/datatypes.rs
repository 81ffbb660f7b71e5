//! The cycle of a data type: an update, a removal with the context of a read, and a delete, each with a read after it.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldName,
    FieldValue, MapEdits, SetEdit,
};
use larder_kv::{Gateway, KvDelete, Quorums};
use larder_rows::address::{Address, BucketAddress};

use super::BUCKET;

/// Memory for a value of this test.
const VALUE_BYTES: usize = 4096;

/// For each data type the first active bucket type that has it; none where the engine has no data types.
///
/// # Errors
/// The store's.
pub(super) async fn types_in_use(gateway: &Gateway) -> Result<Vec<(Bytes, Datatype)>> {
    let mut types = BTreeMap::new();
    for (name, active) in gateway.types().list().await? {
        let bucket = BucketAddress::new(name.clone(), Bytes::from_static(BUCKET))?;
        if !active || bucket.is_default_type() {
            continue;
        }
        match gateway.kv.bucket_datatype(&bucket, None).await {
            Ok(datatype) => drop(types.entry(datatype.name()).or_insert((name, datatype))),
            Err(Error::NotDatatype | Error::NotBuilt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(types.into_values().collect())
}

/// Whether each read shows what the write before it left.
///
/// # Errors
/// Those of the requests.
pub(super) async fn round_trip(gateway: &Gateway, bucket_type: Bytes, datatype: Datatype) -> Result<bool> {
    let bucket = BucketAddress::new(bucket_type, Bytes::from_static(BUCKET))?;
    let address = Address::new(bucket, gateway.context().new_unique_name().into())?;
    let (update, written) = first_update(datatype);
    let mut is_same = change(gateway, &address, update, None).await? == Some(written);
    if let Some((removal, left)) = removal(datatype) {
        let context = read(gateway, &address).await?.and_then(|(_, context)| context);
        is_same &= change(gateway, &address, removal, context).await? == Some(left);
    }
    let delete = KvDelete {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        quorums: Quorums::default(),
        timeout: None,
    };
    gateway.kv.delete(delete).await?;
    Ok(is_same && read(gateway, &address).await?.is_none())
}

/// An update of a new key, and the value after it.
fn first_update(datatype: Datatype) -> (DatatypeUpdate, DatatypeValue) {
    let both = || vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    match datatype {
        Datatype::Counter => (DatatypeUpdate::Counter(3), DatatypeValue::Counter(3)),
        Datatype::Set => {
            (DatatypeUpdate::Set(both().into_iter().map(SetEdit::Add).collect()), DatatypeValue::Set(both()))
        }
        Datatype::Gset => (DatatypeUpdate::Gset(both()), DatatypeValue::Gset(both())),
        Datatype::Hll => (DatatypeUpdate::Hll(both()), DatatypeValue::Hll(2)),
        Datatype::Map => {
            let edit = |update| FieldEdit { name: Bytes::from_static(b"f"), update };
            let updates =
                vec![edit(EmbeddedUpdate::Register(Bytes::from_static(b"a"))), edit(EmbeddedUpdate::Flag(true))];
            let register = EmbeddedValue::Register(Some(Bytes::from_static(b"a")));
            let fields = vec![field(EmbeddedType::Register, register), flag()];
            (DatatypeUpdate::Map(MapEdits { removes: Vec::new(), updates }), DatatypeValue::Map(fields))
        }
    }
}

/// A removal from the value of the first update, and what it leaves; `None` for types without removals.
fn removal(datatype: Datatype) -> Option<(DatatypeUpdate, DatatypeValue)> {
    match datatype {
        Datatype::Set => Some((
            DatatypeUpdate::Set(vec![SetEdit::Remove(Bytes::from_static(b"a"))]),
            DatatypeValue::Set(vec![Bytes::from_static(b"b")]),
        )),
        Datatype::Map => {
            let removes = vec![FieldName::new("f", EmbeddedType::Register)];
            Some((DatatypeUpdate::Map(MapEdits { removes, updates: Vec::new() }), DatatypeValue::Map(vec![flag()])))
        }
        Datatype::Counter | Datatype::Gset | Datatype::Hll => None,
    }
}

fn field(embedded: EmbeddedType, value: EmbeddedValue) -> FieldValue {
    FieldValue { field: FieldName::new("f", embedded), value }
}

fn flag() -> FieldValue {
    field(EmbeddedType::Flag, EmbeddedValue::Flag(true))
}

/// Updates, and reads the value after it.
async fn change(
    gateway: &Gateway,
    address: &Address,
    update: DatatypeUpdate,
    context: Option<Bytes>,
) -> Result<Option<DatatypeValue>> {
    let change = DatatypeChange {
        address: address.clone(),
        update,
        context,
        request_id: None,
        quorums: Quorums::default(),
        timeout: None,
    };
    gateway.kv.update_datatype(change).await?;
    Ok(read(gateway, address).await?.map(|(value, _)| value))
}

/// The value and its context.
async fn read(gateway: &Gateway, address: &Address) -> Result<Option<(DatatypeValue, Option<Bytes>)>> {
    let fetch = DatatypeFetch {
        address: address.clone(),
        quorums: Quorums::default(),
        include_context: true,
        begin: DatatypeBegin::First,
        timeout: None,
    };
    match gateway.kv.fetch_datatype(fetch).await? {
        Some(reader) => reader.whole(VALUE_BYTES).await.map(Some),
        None => Ok(None),
    }
}
