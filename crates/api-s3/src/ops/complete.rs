//! `POST /key?uploadId=U`: makes an object of the parts of an upload.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use larder_gateway::objects::complete::{CompleteUpload, Completed, ListedPart};
use larder_model::objects::part::PART_NUMBER_MAX;
use larder_model::objects::{Algorithm, Checksum};

use super::{checksums, conditions, describe, params};
use crate::body::Body;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::path::Target;
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

/// What the object's length is to be.
const OBJECT_SIZE: &str = "x-amz-mp-object-size";
/// From when on a byte goes out now and then: clients and those between give up on silence. Before, errors keep their
/// status.
const SLOW: Duration = Duration::from_secs(8);

/// What the result tells beside what was completed; kept for an answer that comes later than the call.
#[derive(Clone)]
struct About {
    target: Target,
    location: String,
    query: Query,
    request_id: String,
}

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let document = call.take_body().document().await?;
    let request = decode(call, &document)?;
    let about = About {
        target: Target { bucket: call.bucket.clone(), key: call.key.clone() },
        location: call.location(),
        query: call.query.clone(),
        request_id: call.request_id.clone(),
    };
    let (objects, caller, admitted) = (Arc::clone(&call.objects), call.caller.clone(), call.admitted.clone());
    // On its own: who is gone before the end may come back for it, and finds it done.
    let mut work = call.background.run(&call.request_id, async move {
        let _admitted = admitted;
        objects.complete(&caller, request).await.map_err(Fault::from)
    });
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(outcome) => {
            let completed = outcome?;
            let mut reply = reply::document(about.result(&completed));
            describe::version(&mut reply, completed.version_id.as_deref());
            Ok(reply)
        }
        Err(_) => {
            let rest = async move {
                match work.await {
                    Ok(completed) => about.result(&completed),
                    Err(fault) => about.failure(fault),
                }
            };
            let mut reply = reply::document(Bytes::new());
            *reply.body_mut() = Body::slow(rest);
            Ok(reply)
        }
    }
}

impl About {
    fn result(&self, completed: &Completed) -> Bytes {
        let mut xml = Xml::new("CompleteMultipartUploadResult");
        xml.text("Location", &self.location).text("Bucket", &self.target.bucket).bytes("Key", &self.target.key);
        xml.text("ETag", describe::quoted(completed.etag));
        checksums::write(&mut xml, completed.checksum.as_ref());
        xml.finish()
    }

    /// A failure that comes after its status: a document in the place of the result.
    fn failure(&self, fault: Fault) -> Bytes {
        fault.about(&self.target, &self.query, None).document(&self.target.resource(), &self.request_id)
    }
}

fn decode(call: &Call, document: &[u8]) -> Result<CompleteUpload, Fault> {
    Ok(CompleteUpload {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        upload: call.query.get("uploadId").unwrap_or_default().to_owned(),
        parts: parts(document)?,
        conditions: conditions::of_write(&call.headers),
        checksum: checksums::given(&call.headers)?,
        length: length(&call.headers)?,
    })
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(text) = params::header(headers, OBJECT_SIZE) else { return Ok(None) };
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(|| Fault::invalid("Value for x-amz-mp-object-size header is invalid."))
}

fn parts(document: &[u8]) -> Result<Vec<ListedPart>, Fault> {
    let mut xml = Reader::open(document, "CompleteMultipartUpload")?;
    let mut parts = Vec::new();
    while let Some(name) = xml.child()? {
        match name {
            "Part" if parts.len() < usize::from(PART_NUMBER_MAX) => parts.push(part(&mut xml)?),
            "Part" => return Err(Code::MalformedXML.into()),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    if parts.is_empty() { Err(Code::MalformedXML.into()) } else { Ok(parts) }
}

fn part(xml: &mut Reader<'_>) -> Result<ListedPart, Fault> {
    let (mut number, mut etag, mut checksum) = (None, None, None);
    while let Some(name) = xml.child()? {
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.element() == name);
        match (name, algorithm) {
            ("PartNumber", _) => number = Some(xml.parsed::<i64>()?),
            ("ETag", _) => etag = Some(conditions::unquoted(&xml.text()?).to_owned()),
            (_, Some(algorithm)) => {
                let text = xml.text()?;
                let bad = || Fault::invalid(format!("Value for {name} is invalid."));
                checksum = Some(Checksum::parse(algorithm, &text).ok_or_else(bad)?);
            }
            _ => xml.skip()?,
        }
    }
    let (number, etag) = number.zip(etag).ok_or(Code::MalformedXML)?;
    let bad = || Fault::argument("PartNumber", number.to_string(), "PartNumber must be >= 1");
    let number = if number < 1 { Err(bad()) } else { Ok(u32::try_from(number).unwrap_or(u32::MAX)) };
    Ok(ListedPart { number: number?, etag, checksum })
}

#[cfg(test)]
mod tests {
    use larder_model::objects::Etag;
    use proptest::prelude::*;

    use super::*;

    fn listed(number: u32, etag: &str) -> ListedPart {
        ListedPart { number, etag: etag.into(), checksum: None }
    }

    fn code(document: &str) -> &'static str {
        parts(document.as_bytes()).unwrap_err().code.name()
    }

    #[test]
    fn lists_of_parts() {
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
    fn lists_that_are_refused() {
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
    fn the_document() {
        let checksum =
            Some(Checksum { algorithm: Algorithm::Crc32, digest: Bytes::from_static(&[0; 4]), parts: Some(2) });
        let completed = Completed { etag: Etag { md5: [0x66; 16], parts: Some(2) }, checksum, version_id: None };
        let about = About {
            target: Target { bucket: "b".into(), key: Bytes::from_static(b"k") },
            location: "http://b.h/k".into(),
            query: Query::of(Some("uploadId=U")),
            request_id: "R".into(),
        };
        let late = String::from_utf8(about.failure(Code::NoSuchUpload.into()).to_vec()).unwrap();
        assert!(late.contains("<Code>NoSuchUpload</Code>") && late.contains("<UploadId>U</UploadId>"), "{late}");
        let text = String::from_utf8(about.result(&completed).to_vec()).unwrap();
        let expected = "03-01/\"><Location>http://b.h/k</Location><Bucket>b</Bucket><Key>k</Key>\
            <ETag>&quot;66666666666666666666666666666666-2&quot;</ETag><ChecksumCRC32>AAAAAA==-2</ChecksumCRC32>\
            <ChecksumType>COMPOSITE</ChecksumType></CompleteMultipartUploadResult>";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn lengths() {
        let of = |text: &'static str| {
            let value =
                (hyper::header::HeaderName::from_static(OBJECT_SIZE), hyper::header::HeaderValue::from_static(text));
            length(&[value].into_iter().collect()).map_err(|fault| fault.code.name())
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
