//! 200 with a value: whole if it is short, else in pieces, each made of a page of the gateway. A value of any size takes the
//! memory of a page.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, VARY};
use larder_core::Error;
use larder_kv::datatypes::DatatypeReader;

use super::json_value::JsonValueWriter;
use super::page_window::PageWindow;
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
    let rest = stream::try_unfold(pages, |mut pages| async move {
        if pages.ended {
            return Ok(None);
        }
        let piece = pages.next().await.map_err(broken_off)?;
        Ok(Some((Bytes::from(piece), pages)))
    });
    let mut reply =
        with_body(StatusCode::OK, RiakBody::pieces(Box::pin(futures_util::StreamExt::chain(begin, rest)), None));
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

fn broken_off(error: Error) -> io::Error {
    tracing::warn!(%error, "read of a data type's page failed: the answer is broken off");
    io::Error::other(error)
}
