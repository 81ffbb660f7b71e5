//! The documents of a streamed listing: one JSON object after another, without anything in between.

use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use serde_json::Value;

/// Most bytes of one document.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// The mark of a percent-encoded name: a Larder lists names that are not UTF-8 so.
const NON_UTF8_MARK: &str = "\u{FFFD}";
/// The bytes of a name that are escaped behind the mark, and in a path.
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A listing that is not one, or that broke off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// It is no JSON of the form that it should have.
    #[error("the listing has not the form of a listing")]
    Form,
    /// A document is longer than any listing's.
    #[error("a part of the listing is longer than 16 MiB")]
    TooLarge,
    /// It ended within a document.
    #[error("the listing broke off")]
    Truncated,
    /// It would not end: the place where its next page begins is none after this one.
    #[error("the listing does not go on: it repeats a marker, or goes back")]
    Endless,
    /// The source says why it ended.
    #[error("the source ended the listing: {0}")]
    Refused(String),
}

/// Cuts a stream into documents.
#[derive(Debug, Default)]
pub struct JsonDocuments {
    rest: BytesMut,
    /// Bytes of the rest that were looked at.
    seen: usize,
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl JsonDocuments {
    /// Adds a piece; returns the documents that end in it.
    ///
    /// # Errors
    /// [`ListingError`].
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Bytes>, ListingError> {
        self.rest.extend_from_slice(piece);
        let mut documents = Vec::new();
        while let Some(byte) = self.rest.get(self.seen).copied() {
            self.seen += 1;
            if self.ends_document(byte)? {
                documents.push(self.rest.split_to(self.seen).freeze());
                self.seen = 0;
            }
        }
        // Bound: a source could send a document without an end.
        if self.rest.len() > DOCUMENT_BYTES_MAX { Err(ListingError::TooLarge) } else { Ok(documents) }
    }

    /// Checks that the stream ended between two documents.
    ///
    /// # Errors
    /// [`ListingError::Truncated`].
    pub fn finish(&self) -> Result<(), ListingError> {
        let is_blank = self.rest.iter().all(u8::is_ascii_whitespace);
        if self.depth == 0 && is_blank { Ok(()) } else { Err(ListingError::Truncated) }
    }

    fn ends_document(&mut self, byte: u8) -> Result<bool, ListingError> {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return Ok(false);
        }
        match byte {
            b'"' if self.depth > 0 => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or(ListingError::Form)?;
                return Ok(self.depth == 0);
            }
            _ if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(ListingError::Form),
            _ => {}
        }
        Ok(false)
    }

    /// The names in the member `member` of a document.
    ///
    /// # Errors
    /// [`ListingError`]: also when the source says that it failed.
    pub fn names(document: &[u8], member: &str) -> Result<Vec<Bytes>, ListingError> {
        let document: Value = serde_json::from_slice(document).map_err(|_| ListingError::Form)?;
        if let Some(error) = document.get("error") {
            return Err(ListingError::Refused(error.to_string()));
        }
        let names = document.get(member).and_then(Value::as_array).ok_or(ListingError::Form)?;
        names.iter().map(|name| name.as_str().map(listed_name).ok_or(ListingError::Form)).collect()
    }
}

/// The bytes of a name that a listing shows.
#[must_use]
pub fn listed_name(text: &str) -> Bytes {
    unmarked(text.as_bytes()).map_or_else(|| Bytes::copy_from_slice(text.as_bytes()), Bytes::from)
}

/// The name of a marked text; `None` if a listing would not mark it like this.
fn unmarked(text: &[u8]) -> Option<Vec<u8>> {
    let quoted = text.strip_prefix(NON_UTF8_MARK.as_bytes())?;
    let name: Vec<u8> = percent_decode(quoted).collect();
    // A name that looks like a marked one is marked, too.
    let is_marked = std::str::from_utf8(&name).is_err() || unmarked(&name).is_some();
    (is_marked && percent_encode(&name, ESCAPED).to_string().as_bytes() == quoted).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents(pieces: &[&str]) -> Result<Vec<Vec<Bytes>>, ListingError> {
        let mut stream = JsonDocuments::default();
        let mut all = Vec::new();
        for piece in pieces {
            for document in stream.push(piece.as_bytes())? {
                all.push(JsonDocuments::names(&document, "keys")?);
            }
        }
        stream.finish().map(|()| all)
    }

    #[test]
    fn documents_are_cut_wherever_the_pieces_end() {
        let names = |names: &[&'static str]| names.iter().map(|name| Bytes::from(*name)).collect::<Vec<_>>();
        let whole = r#"{"keys":["a","b\"}"]}{"keys":["\\"]}{"keys":[]}"#;
        let expected = vec![names(&["a", "b\"}"]), names(&["\\"]), names(&[])];
        assert_eq!(documents(&[whole]), Ok(expected.clone()));
        for cut in 1..whole.len() {
            assert_eq!(documents(&[&whole[..cut], &whole[cut..]]), Ok(expected.clone()), "{cut}");
        }
    }

    #[test]
    fn a_listing_that_breaks_off_or_fails_is_none() {
        assert_eq!(documents(&[r#"{"keys":["a"]}{"keys":["b"#]), Err(ListingError::Truncated));
        assert_eq!(documents(&[r#"{"error":"timeout"}"#]), Err(ListingError::Refused("\"timeout\"".into())));
        for wrong in ["<html>", "]", r#"{"keys":3}"#, r#"{"keys":[3]}"#, r#"{"buckets":[]}"#, "{,}"] {
            assert_eq!(documents(&[wrong]), Err(ListingError::Form), "{wrong}");
        }
        let endless = "[".repeat(DOCUMENT_BYTES_MAX + 1);
        assert_eq!(documents(&[&endless]), Err(ListingError::TooLarge));
    }

    #[test]
    fn a_marked_name_has_its_bytes() {
        assert_eq!(listed_name("\u{FFFD}%FFz"), Bytes::from_static(b"\xffz"));
        assert_eq!(listed_name("\u{FFFD}abc"), Bytes::from("\u{FFFD}abc"));
        assert_eq!(listed_name("%FF"), Bytes::from("%FF"));
        assert_eq!(listed_name("\u{FFFD}%EF%BF%BD%25FF"), Bytes::from("\u{FFFD}%FF"));
    }

    proptest! {
        #[test]
        fn random_pieces_never_panic(pieces: Vec<Vec<u8>>) {
            let mut stream = JsonDocuments::default();
            for piece in pieces {
                if let Ok(documents) = stream.push(&piece) {
                    for document in documents {
                        let _ = JsonDocuments::names(&document, "keys");
                    }
                }
            }
            let _ = stream.finish();
        }
    }
}
