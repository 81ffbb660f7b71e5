//! `POST /key?uploadId=U`: completes a multipart upload.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use larder_s3::complete::{CompleteUpload, CompletedUpload, ListedPart};
use larder_s3_rules::checksum::Md5Hasher;
use larder_s3_rules::part::PART_NUMBER_MAX;
use larder_s3_rules::{Algorithm, Checksum};

use super::{checksums, conditions, encryption, listing_document, lock_headers, object_headers};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Body, S3Response};
use crate::target::{ResourcePath, S3Query};
use crate::xml::{XmlReader, XmlWriter};

/// The expected length of the object.
const OBJECT_SIZE: &str = "x-amz-mp-object-size";
/// Delay before keep-alive bytes start, because clients and proxies give up on a silent connection. Errors within the
/// delay keep their own status.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(8);

/// Request facts of the result document, kept for a response that outlives the call.
#[derive(Clone)]
struct CompletionContext {
    target: ResourcePath,
    location: String,
    query: S3Query,
    request_id: String,
}

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let document = call.take_body().document().await?;
    // The checksum headers are those of the object.
    if checksums::md5(&call.headers)?.is_some_and(|md5| md5 != Md5Hasher::digest(&document)) {
        return Err(larder_s3::Error::BadDigest.into());
    }
    lock_headers::check_no_lock(&call.headers)?;
    let request = decode(call, &document)?;
    let context = CompletionContext {
        target: ResourcePath { bucket: call.bucket.clone(), key: call.key.clone() },
        location: call.location(),
        query: call.query.clone(),
        request_id: call.request_id.clone(),
    };
    // The task keeps the admission slot, so that abandoned completions count against the limit of running requests.
    let (objects, caller, admitted) = (Arc::clone(&call.objects), call.caller.clone(), call.admitted.clone());
    // The task survives a disconnect: otherwise a client that times out would abandon a half-done completion. A retry
    // finds the object.
    let mut work = call.background.spawn(&call.request_id, async move {
        let _admitted = admitted;
        objects.uploads.complete(&caller, request).await.map_err(S3Error::from)
    });
    match tokio::time::timeout(KEEP_ALIVE_AFTER, &mut work).await {
        Ok(outcome) => {
            let completed = outcome?;
            let mut response = response::document(context.result(&completed));
            object_headers::write_version(&mut response, completed.version_id.as_deref());
            encryption::write_headers(&mut response, completed.encryption, &call.headers);
            Ok(response)
        }
        Err(_) => {
            let final_document = async move {
                match work.await {
                    Ok(completed) => context.result(&completed),
                    Err(error) => context.failure(error),
                }
            };
            let mut response = response::document(Bytes::new());
            *response.body_mut() = S3Body::kept_alive(final_document);
            Ok(response)
        }
    }
}

impl CompletionContext {
    fn result(&self, completed: &CompletedUpload) -> Bytes {
        let mut xml = XmlWriter::new("CompleteMultipartUploadResult");
        xml.text("Location", &self.location).text("Bucket", &self.target.bucket).text_lossy("Key", &self.target.key);
        xml.text("ETag", object_headers::quoted(completed.etag));
        checksums::write(&mut xml, completed.checksum.as_ref());
        xml.finish()
    }

    /// The error document of a failure after status 200 was sent.
    fn failure(&self, error: S3Error) -> Bytes {
        error.with_request(&self.target, &self.query, None).document(&self.target.resource(), &self.request_id)
    }
}

fn decode(call: &S3Call, document: &[u8]) -> Result<CompleteUpload, S3Error> {
    Ok(CompleteUpload {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        upload: call.query.get("uploadId").unwrap_or_default().to_owned(),
        parts: parts(document)?,
        conditions: conditions::write_conditions(&call.headers),
        checksum: checksums::given(&call.headers)?,
        checksum_kind: checksums::kind(&call.headers)?,
        length: length(&call.headers)?,
        encryption: encryption::named(call)?,
    })
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, S3Error> {
    let Some(text) = listing_document::header(headers, OBJECT_SIZE) else { return Ok(None) };
    listing_document::digits(text)
        .map(Some)
        .ok_or_else(|| S3Error::invalid("Value for x-amz-mp-object-size header is invalid."))
}

fn parts(document: &[u8]) -> Result<Vec<ListedPart>, S3Error> {
    let mut xml = XmlReader::open(document, "CompleteMultipartUpload")?;
    let mut parts = Vec::new();
    while let Some(name) = xml.next_child()? {
        match name {
            // Bound: an object has no more parts.
            "Part" if parts.len() < usize::from(PART_NUMBER_MAX) => parts.push(part(&mut xml)?),
            "Part" => return Err(Code::MalformedXML.into()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    if parts.is_empty() { Err(Code::MalformedXML.into()) } else { Ok(parts) }
}

fn part(xml: &mut XmlReader<'_>) -> Result<ListedPart, S3Error> {
    let (mut number, mut etag, mut checksum) = (None, None, None);
    while let Some(name) = xml.next_child()? {
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.element() == name);
        match (name, algorithm) {
            ("PartNumber", _) => number = Some(xml.parse_text::<i64>()?),
            ("ETag", _) => etag = Some(conditions::unquoted(&xml.text()?).to_owned()),
            (_, Some(algorithm)) => {
                let text = xml.text()?;
                let bad = || S3Error::invalid(format!("Value for {name} is invalid."));
                checksum = Some(Checksum::parse(algorithm, &text).ok_or_else(bad)?);
            }
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    let (number, etag) = number.zip(etag).ok_or(Code::MalformedXML)?;
    let bad = || S3Error::argument("PartNumber", number.to_string(), "PartNumber must be >= 1");
    let number = if number < 1 { Err(bad()) } else { Ok(u32::try_from(number).unwrap_or(u32::MAX)) };
    Ok(ListedPart { number: number?, etag, checksum })
}

#[cfg(test)]
mod tests {
    use larder_s3_rules::Etag;
    use proptest::prelude::*;

    use super::*;

    fn listed(number: u32, etag: &str) -> ListedPart {
        ListedPart { number, etag: etag.into(), checksum: None }
    }

    fn code(document: &str) -> &'static str {
        parts(document.as_bytes()).unwrap_err().code.name()
    }

    #[test]
    fn a_list_of_parts_is_parsed() {
        let read = parts(
            b"<?xml version=\"1.0\"?>\
                <!-- c -->\n<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n\
              <Part><ETag>\"e1\"</ETag><PartNumber> 1 </PartNumber></Part>\n<Part><PartNumber>3</PartNumber>\
              <ETag>e3</ETag>\
              <ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part><Part><PartNumber>99999999999</PartNumber>\
              <ETag>&quot;x&quot;</ETag>\
              </Part></CompleteMultipartUpload>\n",
        )
        .unwrap();
        let checksum = Some(Checksum::full(Algorithm::Crc32, Bytes::from_static(&[0, 0, 0, 1])));
        let with_checksum = ListedPart { checksum, ..listed(3, "e3") };
        assert_eq!(read, [listed(1, "e1"), with_checksum, listed(u32::MAX, "x")]);
    }

    #[test]
    fn invalid_lists_of_parts_are_refused() {
        let of = |part: &str| format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        for malformed in [
            "",
            "nonsense",
            "<CompleteMultipartUpload>",
            "<Other/>",
            &of(""),
            &of("<Part/>"),
            &of("<Part><PartNumber>1</PartNumber></Part>"),
            &of("<Part><ETag>e</ETag></Part>"),
            &of("<Part><PartNumber>one</PartNumber><ETag>e</ETag></Part>"),
            &of(&"<Part><PartNumber>1</PartNumber><ETag>e</ETag></Part>".repeat(10_001)),
        ] {
            assert_eq!(code(malformed), "MalformedXML", "{malformed:.100}");
        }
        assert_eq!(code(&of("<Part><PartNumber>0</PartNumber><ETag>e</ETag></Part>")), "InvalidArgument");
        assert_eq!(code(&of("<Part><PartNumber>-7</PartNumber><ETag>e</ETag></Part>")), "InvalidArgument");
        assert_eq!(
            code(&of("<Part><PartNumber>1</PartNumber><ETag>e</ETag><ChecksumSHA1>x</ChecksumSHA1></Part>")),
            "InvalidRequest"
        );
    }

    #[test]
    fn the_result_document_and_a_late_error() {
        let checksum =
            Some(Checksum { algorithm: Algorithm::Crc32, digest: Bytes::from_static(&[0; 4]), parts: Some(2) });
        let completed = CompletedUpload {
            etag: Etag { md5: [0x66; 16], parts: Some(2) },
            checksum,
            version_id: None,
            encryption: None,
        };
        let context = CompletionContext {
            target: ResourcePath { bucket: "b".into(), key: Bytes::from_static(b"k") },
            location: "http://b.h/k".into(),
            query: S3Query::parse(Some("uploadId=U")),
            request_id: "R".into(),
        };
        let late = String::from_utf8(context.failure(Code::NoSuchUpload.into()).to_vec()).unwrap();
        assert!(late.contains("<Code>NoSuchUpload</Code>") && late.contains("<UploadId>U</UploadId>"), "{late}");
        let text = String::from_utf8(context.result(&completed).to_vec()).unwrap();
        let expected = "03-01/\"><Location>http://b.h/k</Location><Bucket>b</Bucket><Key>k</Key>\
            <ETag>&quot;66666666666666666666666666666666-2&quot;</ETag><ChecksumCRC32>AAAAAA==-2</ChecksumCRC32>\
            <ChecksumType>COMPOSITE</ChecksumType></CompleteMultipartUploadResult>";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn the_expected_length_is_a_plain_number() {
        let of = |text: &'static str| {
            let value =
                (hyper::header::HeaderName::from_static(OBJECT_SIZE), hyper::header::HeaderValue::from_static(text));
            length(&[value].into_iter().collect()).map_err(|error| error.code.name())
        };
        assert_eq!(of("7"), Ok(Some(7)));
        for bad in ["", "-1", "x", "99999999999999999999"] {
            assert_eq!(of(bad), Err("InvalidRequest"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            bytes: Vec<u8>,
            text in "(<|>|/|CompleteMultipartUpload|Part|PartNumber|ETag|1)*",
        ) {
            let _ = (parts(&bytes), parts(text.as_bytes()));
        }
    }
}
