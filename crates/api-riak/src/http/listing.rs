//! Answers with listings: one page of names at a time, so that a listing of any length takes little memory.
//!
//! ```text
//! whole   {"keys":["a","b",…]}             one object; its array is sent as pages arrive
//! stream  {"keys":["a"]}{"keys":["b"]}…    one object per page, an empty one at the end
//! ```
//! A deadline before the first page gives `{"error":"timeout"}`. A later one ends a stream with it, and breaks a whole listing
//! off, so that no client takes a part for the whole.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, VARY};
use larder_core::Error;
use larder_kv::Gateway;
use larder_kv::views::Listing;
use larder_net::break_off;

use super::body::RiakBody;
use super::call::RiakCall;
use super::errors::RiakFault;
use super::params::timeout;
use super::path::{QueryParams, listed_name};
use super::reply::{JSON, RiakResponse, VARY_ENCODING, json, not_found_page, page, with_body};
use super::{accept, props};
use crate::listing::{Lister, ListingTarget};

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingMode {
    /// No listing.
    None,
    /// One JSON object.
    Whole,
    /// One object per page.
    Stream,
}

impl ListingMode {
    /// The form that the parameter `name` asks for.
    #[must_use]
    pub(super) fn from_query(query: &QueryParams<'_>, name: &str) -> Self {
        match query.get(name) {
            Some(b"true") => Self::Whole,
            Some(b"stream") => Self::Stream,
            _ => Self::None,
        }
    }
}

impl Lister {
    fn word(&self) -> &'static str {
        match self.target {
            ListingTarget::Keys(_) => "keys",
            ListingTarget::Buckets(_) => "buckets",
        }
    }

    /// The answer. `head` is the part that the old bucket resource sends first: members without braces for a whole listing, an
    /// object for a stream.
    ///
    /// # Errors
    /// The gateway's error for the first page; an unknown type gets the 404 page instead.
    pub(super) async fn reply(self, mode: ListingMode, head: Bytes) -> Result<RiakResponse, RiakFault> {
        let first = match self.page(None).await {
            Ok(first) => first,
            Err(Error::UnknownType(_)) => return Ok(not_found_page()),
            Err(Error::TimedOut) => return Ok(json(StatusCode::OK, TIMEOUT)),
            Err(error) => return Err(error.into()),
        };
        if mode == ListingMode::Whole && first.next.is_none() {
            let body = [start(&head, self.word()), names(&first.names), b"]}".to_vec()].concat();
            return Ok(json(StatusCode::OK, body));
        }
        let body = match mode {
            ListingMode::Stream => self.stream(first, head),
            ListingMode::Whole | ListingMode::None => self.whole(first, head),
        };
        let mut reply = with_body(StatusCode::OK, body);
        reply.headers_mut().insert(CONTENT_TYPE, JSON);
        reply.headers_mut().insert(VARY, VARY_ENCODING);
        Ok(reply)
    }

    fn whole(self, first: Listing, head: Bytes) -> RiakBody {
        let opening = start(&head, self.word());
        // Pages may be empty, most of all the last one, so a comma stands only between names.
        let pieces = stream::try_unfold(Some((self, ListingStep::Page(opening, first), false)), |state| async move {
            let Some((lister, step, mut wrote)) = state else { return Ok(None) };
            let (mut piece, page) = match step {
                ListingStep::Page(opening, page) => (opening, page),
                ListingStep::After(after) => (Vec::new(), lister.page(Some(after)).await.map_err(aborted)?),
            };
            if wrote && !page.names.is_empty() {
                piece.push(b',');
            }
            wrote |= !page.names.is_empty();
            piece.extend(names(&page.names));
            let next = match page.next {
                Some(after) => Some((lister, ListingStep::After(after), wrote)),
                None => {
                    piece.extend_from_slice(b"]}");
                    None
                }
            };
            Ok(Some((Bytes::from(piece), next)))
        });
        RiakBody::pieces(Box::pin(pieces), None)
    }

    fn stream(self, first: Listing, head: Bytes) -> RiakBody {
        let documents = stream::unfold(Some((self, ListingStep::Page(Vec::new(), first))), |state| async move {
            let (lister, step) = state?;
            let word = lister.word();
            let page = match step {
                ListingStep::Page(_, page) => Ok(page),
                ListingStep::After(after) => lister.page(Some(after)).await,
            };
            let Listing { names, next } = match page {
                Ok(page) => page,
                Err(error) => return Some((vec![failure(&error).into()], None)),
            };
            let mut documents = vec![object(word, &names).into()];
            if next.is_none() {
                documents.push(object(word, &[]).into());
            }
            Some((documents, next.map(|after| (lister, ListingStep::After(after)))))
        });
        let head = (!head.is_empty()).then_some(head);
        RiakBody::documents(stream::iter([head.into_iter().collect()]).chain(documents))
    }
}

enum ListingStep {
    Page(Vec<u8>, Listing),
    After(Bytes),
}

const TIMEOUT: &[u8] = br#"{"error":"timeout"}"#;

/// The JSON object of an error that ends a stream.
pub(super) fn failure(error: &Error) -> Vec<u8> {
    match error {
        Error::TimedOut => TIMEOUT.to_vec(),
        other => serde_json::json!({ "error": other.to_string() }).to_string().into_bytes(),
    }
}

/// The error that breaks a whole answer off.
pub(super) fn aborted(error: Error) -> io::Error {
    break_off("read of a listing's page", error)
}

/// The text before the array's first name.
fn start(head: &[u8], word: &str) -> Vec<u8> {
    let comma: &[u8] = if head.is_empty() { b"" } else { b"," };
    [b"{", head, comma, format!("\"{word}\":[").as_bytes()].concat()
}

fn object(word: &str, list: &[Bytes]) -> Vec<u8> {
    [start(b"", word), names(list), b"]}".to_vec()].concat()
}

/// Names as the items of a JSON array.
fn names(list: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.iter().map(|name| name.len() + 3).sum());
    for (position, name) in list.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_name(name, &mut out);
    }
    out
}

/// A name as a JSON string.
pub(super) fn write_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend(serde_json::Value::from(listed_name(name)).to_string().into_bytes());
}

/// GET and HEAD of `/…/keys`: with `keys=true` or `keys=stream` the keys, else an empty object.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn list_keys(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    match ListingMode::from_query(&call.query, "keys") {
        ListingMode::None => match call.gateway.types().props(&call.bucket_type()).await {
            Ok(_) => Ok(json(StatusCode::OK, "{}")),
            Err(error) => props::unknown_type_page(error),
        },
        mode => Lister::new(gateway, ListingTarget::Keys(call.bucket()?), timeout).reply(mode, Bytes::new()).await,
    }
}

/// GET and HEAD of `/buckets`, `/types/T/buckets` and `/riak`.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn list_buckets(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    let bucket_type = call.bucket_type();
    match ListingMode::from_query(&call.query, "buckets") {
        ListingMode::None => match call.gateway.types().props(&bucket_type).await {
            Ok(_) => Ok(json(StatusCode::OK, r#"{"buckets":[]}"#)),
            Err(error) => props::unknown_type_page(error),
        },
        mode => Lister::new(gateway, ListingTarget::Buckets(bucket_type), timeout).reply(mode, Bytes::new()).await,
    }
}

/// GET and HEAD of `/riak/B`: properties unless `props=false`, and keys if `keys` asks for them.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn get_old(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let (mode, with_props) = (ListingMode::from_query(&call.query, "keys"), !call.query.is("props", "false"));
    if mode == ListingMode::None && !with_props {
        return Ok(page(StatusCode::NOT_FOUND));
    }
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    let bucket = call.bucket()?;
    let shown =
        if with_props { props::object(&call.gateway.types().bucket_props(&bucket).await?) } else { "{}".into() };
    let head = match mode {
        ListingMode::None => return Ok(json(StatusCode::OK, shown)),
        ListingMode::Stream => shown,
        // The members without the object's braces.
        ListingMode::Whole => {
            shown.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().to_owned()
        }
    };
    Lister::new(gateway, ListingTarget::Keys(bucket), timeout).reply(mode, Bytes::from(head)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn listed_names_are_json() {
        let list = [Bytes::from("a\"b"), Bytes::from("п"), Bytes::from_static(b"\xff/")];
        assert_eq!(
            String::from_utf8(object("keys", &list)).unwrap(),
            "{\"keys\":[\"a\\\"b\",\"п\",\"\u{FFFD}%FF%2F\"]}"
        );
        assert_eq!(object("buckets", &[]), br#"{"buckets":[]}"#);
        assert_eq!(start(br#""props":{}"#, "keys"), br#"{"props":{},"keys":["#);
    }

    proptest! {
        #[test]
        fn arbitrary_names_are_listed_as_json(list in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..8), 0..4)) {
            let list: Vec<Bytes> = list.into_iter().map(Bytes::from).collect();
            let object: serde_json::Value = serde_json::from_slice(&object("keys", &list)).unwrap();
            prop_assert_eq!(object["keys"].as_array().unwrap().len(), list.len());
        }
    }
}
