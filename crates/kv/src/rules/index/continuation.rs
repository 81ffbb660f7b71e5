//! The place where the next page of a query begins, as opaque text for a client.
//!
//! ```text
//! base64 of: version u8 | hash of the query u64 | term | key | crc32 of all before it
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};

use super::query::{IndexHit, IndexQuery};
use super::term::StoredTerm;

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 4;

/// The last hit of a page: the next page begins after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexPosition {
    /// Its term; empty for a query of keys.
    pub term: StoredTerm,
    /// Its key.
    pub key: Bytes,
}

/// A continuation that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContinuationError {
    /// The text is damaged, or no server of Larder made it.
    #[error("The continuation was not issued by this server or is damaged")]
    Foreign,
    /// It is one of another query.
    #[error("The continuation belongs to another query")]
    OtherQuery,
}

impl IndexPosition {
    /// The position of a hit.
    #[must_use]
    pub fn from_hit(hit: &IndexHit) -> Self {
        Self { term: hit.term.clone(), key: hit.key.clone() }
    }

    /// The text for a client, bound to `query`.
    #[must_use]
    pub fn encode(&self, query: &IndexQuery) -> String {
        let mut out = FieldEncoder::versioned(VERSION, 24 + self.term.0.len() + self.key.len());
        out.u64(query.id());
        out.bytes(&self.term.0);
        out.bytes(&self.key);
        let check = crc32fast::hash(out.written());
        out.raw(&check.to_be_bytes());
        STANDARD.encode(out.finish())
    }

    /// Reads the text that a client sent with `query`.
    ///
    /// # Errors
    /// [`ContinuationError`].
    pub fn decode(text: &[u8], query: &IndexQuery) -> Result<Self, ContinuationError> {
        let bytes = Bytes::from(STANDARD.decode(text).map_err(|_| ContinuationError::Foreign)?);
        let fields = bytes.len().checked_sub(CHECK_BYTES).ok_or(ContinuationError::Foreign)?;
        if crc32fast::hash(&bytes[..fields]).to_be_bytes() != bytes[fields..] {
            return Err(ContinuationError::Foreign);
        }
        let (id, position) = Self::parse(bytes.slice(..fields)).map_err(|_| ContinuationError::Foreign)?;
        if id == query.id() { Ok(position) } else { Err(ContinuationError::OtherQuery) }
    }

    fn parse(bytes: Bytes) -> Result<(u64, Self), DecodeError> {
        let mut rest = FieldDecoder::versioned(bytes, VERSION)?;
        let id = rest.u64()?;
        let position = Self { term: StoredTerm(rest.bytes()?), key: rest.bytes()? };
        rest.finish()?;
        Ok((id, position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::address::BucketAddress;
    use proptest::prelude::*;

    fn query(bucket: &'static str, from: &'static str) -> IndexQuery {
        let bucket = BucketAddress::new("t".into(), bucket.into()).unwrap();
        IndexQuery::range(bucket, &"f_bin".into(), &from.into(), &"z".into()).unwrap()
    }

    proptest! {
        #[test]
        fn continuations_decode_to_themselves_and_for_their_query_alone(term: Vec<u8>, key: Vec<u8>) {
            let position = IndexPosition { term: StoredTerm(term.into()), key: key.into() };
            let text = position.encode(&query("b", "a"));
            prop_assert_eq!(IndexPosition::decode(text.as_bytes(), &query("b", "a")), Ok(position));
            for other in [query("c", "a"), query("b", "b")] {
                prop_assert_eq!(IndexPosition::decode(text.as_bytes(), &other), Err(ContinuationError::OtherQuery));
            }
        }

        #[test]
        fn random_and_damaged_texts_are_refused(bytes: Vec<u8>, at: usize, bit in 0..7_u8) {
            let query = query("b", "a");
            prop_assert_eq!(IndexPosition::decode(&bytes, &query), Err(ContinuationError::Foreign));
            let mut text = IndexPosition::default().encode(&query).into_bytes();
            let at = at % text.len();
            text[at] ^= 1 << bit;
            prop_assert!(IndexPosition::decode(&text, &query).is_err());
        }
    }

    /// Continuations that clients may hold.
    #[test]
    fn the_golden_continuation_stays() {
        let position = IndexPosition { term: StoredTerm("m".into()), key: "k".into() };
        let golden = "AQWMXGwgSXNMAW0Bay1ddWU=";
        assert_eq!(position.encode(&query("b", "a")), golden);
        assert_eq!(IndexPosition::decode(golden.as_bytes(), &query("b", "a")), Ok(position));
    }
}
