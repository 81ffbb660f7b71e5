//! The multipart form: its fields, and its file as a stream. Parts after the file are not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use hyper::HeaderMap;
use larder_core::body::{BodyError, ByteStream};
use larder_net::form_pieces;
use multer::{Field, Multipart};

use super::super::listing_document;
use super::policy::SizeRange;
use crate::body::{RequestBody, RequestBodyFailure};
use crate::errors::{Code, S3Error, gateway};

/// Most bytes of field values before the file.
const FIELD_BYTES_MAX: usize = 64 * 1024;
/// Most fields before the file.
const FIELDS_MAX: usize = 512;
/// Most bytes received before the file begins; the last piece may already contain bytes of the file.
const PREAMBLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The fields before the file, names in lower case.
#[derive(Debug, Default)]
pub(super) struct FormFields {
    pairs: Vec<(String, String)>,
    file_name: String,
}

impl FormFields {
    /// The value of the first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// All fields, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The name of the file, without the directories that some browsers send.
    pub(super) fn file_name(&self) -> &str {
        self.file_name.rsplit(['/', '\\']).next().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn fixed(pairs: &[(&str, &str)], file_name: &str) -> Self {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { pairs, file_name: file_name.to_owned() }
    }
}

/// A form while it is read.
pub(super) struct PostForm {
    parts: Multipart<'static>,
    file: Option<Field<'static>>,
    /// Set when the file begins; the limit before the file then no longer applies.
    file_begun: Arc<AtomicBool>,
    failure: RequestBodyFailure,
}

impl PostForm {
    /// Opens a form without reading from it.
    ///
    /// # Errors
    /// 400 `MalformedPOSTRequest` for a body that is no form.
    pub(super) fn open(headers: &HeaderMap, body: RequestBody) -> Result<Self, S3Error> {
        let pieces = stream::unfold(body, |mut body| async move {
            let piece = body.next_piece().await.transpose()?;
            Some((piece, body))
        });
        Self::from_pieces(headers, pieces)
    }

    fn from_pieces(
        headers: &HeaderMap,
        pieces: impl Stream<Item = Result<Bytes, S3Error>> + Send + 'static,
    ) -> Result<Self, S3Error> {
        let media = listing_document::header(headers, "content-type").unwrap_or_default();
        let essence = media.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("multipart/form-data") {
            let condition = "Bucket POST must be of the enclosure-type multipart/form-data";
            return Err(S3Error::from(Code::PreconditionFailed).with("Condition", condition));
        }
        let boundary = multer::parse_boundary(media).map_err(|_| Code::MalformedPOSTRequest)?;
        let (file_begun, failure) = (Arc::new(AtomicBool::new(false)), RequestBodyFailure::default());
        let (broken, overlong) = (failure.clone(), failure.clone());
        let pieces = pieces.map(move |piece| piece.map_err(|error| broken.record(error)));
        let too_long = move || overlong.record(Code::MaxMessageLengthExceeded.into());
        let pieces = form_pieces(pieces, PREAMBLE_BYTES_MAX, Arc::clone(&file_begun), too_long);
        let parts = Multipart::new(pieces, boundary);
        Ok(Self { parts, file: None, file_begun, failure })
    }

    /// Reads the fields up to the file.
    ///
    /// # Errors
    /// 400 `MalformedPOSTRequest`, `MaxMessageLengthExceeded`, `InvalidArgument` for a missing file or a repeated
    /// field.
    pub(super) async fn fields(&mut self) -> Result<FormFields, S3Error> {
        let (mut fields, mut room) = (FormFields::default(), FIELD_BYTES_MAX);
        loop {
            let next = self.parts.next_field().await.map_err(|_| form_error(&self.failure))?;
            let Some(mut field) = next else {
                return Err(S3Error::argument("file", "", "POST requires exactly one file upload per request."));
            };
            let name = field.name().ok_or(Code::MalformedPOSTRequest)?.to_ascii_lowercase();
            if name == "file" {
                // Before the first byte of the file: the bound of the fields no longer counts.
                self.file_begun.store(true, Ordering::Relaxed);
                fields.file_name = field.file_name().unwrap_or_default().to_owned();
                self.file = Some(field);
                return Ok(fields);
            }
            // With a repeated field, the policy would check the first value and the object would store the second.
            if fields.get(&name).is_some() && !name.starts_with("x-ignore-") {
                let message = "POST requires exactly one field of each name.";
                return Err(S3Error::argument("field", name, message));
            }
            let value = self.value(&mut field, &mut room).await?;
            fields.pairs.push((name, value));
            if fields.pairs.len() > FIELDS_MAX {
                return Err(Code::MaxMessageLengthExceeded.into());
            }
        }
    }

    async fn value(&self, field: &mut Field<'static>, room: &mut usize) -> Result<String, S3Error> {
        let mut value = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(|_| form_error(&self.failure))? {
            // Bound: the fields are in memory before the signature is known.
            *room = room.checked_sub(piece.len()).ok_or(Code::MaxMessageLengthExceeded)?;
            value.extend_from_slice(&piece);
        }
        String::from_utf8(value).map_err(|_| Code::MalformedPOSTRequest.into())
    }

    /// The file, with a length in `range`, and the slot for its failure.
    ///
    /// # Errors
    /// `MalformedPOSTRequest` if there is no file.
    pub(super) fn file(self, range: Option<SizeRange>) -> Result<(FormFile, RequestBodyFailure), S3Error> {
        let field = self.file.ok_or(Code::MalformedPOSTRequest)?;
        let file = FormFile { field, count: 0, range, failure: self.failure.clone(), done: false };
        Ok((file, self.failure))
    }
}

/// The bytes of the file.
pub(super) struct FormFile {
    field: Field<'static>,
    count: u64,
    range: Option<SizeRange>,
    failure: RequestBodyFailure,
    done: bool,
}

#[async_trait]
impl ByteStream for FormFile {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.done {
            return None;
        }
        let piece = self.field.chunk().await;
        self.done = !matches!(&piece, Ok(Some(_)));
        match (piece, self.range) {
            (Ok(Some(piece)), range) => {
                self.count += piece.len() as u64;
                match range.filter(|range| self.count > range.most) {
                    Some(range) => {
                        // The error ends the stream: no byte above the limit is stored.
                        self.done = true;
                        Some(Err(self.failure.record(gateway::too_large(self.count, range.most))))
                    }
                    None => Some(Ok(piece)),
                }
            }
            (Ok(None), Some(range)) if self.count < range.least => {
                let error = S3Error::from(Code::EntityTooSmall)
                    .with("ProposedSize", self.count.to_string())
                    .with("MinSizeAllowed", range.least.to_string());
                Some(Err(self.failure.record(error)))
            }
            (Ok(None), _) => None,
            (Err(_), _) => {
                let error = form_error(&self.failure);
                Some(Err(self.failure.record(error)))
            }
        }
    }
}

/// The failure of the body, or else a malformed form.
fn form_error(failure: &RequestBodyFailure) -> S3Error {
    failure.take().unwrap_or_else(|| Code::MalformedPOSTRequest.into())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn form(body: &[u8], piece: usize) -> PostForm {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=B"));
        let pieces: Vec<_> = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        PostForm::from_pieces(&headers, stream::iter(pieces)).unwrap()
    }

    async fn all(mut form: PostForm, range: Option<SizeRange>) -> Result<(FormFields, Vec<u8>), &'static str> {
        let fields = form.fields().await.map_err(|error| error.code.name())?;
        let (mut file, failure) = form.file(range).unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = file.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return Err(failure.error_for(larder_s3::Error::BrokenBody(error.0)).code.name()),
            }
        }
        assert!(file.next().await.is_none());
        Ok((fields, bytes))
    }

    const BODY: &[u8] = b"--B\r\nContent-Disposition: form-data; name=\"Key\"\r\n\r\nk\r\n--B\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"/a/b.txt\"\r\n\
        Content-Type: text/plain\r\n\r\n12345\r\n\
        --B\r\n\
        Content-Disposition: form-data; name=\"after\"\r\n\r\nx\r\n--B--\r\n";

    #[tokio::test]
    async fn fields_after_the_file_are_ignored() {
        for piece in [1, 7, 1000] {
            let (fields, file) = all(form(BODY, piece), None).await.unwrap();
            assert_eq!(fields.iter().collect::<Vec<_>>(), [("key", "k")]);
            assert_eq!((fields.file_name(), &file[..]), ("b.txt", &b"12345"[..]));
        }
    }

    #[tokio::test]
    async fn a_file_outside_the_length_range_is_refused() {
        let outcome = |least, most| all(form(BODY, 3), Some(SizeRange { least, most }));
        assert!(outcome(5, 5).await.is_ok());
        assert_eq!(outcome(6, 10).await.unwrap_err(), "EntityTooSmall");
        assert_eq!(outcome(0, 4).await.unwrap_err(), "EntityTooLarge");
    }

    #[tokio::test]
    async fn broken_forms_are_refused() {
        let cut = &BODY[..BODY.len() - 100];
        assert_eq!(all(form(cut, 10), None).await.unwrap_err(), "MalformedPOSTRequest");
        assert_eq!(all(form(b"", 10), None).await.unwrap_err(), "MalformedPOSTRequest");
        let no_file = b"--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--B--\r\n";
        assert_eq!(all(form(no_file, 10), None).await.unwrap_err(), "InvalidArgument");
        let long = [b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n".to_vec(), vec![b'x'; 70_000]].concat();
        assert_eq!(all(form(&long, 1000), None).await.unwrap_err(), "MaxMessageLengthExceeded");
        let endless = [b"--B\r\nX: ".to_vec(), vec![b'x'; PREAMBLE_BYTES_MAX]].concat();
        assert_eq!(all(form(&endless, 65_536), None).await.unwrap_err(), "MaxMessageLengthExceeded");
        for (media, code) in [
            ("", "PreconditionFailed"),
            ("text/plain", "PreconditionFailed"),
            ("multipart/form-data", "MalformedPOSTRequest"),
        ] {
            let headers = [(hyper::header::CONTENT_TYPE, HeaderValue::from_str(media).unwrap())].into_iter().collect();
            let refused = PostForm::from_pieces(&headers, stream::iter([])).err();
            assert_eq!(refused.map(|error| error.code.name()), Some(code), "{media}");
        }
    }

    #[tokio::test]
    async fn a_second_field_of_a_name_is_refused() {
        let field = |name: &str| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nv\r\n");
        let both = |first: &str, second: &str| [field(first).as_bytes(), field(second).as_bytes(), BODY].concat();
        for (first, second) in [("Content-Type", "content-type"), ("x-amz-meta-a", "X-Amz-Meta-A"), ("acl", "key")] {
            assert_eq!(
                all(form(&both(first, second), 50), None).await.unwrap_err(),
                "InvalidArgument",
                "{first} {second}"
            );
        }
        assert!(all(form(&both("x-ignore-a", "x-ignore-a"), 50), None).await.is_ok());
    }

    #[tokio::test]
    async fn the_failure_of_the_body_becomes_the_s3_error() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=B"));
        let pieces = [Ok(Bytes::from_static(&BODY[..BODY.len() - 90])), Err(S3Error::from(Code::RequestTimeout))];
        let form = PostForm::from_pieces(&headers, stream::iter(pieces)).unwrap();
        assert_eq!(all(form, None).await.unwrap_err(), "RequestTimeout");
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(
            body: Vec<u8>,
            text in "(--B|\r\n|Content-Disposition: form-data; name=|\"file\"|\"k\"|x|--)*",
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(all(form(&body, 5), None));
            let _ = runtime.block_on(all(form(text.as_bytes(), 5), None));
        }
    }
}
