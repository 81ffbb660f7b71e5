//! Forms with a file: `multipart/form-data`. The first field is the token of the session, the second one the file, which is read
//! while it arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use larder_core::body::{BodyError, ByteStream};
use larder_net::{ArrivingBody, IncomingError, form_pieces, upload_memory};
use multer::{Field, Multipart};

use crate::access::ConsoleSession;
use crate::faults::ConsoleFault;

/// The field of the token.
const TOKEN: &str = "csrf";
/// The field of the file.
const FILE: &str = "file";
/// Most bytes of the token.
const TOKEN_BYTES_MAX: usize = 256;
/// Most bytes before the file, with what separates the fields. One piece of a connection's buffer may be longer.
const PREAMBLE_BYTES_MAX: usize = 1024 * 1024;

/// A form whose file has begun.
pub(crate) struct FileForm {
    /// The name of the file on the client's machine, without its folders; empty where no file was chosen.
    pub(crate) name: String,
    /// The media type that the browser gives it.
    pub(crate) media_type: Option<String>,
    /// Its bytes.
    pub(crate) file: ArrivingFile,
}

impl FileForm {
    /// Reads a form up to its file.
    ///
    /// # Errors
    /// A form without the token of the session, without a file, or with another field; a server without memory.
    pub(crate) async fn open(
        headers: &HeaderMap,
        body: ArrivingBody<'_>,
        session: &ConsoleSession,
    ) -> Result<Self, ConsoleFault> {
        let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(media).map_err(|_| malformed())?;
        let busy =
            |_| ConsoleFault::new(StatusCode::SERVICE_UNAVAILABLE, "The server has no memory for this form now.");
        let incoming = body.admit(upload_memory(None)).await.map_err(busy)?;
        let pieces = stream::unfold(incoming, |mut incoming| async move {
            let piece = incoming.next().await.transpose()?;
            Some((piece.map_err(broken), incoming))
        });
        let file_begun = Arc::new(AtomicBool::new(false));
        let too_long = || BodyError("the fields before the file are too long".to_owned());
        let pieces = form_pieces(pieces, PREAMBLE_BYTES_MAX, Arc::clone(&file_begun), too_long);
        let mut parts = Multipart::new(pieces, boundary);
        let token = parts.next_field().await.map_err(|_| malformed())?.ok_or_else(malformed)?;
        // Before the file is looked at: a page of another site could send it.
        if token.name() != Some(TOKEN) || !session.has_csrf(&short_value(token).await?) {
            return Err(ConsoleFault::foreign_form());
        }
        let field = parts.next_field().await.map_err(|_| malformed())?.ok_or_else(malformed)?;
        if field.name() != Some(FILE) {
            return Err(malformed());
        }
        file_begun.store(true, Ordering::Relaxed);
        let path = field.file_name().unwrap_or_default();
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let media_type = field.content_type().map(ToString::to_string);
        Ok(Self { name, media_type, file: ArrivingFile { field, is_over: false } })
    }
}

/// The value of a field, cut at its bound.
async fn short_value(mut field: Field<'static>) -> Result<Vec<u8>, ConsoleFault> {
    let mut value = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|_| malformed())? {
        if value.len() + piece.len() > TOKEN_BYTES_MAX {
            return Err(malformed());
        }
        value.extend_from_slice(&piece);
    }
    Ok(value)
}

fn malformed() -> ConsoleFault {
    ConsoleFault::bad("This is no form of the console.")
}

fn broken(error: IncomingError) -> BodyError {
    BodyError(match error {
        IncomingError::TooSlow => "the file arrives too slowly".to_owned(),
        IncomingError::BrokenOff(error) => error.to_string(),
    })
}

/// The bytes of a form's file.
pub(crate) struct ArrivingFile {
    field: Field<'static>,
    is_over: bool,
}

#[async_trait]
impl ByteStream for ArrivingFile {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.is_over {
            return None;
        }
        let piece = self.field.chunk().await;
        self.is_over = !matches!(piece, Ok(Some(_)));
        piece.map_err(|error| BodyError(error.to_string())).transpose()
    }
}
