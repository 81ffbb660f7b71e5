//! 200 with a value: whole if it is short, else in pieces, each made of a page of the gateway. A value of any size takes the
//! memory of a page.
//!
//! Pages of large sets and maps: how many elements or fields an answer shows, where it begins, and the continuation for the next
//! page.
//!
//! A continuation is the last element or field of its page, so it stays valid whatever is added or removed between two pages.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, VARY};
use larder_core::Error;
use larder_kv::datatypes::{DatatypeBegin, DatatypeReader};
use larder_kv::rules::datatypes::{EmbeddedType, FieldName, ValuePiece};
use larder_net::break_off;
use larder_rows::limits::DATATYPE_NAME_BYTES_MAX;

use super::json_value::JsonValueWriter;
use crate::http::body::RiakBody;
use crate::http::errors::RiakFault;
use crate::http::reply::{JSON, RiakResponse, VARY_ENCODING, json, with_body};

/// A document of fewer bytes goes out with its length.
const SHORT_BYTES: usize = 16 * 1024;

/// The value as it is read.
struct ValuePages {
    reader: DatatypeReader,
    window: PageWindow,
    writer: JsonValueWriter,
    ended: bool,
}

/// The answer with the value of this reader, as far as it lies within the window.
///
/// # Errors
/// The gateway's for the first page; a later error breaks the answer off, so that no client takes a part for the whole.
pub(super) async fn value_reply(reader: DatatypeReader, window: PageWindow) -> Result<RiakResponse, RiakFault> {
    let mut writer = JsonValueWriter::new(reader.datatype());
    let mut begin = Vec::new();
    writer.begin(&mut begin);
    let mut pages = ValuePages { reader, window, writer, ended: false };
    while !pages.ended && begin.len() < SHORT_BYTES {
        begin.extend(pages.next().await?);
    }
    if pages.ended {
        return Ok(json(StatusCode::OK, begin));
    }
    let begin = stream::once(async { Ok(Bytes::from(begin)) });
    let later_pages = stream::try_unfold(pages, |mut pages| async move {
        if pages.ended {
            return Ok(None);
        }
        let piece = pages.next().await.map_err(|error| break_off("read of a data type's page", error))?;
        Ok(Some((Bytes::from(piece), pages)))
    });
    let mut reply =
        with_body(StatusCode::OK, RiakBody::pieces(Box::pin(futures_util::StreamExt::chain(begin, later_pages)), None));
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    Ok(reply)
}

impl ValuePages {
    /// The JSON of the next page, perhaps nothing.
    async fn next(&mut self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        match self.reader.next_page().await? {
            Some(pieces) => {
                for piece in self.window.take(pieces) {
                    self.writer.add(&piece, &mut out);
                }
                self.ended = self.window.is_full();
            }
            None => self.ended = true,
        }
        if self.ended {
            let continuation = self.window.continuation();
            self.writer.finish(continuation.as_deref(), self.reader.context().as_ref(), &mut out);
        }
        Ok(out)
    }
}

/// The first byte of a continuation, for its version and meaning: after an element.
const AFTER_ELEMENT: u8 = 1;
/// After a field; its type follows, then its name.
const AFTER_FIELD: u8 = 2;

/// The elements, or fields of the outermost map, that an answer shows.
#[derive(Debug, Default)]
pub(super) struct PageWindow {
    /// How many it may still show; `None`: all.
    left: Option<u64>,
    /// The fields around the next piece.
    depth: usize,
    /// The continuation after the last one that was shown.
    last: Option<Vec<u8>>,
    has_more: bool,
}

impl PageWindow {
    /// A window of at most so many elements or fields.
    #[must_use]
    pub(super) fn new(max_results: Option<u64>) -> Self {
        Self { left: max_results, ..Self::default() }
    }

    /// The pieces within the window. Once an element or field lies beyond it, the window is full.
    pub(super) fn take(&mut self, mut pieces: Vec<ValuePiece>) -> Vec<ValuePiece> {
        let Some(left) = &mut self.left else { return pieces };
        for (at, piece) in pieces.iter().enumerate() {
            if let Some(entry) = continuation_after(piece).filter(|_| self.depth == 0) {
                // A page says that more follows only if it does: so the entry beyond it is seen, and not shown.
                if *left == 0 {
                    self.has_more = true;
                    pieces.truncate(at);
                    break;
                }
                *left -= 1;
                self.last = Some(entry);
            }
            match piece {
                ValuePiece::Field(_) => self.depth += 1,
                ValuePiece::EndField => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        pieces
    }

    /// Whether there are elements or fields beyond the window.
    #[must_use]
    pub(super) fn is_full(&self) -> bool {
        self.has_more
    }

    /// The continuation of a full window.
    #[must_use]
    pub(super) fn continuation(&self) -> Option<String> {
        self.last.as_ref().filter(|_| self.has_more).map(|last| URL_SAFE_NO_PAD.encode(last))
    }
}

/// The bytes of a continuation after this piece, if it begins an element or a field.
fn continuation_after(piece: &ValuePiece) -> Option<Vec<u8>> {
    match piece {
        ValuePiece::Element(element) => Some([&[AFTER_ELEMENT], &element[..]].concat()),
        ValuePiece::Field(field) => Some([&[AFTER_FIELD, field.embedded.code()], &field.name[..]].concat()),
        _ => None,
    }
}

/// The begin of the page that a continuation asks for; `None`: it is no continuation.
#[must_use]
pub(super) fn begin_after(continuation: &[u8]) -> Option<DatatypeBegin> {
    let bytes = URL_SAFE_NO_PAD.decode(continuation).ok()?;
    let (begin, name) = match bytes.split_first()? {
        (&AFTER_ELEMENT, element) => (DatatypeBegin::AfterElement(Bytes::copy_from_slice(element)), element),
        (&AFTER_FIELD, field) => {
            let (&code, name) = field.split_first()?;
            let field = FieldName::new(Bytes::copy_from_slice(name), EmbeddedType::from_code(code)?);
            (DatatypeBegin::AfterField(field), name)
        }
        _ => return None,
    };
    (name.len() <= DATATYPE_NAME_BYTES_MAX).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn elements(from: u8, to: u8) -> Vec<ValuePiece> {
        (from..to).map(|byte| ValuePiece::Element(vec![byte].into())).collect()
    }

    #[test]
    fn a_window_ends_where_an_element_lies_beyond_it() {
        let mut window = PageWindow::new(Some(5));
        assert_eq!(window.take(elements(0, 3)), elements(0, 3));
        assert_eq!(window.take(elements(3, 5)), elements(3, 5));
        assert_eq!((window.is_full(), window.continuation()), (false, None), "nothing is known to follow");
        assert_eq!(window.take(Vec::new()), []);
        assert_eq!(window.take(elements(5, 9)), []);
        assert!(window.is_full());
        let after = DatatypeBegin::AfterElement(Bytes::from_static(&[4]));
        assert_eq!(begin_after(window.continuation().unwrap().as_bytes()), Some(after));
    }

    #[test]
    fn a_window_without_a_bound_shows_all() {
        let mut window = PageWindow::new(None);
        assert_eq!(window.take(elements(0, 200)), elements(0, 200));
        assert_eq!((window.is_full(), window.continuation()), (false, None));
    }

    #[test]
    fn fields_count_once_with_all_that_is_in_them() {
        let field = |name: &'static str, embedded| ValuePiece::Field(FieldName::new(name, embedded));
        let of_set =
            |name, elements| [vec![field(name, EmbeddedType::Set)], elements, vec![ValuePiece::EndField]].concat();
        let shown = [of_set("a", elements(0, 3)), of_set("b", Vec::new())].concat();
        let mut window = PageWindow::new(Some(2));
        // Pages of rows end anywhere.
        assert_eq!(window.take(shown[..2].to_vec()), shown[..2]);
        assert_eq!(window.take([&shown[2..], &of_set("c", elements(0, 1))].concat()), shown[2..]);
        assert!(window.is_full());
        let after = DatatypeBegin::AfterField(FieldName::new("b", EmbeddedType::Set));
        assert_eq!(begin_after(window.continuation().unwrap().as_bytes()), Some(after));
    }

    proptest! {
        #[test]
        fn continuations_are_read_as_they_were_made_and_others_refused(element: Vec<u8>, other: Vec<u8>) {
            let mut window = PageWindow::new(Some(1));
            window.take(vec![ValuePiece::Element(element.clone().into()), ValuePiece::Element("next".into())]);
            let continuation = window.continuation().unwrap();
            prop_assert!(continuation.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
            prop_assert_eq!(begin_after(continuation.as_bytes()), Some(DatatypeBegin::AfterElement(element.into())));
            let _ = begin_after(&other);
        }
    }
}
