//! Listings on their way out: a page of names at a time, never all of them in memory.
//!
//! ```text
//! whole   {"keys":["a","b",…]}             one object, its array written as the pages come
//! stream  {"keys":["a"]}{"keys":["b"]}…    an object a page, an empty one at the end
//! ```
//! A deadline that passes before the first page makes `{"error":"timeout"}`. Later a stream ends with it; a whole listing breaks
//! off, so that no client takes a part for all.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, VARY};

use larder_gateway::views::Listing;
use larder_gateway::{Error, Gateway};
use larder_model::address::BucketAddress;

use super::body::Body;
use super::path::listed;
use super::query::Query;
use super::reply::{Fault, JSON, Reply, VARY_ENCODING, json, not_found_page, with_body};

/// How a listing is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not at all.
    None,
    /// As one JSON object.
    Whole,
    /// As an object a page.
    Stream,
}

impl Mode {
    /// What the parameter `name` asks for.
    #[must_use]
    pub(super) fn asked(query: &Query<'_>, name: &str) -> Self {
        match query.get(name) {
            Some(b"true") => Self::Whole,
            Some(b"stream") => Self::Stream,
            _ => Self::None,
        }
    }
}

/// What is listed.
#[derive(Debug, Clone)]
pub(super) enum Of {
    /// Keys of a bucket.
    Keys(BucketAddress),
    /// Buckets of a type.
    Buckets(Bytes),
}

/// A listing under way.
pub(super) struct Lister {
    gateway: Arc<Gateway>,
    of: Of,
    ends: Option<Duration>,
}

impl Lister {
    /// Begins one that has to end within `timeout`.
    #[must_use]
    pub(super) fn new(gateway: &Arc<Gateway>, of: Of, timeout: Option<Duration>) -> Self {
        let ends = timeout.map(|timeout| gateway.monotonic().saturating_add(timeout));
        Self { gateway: Arc::clone(gateway), of, ends }
    }

    fn word(&self) -> &'static str {
        match self.of {
            Of::Keys(_) => "keys",
            Of::Buckets(_) => "buckets",
        }
    }

    async fn page(&self, after: Option<Bytes>) -> Result<Listing, Error> {
        let timeout = self.ends.map(|ends| ends.saturating_sub(self.gateway.monotonic()));
        if timeout == Some(Duration::ZERO) {
            return Err(Error::TimedOut);
        }
        match &self.of {
            Of::Keys(bucket) => self.gateway.list_keys(bucket, after, timeout).await,
            Of::Buckets(bucket_type) => self.gateway.list_buckets(bucket_type, after, timeout).await,
        }
    }

    /// The answer. `head` is what the old bucket resource puts first: members without braces for a whole listing, an
    /// object for a stream.
    ///
    /// # Errors
    /// What the gateway answers to the first page, but for an unknown type, which is the page of a 404.
    pub(super) async fn reply(self, mode: Mode, head: Bytes) -> Result<Reply, Fault> {
        let first = match self.page(None).await {
            Ok(first) => first,
            Err(Error::UnknownType(_)) => return Ok(not_found_page()),
            Err(Error::TimedOut) => return Ok(json(StatusCode::OK, TIMEOUT)),
            Err(error) => return Err(error.into()),
        };
        if mode == Mode::Whole && first.next.is_none() {
            let body = [start(&head, self.word()), names(&first.names), b"]}".to_vec()].concat();
            return Ok(json(StatusCode::OK, body));
        }
        let body = match mode {
            Mode::Stream => self.stream(first, head),
            Mode::Whole | Mode::None => self.whole(first, head),
        };
        let mut reply = with_body(StatusCode::OK, body);
        reply.headers_mut().insert(CONTENT_TYPE, JSON);
        reply.headers_mut().insert(VARY, VARY_ENCODING);
        Ok(reply)
    }

    fn whole(self, first: Listing, head: Bytes) -> Body {
        let opening = start(&head, self.word());
        // Pages may be empty, the last one above all: a comma stands only between names.
        let pieces = stream::try_unfold(Some((self, Step::Page(opening, first), false)), |state| async move {
            let Some((lister, step, mut wrote)) = state else { return Ok(None) };
            let (mut piece, page) = match step {
                Step::Page(opening, page) => (opening, page),
                Step::After(after) => (Vec::new(), lister.page(Some(after)).await.map_err(broken_off)?),
            };
            if wrote && !page.names.is_empty() {
                piece.push(b',');
            }
            wrote |= !page.names.is_empty();
            piece.extend(names(&page.names));
            let next = match page.next {
                Some(after) => Some((lister, Step::After(after), wrote)),
                None => {
                    piece.extend_from_slice(b"]}");
                    None
                }
            };
            Ok(Some((Bytes::from(piece), next)))
        });
        Body::pieces(Box::pin(pieces), None)
    }

    fn stream(self, first: Listing, head: Bytes) -> Body {
        let pieces = stream::unfold(Some((self, Step::Page(head.to_vec(), first))), |state| async move {
            let (lister, step) = state?;
            let word = lister.word();
            let (mut piece, page) = match step {
                Step::Page(opening, page) => (opening, Ok(page)),
                Step::After(after) => (Vec::new(), lister.page(Some(after)).await),
            };
            let next = match page {
                Ok(page) => {
                    piece.extend(object(word, &page.names));
                    page.next.map(|after| (lister, Step::After(after)))
                }
                Err(error) => {
                    piece.extend(failure(&error));
                    return Some((Ok(Bytes::from(piece)), None));
                }
            };
            if next.is_none() {
                piece.extend(object(word, &[]));
            }
            Some((Ok(Bytes::from(piece)), next))
        });
        Body::pieces(Box::pin(pieces), None)
    }
}

enum Step {
    Page(Vec<u8>, Listing),
    After(Bytes),
}

const TIMEOUT: &[u8] = br#"{"error":"timeout"}"#;

fn failure(error: &Error) -> Vec<u8> {
    match error {
        Error::TimedOut => TIMEOUT.to_vec(),
        other => serde_json::json!({ "error": other.to_string() }).to_string().into_bytes(),
    }
}

fn broken_off(error: Error) -> io::Error {
    tracing::warn!(%error, "a listing broke off");
    io::Error::other(error)
}

/// Up to the array's first name.
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
fn write_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend(serde_json::Value::from(listed(name)).to_string().into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_json() {
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
        fn any_name_is_json(list in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..8), 0..4)) {
            let list: Vec<Bytes> = list.into_iter().map(Bytes::from).collect();
            let object: serde_json::Value = serde_json::from_slice(&object("keys", &list)).unwrap();
            prop_assert_eq!(object["keys"].as_array().unwrap().len(), list.len());
        }
    }
}
