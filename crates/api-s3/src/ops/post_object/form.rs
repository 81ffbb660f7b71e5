//! A form: its fields, and its file as a stream. What comes behind the file is not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use hyper::HeaderMap;
use larder_gateway::body::{BodyError, ByteStream};
use larder_gateway::objects;
use multer::{Field, Multipart};
use parking_lot::Mutex;

use super::super::params;
use super::policy::SizeRange;
use crate::body::RequestBody;
use crate::errors::{Code, Fault, gateway};

/// Most bytes of the values in front of the file.
const FIELD_BYTES_MAX: usize = 64 * 1024;
/// Most fields in front of the file.
const FIELDS_MAX: usize = 512;
/// Most bytes received before the file begins; a piece of the body may have some of the file already.
const PREAMBLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The fields in front of the file: names in lower case.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pairs: Vec<(String, String)>,
    file_name: String,
}

impl Fields {
    /// The value of the first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| &**value)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The name of the file, without the folders some browsers send.
    pub(super) fn file_name(&self) -> &str {
        self.file_name.rsplit(['/', '\\']).next().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn fixed(pairs: &[(&str, &str)], file_name: &str) -> Self {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { pairs, file_name: file_name.to_owned() }
    }
}

/// Why a body broke off, for who answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Reason(Arc<Mutex<Option<Fault>>>);

impl Reason {
    /// The answer to an error of the gateway that read the file.
    pub(super) fn of(&self, error: objects::Error) -> Fault {
        self.0.lock().take().unwrap_or_else(|| error.into())
    }

    fn keep(&self, fault: Fault) -> BodyError {
        let error = BodyError(fault.message.clone().into_owned());
        self.0.lock().get_or_insert(fault);
        error
    }

    /// What is wrong with the form: what broke the body off, or else the form itself.
    fn of_form(&self) -> Fault {
        self.0.lock().take().unwrap_or_else(|| Code::MalformedPOSTRequest.into())
    }
}

/// A form that is being read.
pub(super) struct Form {
    parts: Multipart<'static>,
    file: Option<Field<'static>>,
    /// Set once the file begins: it may be as long as it likes.
    begun: Arc<AtomicBool>,
    reason: Reason,
}

impl Form {
    /// A form, of which nothing was read.
    ///
    /// # Errors
    /// 400 `MalformedPOSTRequest` when the body is none.
    pub(super) fn open(headers: &HeaderMap, body: RequestBody) -> Result<Self, Fault> {
        let pieces = stream::unfold(body, |mut body| async move {
            let piece = body.piece().await.transpose()?;
            Some((piece, body))
        });
        Self::over(headers, pieces)
    }

    fn over(
        headers: &HeaderMap,
        pieces: impl Stream<Item = Result<Bytes, Fault>> + Send + 'static,
    ) -> Result<Self, Fault> {
        let media = params::header(headers, "content-type").unwrap_or_default();
        let boundary = multer::parse_boundary(media).map_err(|_| Code::MalformedPOSTRequest)?;
        let (begun, reason) = (Arc::new(AtomicBool::new(false)), Reason::default());
        let parts = Multipart::new(bounded(pieces, Arc::clone(&begun), reason.clone()), boundary);
        Ok(Self { parts, file: None, begun, reason })
    }

    /// The fields in front of the file, which is the next to be read.
    ///
    /// # Errors
    /// 400 `MalformedPOSTRequest`, `MaxMessageLengthExceeded`, `InvalidArgument` when there is no file.
    pub(super) async fn fields(&mut self) -> Result<Fields, Fault> {
        let (mut fields, mut room) = (Fields::default(), FIELD_BYTES_MAX);
        loop {
            let next = self.parts.next_field().await.map_err(|_| self.reason.of_form())?;
            let Some(mut field) = next else {
                return Err(Fault::argument("file", "", "POST requires exactly one file upload per request."));
            };
            let name = field.name().ok_or(Code::MalformedPOSTRequest)?.to_ascii_lowercase();
            if name == "file" {
                self.begun.store(true, Ordering::Relaxed);
                fields.file_name = field.file_name().unwrap_or_default().to_owned();
                self.file = Some(field);
                return Ok(fields);
            }
            // A policy would be checked against the first and the second would be stored.
            if fields.get(&name).is_some() && !name.starts_with("x-ignore-") {
                let message = "POST requires exactly one field of each name.";
                return Err(Fault::argument("field", name, message));
            }
            let value = self.value(&mut field, &mut room).await?;
            fields.pairs.push((name, value));
            if fields.pairs.len() > FIELDS_MAX {
                return Err(Code::MaxMessageLengthExceeded.into());
            }
        }
    }

    async fn value(&self, field: &mut Field<'static>, room: &mut usize) -> Result<String, Fault> {
        let mut value = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(|_| self.reason.of_form())? {
            *room = room.checked_sub(piece.len()).ok_or(Code::MaxMessageLengthExceeded)?;
            value.extend_from_slice(&piece);
        }
        String::from_utf8(value).map_err(|_| Code::MalformedPOSTRequest.into())
    }

    /// The file, which must have a length in `range`, and who knows why it broke off, should it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn file(self, range: Option<SizeRange>) -> Result<(File, Reason), Fault> {
        let field = self.file.ok_or(Code::MalformedPOSTRequest)?;
        let file = File { field, count: 0, range, reason: self.reason.clone(), done: false };
        Ok((file, self.reason))
    }
}

/// The bytes of a file on their way in.
pub(super) struct File {
    field: Field<'static>,
    count: u64,
    range: Option<SizeRange>,
    reason: Reason,
    done: bool,
}

#[async_trait]
impl ByteStream for File {
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
                        self.done = true;
                        Some(Err(self.reason.keep(gateway::too_large(self.count, range.most))))
                    }
                    None => Some(Ok(piece)),
                }
            }
            (Ok(None), Some(range)) if self.count < range.least => {
                let fault = Fault::from(Code::EntityTooSmall)
                    .with("ProposedSize", self.count.to_string())
                    .with("MinSizeAllowed", range.least.to_string());
                Some(Err(self.reason.keep(fault)))
            }
            (Ok(None), _) => None,
            (Err(_), _) => {
                let fault = self.reason.of_form();
                Some(Err(self.reason.keep(fault)))
            }
        }
    }
}

/// The pieces of a body for the reader of forms, which takes as many as it is given and keeps them: one at a time, so that
/// what is kept is what was not asked for yet; and not too many before the file begins.
fn bounded(
    pieces: impl Stream<Item = Result<Bytes, Fault>> + Send + 'static,
    begun: Arc<AtomicBool>,
    reason: Reason,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
    let mut received = 0_usize;
    let pieces = pieces.map(move |piece| {
        let piece = piece.map_err(|fault| reason.keep(fault))?;
        received = received.saturating_add(piece.len());
        if received > PREAMBLE_BYTES_MAX && !begun.load(Ordering::Relaxed) {
            return Err(reason.keep(Code::MaxMessageLengthExceeded.into()));
        }
        Ok(piece)
    });
    let mut pieces = Box::pin(pieces);
    let mut pause = false;
    stream::poll_fn(move |cx| {
        if std::mem::take(&mut pause) {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        let next = pieces.as_mut().poll_next(cx);
        pause = matches!(&next, std::task::Poll::Ready(Some(Ok(_))));
        next
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn form(body: &[u8], piece: usize) -> Form {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=B"));
        let pieces: Vec<_> = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Form::over(&headers, stream::iter(pieces)).unwrap()
    }

    async fn all(mut form: Form, range: Option<SizeRange>) -> Result<(Fields, Vec<u8>), &'static str> {
        let fields = form.fields().await.map_err(|fault| fault.code.name())?;
        let (mut file, reason) = form.file(range).unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = file.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return Err(reason.of(objects::Error::BrokenBody(error.0)).code.name()),
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
    async fn fields_come_before_the_file_and_nothing_after_it_counts() {
        for piece in [1, 7, 1000] {
            let (fields, file) = all(form(BODY, piece), None).await.unwrap();
            assert_eq!(fields.iter().collect::<Vec<_>>(), [("key", "k")]);
            assert_eq!((fields.file_name(), &file[..]), ("b.txt", &b"12345"[..]));
        }
    }

    #[tokio::test]
    async fn a_file_has_a_length_that_was_allowed() {
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
        for media in ["", "text/plain", "multipart/form-data"] {
            let headers = [(hyper::header::CONTENT_TYPE, HeaderValue::from_str(media).unwrap())].into_iter().collect();
            assert!(Form::over(&headers, stream::iter([])).is_err(), "{media}");
        }
    }

    #[tokio::test]
    async fn a_second_field_of_a_name_is_refused() {
        let field = |name: &str| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nv\r\n");
        let both = |one: &str, two: &str| [field(one).as_bytes(), field(two).as_bytes(), BODY].concat();
        for (one, two) in [("Content-Type", "content-type"), ("x-amz-meta-a", "X-Amz-Meta-A"), ("acl", "key")] {
            assert_eq!(all(form(&both(one, two), 50), None).await.unwrap_err(), "InvalidArgument", "{one} {two}");
        }
        assert!(all(form(&both("x-ignore-a", "x-ignore-a"), 50), None).await.is_ok());
    }

    #[tokio::test]
    async fn what_broke_the_body_off_is_told() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=B"));
        let pieces = [Ok(Bytes::from_static(&BODY[..BODY.len() - 90])), Err(Fault::from(Code::RequestTimeout))];
        let form = Form::over(&headers, stream::iter(pieces)).unwrap();
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
