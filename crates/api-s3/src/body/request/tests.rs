use std::collections::VecDeque;

use super::*;

/// A body of these pieces with these headers.
fn body(pieces: &[&'static str], length: Option<u64>, headers: &[(&'static str, &str)]) -> Result<RequestBody, Code> {
    let pieces: VecDeque<_> = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let mut body = RequestBody::from_source(RequestBodySource::Pieces(pieces), length);
    let payload = Payload::from_headers(&headers).map_err(|error| error.code)?;
    body.set_framing(payload, &headers, None).map_err(|error| error.code)?;
    Ok(body)
}

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const CHUNKED: (&str, &str) = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");

#[tokio::test]
async fn a_body_matches_its_headers_or_fails() {
    let sum = |hash| [("x-amz-content-sha256", hash)];
    let other = ABC.replace('b', "c");
    let cases = [
        (body(&["a", "bc"], Some(3), &[]), Ok("abc")),
        (body(&["abc"], None, &sum(ABC)), Ok("abc")),
        (body(&["a", "b", "c"], Some(3), &sum(ABC)), Ok("abc")),
        (body(&[], Some(0), &[]), Ok("")),
        (body(&["abc"], None, &sum(&other)), Err(Code::XAmzContentSHA256Mismatch)),
        (body(&["ab"], Some(3), &[]), Err(Code::IncompleteBody)),
        (body(&["abcd"], Some(3), &[]), Err(Code::IncompleteBody)),
        (body(&["3\r\nab", "c\r\n0\r\n\r\n"], Some(13), &[CHUNKED, ("x-amz-decoded-content-length", "3")]), Ok("abc")),
    ];
    for (body, expected) in cases {
        let collected = body.unwrap().collect(100).await.map_err(|error| error.code);
        assert_eq!(collected, expected.map(Bytes::from));
    }
}

#[tokio::test]
async fn a_signed_hash_overrides_an_unsigned_header() {
    use crate::auth::AuthScheme;
    let expected = crate::auth::unhex(ABC);
    let checked = VerifiedSignature { scheme: AuthScheme::V4Query, signer: None, body: expected };
    for (text, header, code) in [
        ("abc", None, None),
        ("abd", None, Some(Code::XAmzContentSHA256Mismatch)),
        ("abd", Some("UNSIGNED-PAYLOAD"), Some(Code::XAmzContentSHA256Mismatch)),
    ] {
        let headers: HeaderMap =
            header.iter().map(|value| ("x-amz-content-sha256".parse().unwrap(), value.parse().unwrap())).collect();
        let pieces = [Bytes::from_static(text.as_bytes())].into_iter().collect();
        let mut body = RequestBody::from_source(RequestBodySource::Pieces(pieces), Some(3));
        body.set_framing(Payload::from_headers(&headers).unwrap(), &headers, Some(&checked)).unwrap();
        assert_eq!(body.collect(9).await.err().map(|error| error.code), code, "{text} {header:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_document_times_out() {
    let mut body = body(&[], None, &[]).unwrap();
    body.source = RequestBodySource::Never;
    assert_eq!(body.document().await.unwrap_err().code, Code::RequestTimeout);
}

#[tokio::test]
async fn a_document_above_the_limit_is_refused() {
    for (pieces, length) in [(&["abcd"][..], Some(4)), (&["abcd"], None), (&["ab", "cd"], None)] {
        let collected = body(pieces, length, &[]).unwrap().collect(3).await;
        assert_eq!(collected.map_err(|error| error.code), Err(Code::MaxMessageLengthExceeded));
    }
}

#[tokio::test]
async fn trailers_are_available_after_the_body() {
    let wire = "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n";
    let headers = [CHUNKED, ("x-amz-decoded-content-length", "3"), ("x-amz-trailer", "x-amz-checksum-crc32")];
    let mut body = body(&[wire], None, &headers).unwrap();
    assert_eq!(body.length(), Some(3));
    assert_eq!(body.next().await.unwrap().unwrap(), "abc");
    assert!(body.next().await.is_none());
    assert_eq!(body.trailing(), Some(("x-amz-checksum-crc32".to_owned(), Bytes::from_static(b"NSRBwg=="))));
}

#[tokio::test]
async fn the_failure_of_a_body_becomes_its_s3_error() {
    let mut body = body(&["ab"], Some(3), &[]).unwrap();
    let failure = body.failure();
    assert!(body.next().await.unwrap().is_ok());
    let error = body.next().await.unwrap().unwrap_err();
    assert!(body.next().await.is_none(), "a failed body ends");
    let error = failure.error_for(larder_s3::Error::BrokenBody(error.0));
    assert_eq!(error.code, Code::IncompleteBody);
    assert_eq!(failure.error_for(larder_s3::Error::NoSuchKey).code, Code::NoSuchKey, "another error stays as it is");
}

#[test]
fn chunks_need_a_length_and_a_version_4_signature() {
    let signed = ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    let curve = ("x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD");
    let length = ("x-amz-decoded-content-length", "3");
    for (headers, code) in [
        (&[CHUNKED][..], Code::MissingContentLength),
        (&[CHUNKED, ("x-amz-decoded-content-length", "many")], Code::MissingContentLength),
        (&[signed, length], Code::InvalidRequest),
        (&[curve, length], Code::NotImplemented),
        (&[("x-amz-content-sha256", "abc")], Code::InvalidArgument),
    ] {
        assert_eq!(body(&["abc"], Some(3), headers).map(|_| ()), Err(code), "{headers:?}");
    }
}
