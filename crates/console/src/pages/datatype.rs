//! Data types as they are: the value of a counter, the elements of a set page by page, a map as a tree.

use bytes::Bytes;
use larder_core::Error;
use larder_kv::datatypes::{DatatypeBegin, DatatypeFetch};
use larder_kv::rules::datatypes::{Datatype, DatatypeValue, EmbeddedValue, FieldValue, ValuePiece};
use larder_kv::{Gateway, Quorums};
use larder_rows::address::{Address, BucketAddress};
use maud::{Markup, html};

use super::kv_links::{READ_TIMEOUT, to_object};
use super::map_path::MapPath;
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

/// A value on its page.
pub(super) struct ShownDatatype {
    /// The value.
    pub(super) markup: Markup,
    /// The context of the read: a removal takes what the page showed, and nothing newer.
    pub(super) context: Option<Bytes>,
    /// The maps that a form edits, and whether there are more; none for other types.
    pub(super) maps: (Vec<MapPath>, bool),
}

impl ShownDatatype {
    fn new(markup: Markup, context: Option<Bytes>) -> Self {
        Self { markup, context, maps: MapPath::list(&[]) }
    }
}

/// A read of the whole value, or of the part that begins there.
fn whole_fetch(address: &Address, begin: DatatypeBegin) -> DatatypeFetch {
    let (address, quorums, timeout) = (address.clone(), Quorums::default(), Some(READ_TIMEOUT));
    DatatypeFetch { address, quorums, include_context: true, begin, timeout }
}

/// The fields of a map as it is now; none where there is no value.
pub(super) async fn stored_fields(call: &ConsoleCall<'_>, address: &Address) -> Result<Vec<FieldValue>, ConsoleFault> {
    let reader = call.gateway().kv.fetch_datatype(whole_fetch(address, DatatypeBegin::First)).await?;
    let Some(reader) = reader else { return Ok(Vec::new()) };
    match reader.whole(MAP_BYTES_MAX).await? {
        (DatatypeValue::Map(fields), _) => Ok(fields),
        _ => Ok(Vec::new()),
    }
}

/// Whether a set has this element now.
pub(super) async fn has_element(
    call: &ConsoleCall<'_>,
    address: &Address,
    element: &Bytes,
) -> Result<bool, ConsoleFault> {
    let fetch = whole_fetch(address, DatatypeBegin::First);
    Ok(call.gateway().kv.has_element(fetch, element).await?.unwrap_or(false))
}

/// The value at an address.
pub(super) async fn shown_value(call: &ConsoleCall<'_>, address: &Address) -> Result<ShownDatatype, ConsoleFault> {
    let after = call.query.given("after");
    let begin = after.clone().map_or(DatatypeBegin::First, DatatypeBegin::AfterElement);
    let Some(mut reader) = call.gateway().kv.fetch_datatype(whole_fetch(address, begin)).await? else {
        return Ok(ShownDatatype::new(html! { p { "There is no value with this key." } }, None));
    };
    if !matches!(reader.datatype(), Datatype::Set | Datatype::Gset) {
        let (value, context) = reader.whole(MAP_BYTES_MAX).await?;
        let shown = ShownDatatype::new(whole(&value), context);
        return Ok(match value {
            DatatypeValue::Map(fields) => ShownDatatype { maps: MapPath::list(&fields), ..shown },
            _ => shown,
        });
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
    let markup = html! {
        p.unit { "A " (reader.datatype().name()) "." }
        div.scroll {
            @if elements.is_empty() { p.empty { "No elements." } }
            @else { table { thead { tr { th { "Element" } } } tbody { @for one in &elements { tr { td { code { (shown(one)) } } } } } } }
        }
        (pager(after.map(|_| first), next))
    };
    Ok(ShownDatatype::new(markup, reader.context()))
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

fn element_rows(elements: &[Bytes]) -> Markup {
    html! {
        ul.tree {
            @if elements.is_empty() { li.unit { "no elements" } }
            @for one in elements { li { code { (shown(one)) } } }
        }
    }
}
