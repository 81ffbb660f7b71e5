//! A query of a secondary index: the keys whose objects have a term, or one of a range.

use bytes::Bytes;
use hyper::StatusCode;
use larder_core::Error;
use larder_kv::rules::index::{IndexPosition, IndexQuery};
use larder_rows::address::BucketAddress;
use maud::{Markup, html};

use super::kv_links::{READ_TIMEOUT, above, to_object};
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, framed, pager, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page};

/// The refusal of a name or a value.
const UNFIT: &str = "The name of an index ends in _bin or _int, and the values of the latter are whole numbers.";
/// Hits of a page.
const HITS_SHOWN: usize = 100;

/// `GET /keys/index`: the hits from `from` to `to`; without `to`, of `from` alone.
pub(super) async fn query(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let given = &call.query;
    let bucket = BucketAddress::new(given.bytes("type"), given.bytes("bucket")).map_err(Error::from)?;
    let (field, from) = (given.bytes("field"), given.bytes("from"));
    let to = given.given("to").unwrap_or_else(|| from.clone());
    let index = IndexQuery::range(bucket.clone(), &field, &from, &to);
    let index = index.map_err(|_| ConsoleFault::bad(UNFIT))?;
    let after = given.given("after");
    let position = after.as_ref().map(|after| IndexPosition::decode(after, &index)).transpose();
    let position = position.map_err(|error| ConsoleFault::sentence(&error.to_string()))?;
    let mut reader = call.gateway().kv.query_index(index.clone(), position, Some(READ_TIMEOUT));
    let found = reader.next(HITS_SHOWN).await?;
    let first = to_query(&bucket, &field, &from, &to);
    let last = found.hits.last().filter(|_| !found.is_last);
    let next = last.map(|hit| first.clone().with("after", IndexPosition::from_hit(hit).encode(&index).as_bytes()));
    let title = format!("Index {}", shown(&field));
    let body = html! {
        (trail(&above(&bucket, true), &title))
        h1 { (title) }
        (query_form(&bucket, Some((&field, &from, &to))))
        div.scroll {
            @if found.hits.is_empty() { p.empty { "No object has such a term." } }
            @else {
                table {
                    thead { tr { th { "Term" } th { "Key" } } }
                    tbody {
                        @for hit in &found.hits {
                            tr {
                                td { code { (index.show_term(hit).map(|term| shown(&term)).unwrap_or_default()) } }
                                td.name { a href=(to_object(&bucket, &hit.key).text()) { (shown(&hit.key)) } }
                            }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| first), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, &title, &body)))
}

/// A form of a query; one of a bucket whose name cannot be typed has none.
pub(super) fn query_form(bucket: &BucketAddress, query: Option<(&Bytes, &Bytes, &Bytes)>) -> Markup {
    let (bucket_type, name) = (shown(&bucket.bucket_type), shown(&bucket.bucket));
    let is_typed = bucket_type.as_bytes() == &bucket.bucket_type[..] && name.as_bytes() == &bucket.bucket[..];
    let (field, from, to) = query.map(|(field, from, to)| (shown(field), shown(from), shown(to))).unwrap_or_default();
    html! {
        @if is_typed {
            form.finder.query method="get" action="/keys/index" {
                input type="hidden" name="type" value=(bucket_type);
                input type="hidden" name="bucket" value=(name);
                label { "Index, such as age_int or name_bin" input name="field" value=(field) required autocomplete="off" spellcheck="false"; }
                label { "From" input name="from" value=(from) autocomplete="off" spellcheck="false"; }
                label { "To; empty for one value" input name="to" value=(to) autocomplete="off" spellcheck="false"; }
                button type="submit" { "Query" }
            }
        }
    }
}

fn to_query(bucket: &BucketAddress, field: &[u8], from: &[u8], to: &[u8]) -> Href {
    let href = Href::to("/keys/index").with("type", &bucket.bucket_type).with("bucket", &bucket.bucket);
    href.with("field", field).with("from", from).with("to", to)
}
