//! Keys: the buckets of a type, and the keys of a bucket, in pages whose addresses stay.

use bytes::Bytes;
use hyper::StatusCode;
use larder_kv::rules::index::{IndexPosition, IndexQuery, IndexScope};
use larder_rows::address::BucketAddress;
use maud::{Markup, html};

use super::datatype;
use super::index_query::query_form;
use super::kv_links::{READ_TIMEOUT, above, to_buckets, to_keys, to_object};
use super::object_changes::create_form;
use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, framed, pager, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page};

/// Keys of a page.
const KEYS_SHOWN: usize = 100;
/// `GET /keys`: types, the buckets of `type`, or the keys of `type` and `bucket`.
pub(super) async fn keys(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let Some(bucket_type) = call.query.given("type") else { return types(call).await };
    match call.query.given("bucket") {
        None => buckets(call, &bucket_type).await,
        Some(bucket) => {
            let address = BucketAddress::new(bucket_type, bucket).map_err(larder_core::Error::from)?;
            bucket_keys(call, &address).await
        }
    }
}

async fn types(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let types = call.gateway().types().list().await?;
    let body = html! {
        h1 { "Keys" }
        p { "Choose a bucket type." }
        div.scroll {
            table {
                thead { tr { th { "Type" } } }
                tbody {
                    @for (name, _) in types.iter().filter(|(_, is_active)| *is_active) {
                        tr { td { a href=(to_buckets(name).text()) { (shown(name)) } } }
                    }
                }
            }
        }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, "Keys", &body)))
}

async fn buckets(call: &ConsoleCall<'_>, bucket_type: &Bytes) -> Result<ConsoleReply, ConsoleFault> {
    let after = call.query.given("after");
    let listing = call.gateway().kv.list_buckets(bucket_type, after.clone(), Some(READ_TIMEOUT)).await?;
    let next = listing.next.map(|next| to_buckets(bucket_type).with("after", &next));
    let body = html! {
        (trail(&[(Href::to("/keys"), "Keys".to_owned())], &shown(bucket_type)))
        h1 { "Buckets of " (shown(bucket_type)) }
        (finder("/keys", &[("type", bucket_type)], "bucket", "Open a bucket by its name", &Bytes::new()))
        div.scroll {
            @if listing.names.is_empty() { p.empty { "No bucket of this page holds a key." } }
            @else {
                table {
                    thead { tr { th { "Bucket" } } }
                    tbody {
                        @for name in &listing.names {
                            tr { td { a href=(to_keys(bucket_type, name).text()) { (shown(name)) } } }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| to_buckets(bucket_type)), next))
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, "Buckets", &body)))
}

async fn bucket_keys(call: &ConsoleCall<'_>, bucket: &BucketAddress) -> Result<ConsoleReply, ConsoleFault> {
    let (prefix, after) = (call.query.bytes("prefix"), call.query.given("after"));
    let scope = if prefix.is_empty() { IndexScope::AllKeys } else { IndexScope::KeyPrefix { prefix: prefix.clone() } };
    let position = after.clone().map(|key| IndexPosition { key, ..IndexPosition::default() });
    let query = IndexQuery::new(bucket.clone(), scope);
    let mut reader = call.gateway().kv.query_index(query, position, Some(READ_TIMEOUT));
    let found = reader.next(KEYS_SHOWN).await?;
    let first = to_keys(&bucket.bucket_type, &bucket.bucket).with("prefix", &prefix);
    let last = found.hits.last().map(|hit| hit.key.clone());
    let next = last.filter(|_| !found.is_last).map(|last| first.clone().with("after", &last));
    let is_datatype = datatype::bucket_datatype(call.gateway(), bucket).await?.is_some();
    let named: [(&'static str, &Bytes); 2] = [("type", &bucket.bucket_type), ("bucket", &bucket.bucket)];
    let body = html! {
        (trail(&above(bucket, false), &shown(&bucket.bucket)))
        h1 { "Keys of " (shown(&bucket.bucket)) }
        div.finders {
            (finder("/keys", &named, "prefix", "Keys that begin with", &prefix))
            (finder("/object", &named, "key", "Open a key", &Bytes::new()))
        }
        div.scroll {
            @if found.hits.is_empty() { p.empty { "No keys." } }
            @else {
                table {
                    thead { tr { th { "Key" } } }
                    tbody {
                        @for hit in &found.hits {
                            tr { td { a href=(to_object(bucket, &hit.key).text()) { (shown(&hit.key)) } } }
                        }
                    }
                }
            }
        }
        (pager(after.map(|_| first), next))
        details { summary { "Query an index" } (query_form(bucket, None)) }
        @if call.may_change() && !is_datatype { (create_form(call, bucket, None)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, "Keys", &body)))
}

/// A form that opens a page by a name. A name with other bytes than visible text cannot be typed: links reach it.
fn finder(path: &str, hidden: &[(&'static str, &Bytes)], field: &str, label: &str, value: &Bytes) -> Markup {
    let is_typed = |name: &Bytes| shown(name).as_bytes() == &name[..];
    let value = if is_typed(value) { shown(value) } else { String::new() };
    html! {
        @if hidden.iter().all(|(_, value)| is_typed(value)) {
            form.finder method="get" action=(path) {
                @for (name, value) in hidden { input type="hidden" name=(name) value=(shown(value)); }
                label {
                    (label)
                    input name=(field) value=(value) autocomplete="off" spellcheck="false";
                }
                button type="submit" { "Open" }
            }
        }
    }
}
