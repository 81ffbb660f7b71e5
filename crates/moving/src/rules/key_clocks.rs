//! The clocks of a range of keys, as the trees of a Riak show them in one answer: `/rangetrees/…/keysclocks`.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_rows::address::BucketAddress;
use percent_encoding::percent_encode;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::json_documents::{ESCAPED, ListingError};

/// The type of buckets without one: paths of folds do not name it.
const DEFAULT_TYPE: &[u8] = b"default";

/// The clocks of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyClocks(HashMap<Bytes, Bytes>);

/// The answer of a fold.
#[derive(Deserialize)]
struct FoldAnswer {
    #[serde(rename = "keys-clocks")]
    keys: Vec<FoldedKey>,
}

#[derive(Deserialize)]
struct FoldedKey {
    key: String,
    clock: FoldedClock,
}

/// The base64 of a clock: Riak's encoder shows a text as the list of its characters.
struct FoldedClock(Vec<u8>);

/// Reads a [`FoldedClock`] into its bytes, as they come.
struct ClockVisitor;

impl<'de> Visitor<'de> for ClockVisitor {
    type Value = FoldedClock;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a clock")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FoldedClock, E> {
        Ok(FoldedClock(text.as_bytes().to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut characters: A) -> Result<FoldedClock, A::Error> {
        let mut text = Vec::new();
        while let Some(character) = characters.next_element()? {
            text.push(character);
        }
        Ok(FoldedClock(text))
    }
}

impl<'de> Deserialize<'de> for FoldedClock {
    fn deserialize<D: Deserializer<'de>>(clock: D) -> Result<Self, D::Error> {
        clock.deserialize_any(ClockVisitor)
    }
}

impl KeyClocks {
    /// The path and query that ask for the clocks of the keys from `first` to `last`, both included; `None`: no filter can name them.
    #[must_use]
    pub fn target(bucket: &BucketAddress, first: &[u8], last: &[u8]) -> Option<String> {
        let [first, last] = [std::str::from_utf8(first).ok()?, std::str::from_utf8(last).ok()?];
        let filter = STANDARD.encode(json!({ "key_range": { "start": first, "end": last } }).to_string());
        let quoted = |name: &[u8]| percent_encode(name, ESCAPED).to_string();
        let of_type = match &bucket.bucket_type[..] {
            DEFAULT_TYPE => String::new(),
            name => format!("types/{}/", quoted(name)),
        };
        let (bucket, filter) = (quoted(&bucket.bucket), quoted(filter.as_bytes()));
        Some(format!("/rangetrees/{of_type}buckets/{bucket}/keysclocks?filter={filter}"))
    }

    /// Reads an answer, as far as it has these sorted keys. Without trees a Riak answers so as well, with no key.
    ///
    /// # Errors
    /// [`ListingError::Form`].
    pub fn from_answer(body: &[u8], keys: &[Bytes]) -> Result<Self, ListingError> {
        let answer: FoldAnswer = serde_json::from_slice(body).map_err(|_| ListingError::Form)?;
        let is_wanted = |key: &str| keys.binary_search_by(|wanted| wanted[..].cmp(key.as_bytes())).is_ok();
        let wanted = answer.keys.into_iter().filter(|found| is_wanted(&found.key));
        let clocks = wanted.map(|FoldedKey { key, clock: FoldedClock(text) }| {
            let clock = STANDARD.decode(text).map_err(|_| ListingError::Form)?;
            Ok((Bytes::from(key), Bytes::from(clock)))
        });
        clocks.collect::<Result<_, _>>().map(Self)
    }

    /// Whether it has none of the keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The clock of a key, as the header of a read has it.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::VectorClock;

    fn bucket(bucket_type: &'static str) -> BucketAddress {
        BucketAddress::new(bucket_type.into(), "o".into()).unwrap()
    }

    /// The request and the answer of a Riak 3.2.3.
    #[test]
    fn the_golden_fold_of_a_riak_is_asked_for_and_read() {
        let target = KeyClocks::target(&bucket("plain"), b"k000", b"k002").unwrap();
        let filter = "eyJrZXlfcmFuZ2UiOnsic3RhcnQiOiJrMDAwIiwiZW5kIjoiazAwMiJ9fQ%3D%3D";
        assert_eq!(target, format!("/rangetrees/types/plain/buckets/o/keysclocks?filter={filter}"));
        assert!(
            KeyClocks::target(&bucket("default"), b"a", b"b").unwrap().starts_with("/rangetrees/buckets/o/keysclocks?")
        );
        let body = br#"{"keys-clocks":[{"bucket-type":"plain","bucket":"v","key":"k","clock":[97,56,53,104,89,71,66,103,122,71,68,75,66,86,73,56,121,112,122,47,102,106,55,100,53,86,122,80,119,75,65,117,108,77,71,85,121,74,106,72,121,108,65,90,87,80,54,69,76,119,115,65]}]}"#;
        let clocks = KeyClocks::from_answer(body, &["j".into(), "k".into()]).unwrap();
        let clock = clocks.get(b"k").unwrap();
        assert_eq!(STANDARD.encode(clock), "a85hYGBgzGDKBVI8ypz/fj7d5VzPwKAulMGUyJjHylAZWP6ELwsA");
        assert_eq!(VectorClock::from_deflated(clock).unwrap().entries().len(), 1);
        assert_eq!(clocks.get(b"j"), None);
    }

    #[test]
    fn a_fold_without_trees_shows_no_key_and_a_page_of_a_proxy_is_none() {
        let read = |body: &[u8]| KeyClocks::from_answer(body, &["k".into()]);
        assert_eq!(read(br#"{"keys-clocks":[]}"#), Ok(KeyClocks::default()));
        for wrong in
            ["<html>", "{}", r#"{"keys-clocks":[{"key":"k"}]}"#, r#"{"keys-clocks":[{"key":"k","clock":[300]}]}"#]
        {
            assert_eq!(read(wrong.as_bytes()), Err(ListingError::Form), "{wrong}");
        }
        let text = read(br#"{"keys-clocks":[{"key":"k","clock":"AAAA"},{"key":"not asked for","clock":"*"}]}"#);
        assert!(text.is_ok_and(|clocks| clocks.get(b"k").is_some()));
    }

    #[test]
    fn a_key_that_is_not_utf_8_bounds_no_range() {
        assert_eq!(KeyClocks::target(&bucket("default"), b"\xff", b"\xff\xff"), None);
    }
}
