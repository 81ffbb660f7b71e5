//! Data types as they are: the value of a counter, the elements of a set page by page, a map as a tree.

use larder_core::Error;
use larder_kv::datatypes::{DatatypeBegin, DatatypeFetch};
use larder_kv::rules::datatypes::{Datatype, DatatypeValue, EmbeddedValue, FieldValue, ValuePiece};
use larder_kv::{Gateway, Quorums};
use larder_rows::address::{Address, BucketAddress};
use maud::{Markup, html};

use super::kv_links::{READ_TIMEOUT, to_object};
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::pager;

/// Elements of a page of a set.
const ELEMENTS_SHOWN: usize = 200;
/// Largest map that is shown, in bytes of memory.
const MAP_BYTES_MAX: usize = 256 * 1024;

/// The data type of a bucket's values; `None` for objects. Values of the type `default` are shown as objects.
pub(super) async fn bucket_datatype(
    gateway: &Gateway,
    bucket: &BucketAddress,
) -> Result<Option<Datatype>, ConsoleFault> {
    if bucket.is_default_type() {
        return Ok(None);
    }
    match gateway.kv.bucket_datatype(bucket, Some(READ_TIMEOUT)).await {
        Ok(datatype) => Ok(Some(datatype)),
        Err(Error::NotDatatype | Error::DatatypeNeedsSiblings) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The value at an address.
pub(super) async fn shown_value(call: &ConsoleCall<'_>, address: &Address) -> Result<Markup, ConsoleFault> {
    let after = call.query.given("after");
    let begin = after.clone().map_or(DatatypeBegin::First, DatatypeBegin::AfterElement);
    let fetch = DatatypeFetch {
        address: address.clone(),
        quorums: Quorums::default(),
        include_context: false,
        begin,
        timeout: Some(READ_TIMEOUT),
    };
    let Some(mut reader) = call.gateway().kv.fetch_datatype(fetch).await? else {
        return Ok(html! { p { "There is no value with this key." } });
    };
    if !matches!(reader.datatype(), Datatype::Set | Datatype::Gset) {
        let (value, _) = reader.whole(MAP_BYTES_MAX).await?;
        return Ok(whole(&value));
    }
    let mut elements = Vec::new();
    // One more than a page shows that another page follows.
    while elements.len() <= ELEMENTS_SHOWN
        && let Some(pieces) = reader.next_page().await?
    {
        elements.extend(pieces.into_iter().filter_map(|piece| match piece {
            ValuePiece::Element(element) => Some(element),
            _ => None,
        }));
    }
    let more = elements.len() > ELEMENTS_SHOWN;
    elements.truncate(ELEMENTS_SHOWN);
    let first = to_object(&address.bucket, &address.key);
    let next = elements.last().filter(|_| more).map(|last| first.clone().with("after", last));
    Ok(html! {
        p.unit { "A " (reader.datatype().name()) "." }
        div.scroll {
            @if elements.is_empty() { p.empty { "No elements." } }
            @else { table { thead { tr { th { "Element" } } } tbody { @for one in &elements { tr { td { code { (shown(one)) } } } } } } }
        }
        (pager(after.map(|_| first), next))
    })
}

fn whole(value: &DatatypeValue) -> Markup {
    match value {
        DatatypeValue::Counter(count) => html! { p.unit { "A counter." } p.big { (count) } },
        DatatypeValue::Hll(estimate) => {
            html! { p.unit { "A HyperLogLog: about so many different elements." } p.big { (estimate) } }
        }
        DatatypeValue::Set(elements) | DatatypeValue::Gset(elements) => element_rows(elements),
        DatatypeValue::Map(fields) => html! { p.unit { "A map." } div.panel { (tree(fields)) } },
    }
}

/// The fields of a map. Maps are nested as deep as the model allows, which bounds the recursion.
fn tree(fields: &[FieldValue]) -> Markup {
    html! {
        ul.tree {
            @if fields.is_empty() { li.unit { "no fields" } }
            @for field in fields {
                li {
                    code { (shown(&field.field.name)) } " "
                    span.tag { (field.field.embedded.name()) } " "
                    (embedded(&field.value))
                }
            }
        }
    }
}

fn embedded(value: &EmbeddedValue) -> Markup {
    match value {
        EmbeddedValue::Counter(count) => html! { (count) },
        EmbeddedValue::Flag(flag) => html! { (flag) },
        EmbeddedValue::Register(None) => html! { span.unit { "unset" } },
        EmbeddedValue::Register(Some(bytes)) => html! { code { (shown(bytes)) } },
        EmbeddedValue::Set(elements) => element_rows(elements),
        EmbeddedValue::Map(fields) => tree(fields),
    }
}

fn element_rows(elements: &[bytes::Bytes]) -> Markup {
    html! {
        ul.tree {
            @if elements.is_empty() { li.unit { "no elements" } }
            @for one in elements { li { code { (shown(one)) } } }
        }
    }
}
