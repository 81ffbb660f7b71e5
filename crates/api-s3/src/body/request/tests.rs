use std::collections::VecDeque;

use super::*;

/// A body of these pieces, read as its headers say.
fn body(pieces: &[&'static str], length: Option<u64>, headers: &[(&'static str, &str)]) -> Result<RequestBody, Code> {
    let pieces: VecDeque<_> = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let mut body = RequestBody::over(Source::Pieces(pieces), length);
    let payload = Payload::of(&headers).map_err(|fault| fault.code)?;
    body.read_as(payload, &headers, None).map_err(|fault| fault.code)?;
    Ok(body)
}

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const CHUNKED: (&str, &str) = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");

#[tokio::test]
async fn a_body_is_what_its_headers_say_or_breaks_off() {
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
        let collected = body.unwrap().collect(100).await.map_err(|fault| fault.code);
        assert_eq!(collected, expected.map(Bytes::from));
    }
}

#[tokio::test]
async fn a_hash_that_was_signed_counts_more_than_a_header_that_was_not() {
    use crate::auth::Scheme;
    let expected = crate::auth::unhex(ABC);
    let checked = Checked { scheme: Scheme::V4Query, signer: None, body: expected };
    for (text, header, code) in [
        ("abc", None, None),
        ("abd", None, Some(Code::XAmzContentSHA256Mismatch)),
        ("abd", Some("UNSIGNED-PAYLOAD"), Some(Code::XAmzContentSHA256Mismatch)),
    ] {
        let headers: HeaderMap =
            header.iter().map(|value| ("x-amz-content-sha256".parse().unwrap(), value.parse().unwrap())).collect();
        let pieces = [Bytes::from_static(text.as_bytes())].into_iter().collect();
        let mut body = RequestBody::over(Source::Pieces(pieces), Some(3));
        body.read_as(Payload::of(&headers).unwrap(), &headers, Some(&checked)).unwrap();
        assert_eq!(body.collect(9).await.err().map(|fault| fault.code), code, "{text} {header:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_dribbles_is_given_up() {
    let mut body = body(&[], None, &[]).unwrap();
    body.source = Source::Never;
    assert_eq!(body.document().await.unwrap_err().code, Code::RequestTimeout);
}

#[tokio::test]
async fn a_document_may_not_be_too_long() {
    for (pieces, length) in [(&["abcd"][..], Some(4)), (&["abcd"], None), (&["ab", "cd"], None)] {
        let collected = body(pieces, length, &[]).unwrap().collect(3).await;
        assert_eq!(collected.map_err(|fault| fault.code), Err(Code::MaxMessageLengthExceeded));
    }
}

#[tokio::test]
async fn what_comes_behind_the_body_is_handed_over() {
    let wire = "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n";
    let headers = [CHUNKED, ("x-amz-decoded-content-length", "3"), ("x-amz-trailer", "x-amz-checksum-crc32")];
    let mut body = body(&[wire], None, &headers).unwrap();
    assert_eq!(body.length(), Some(3));
    assert_eq!(body.next().await.unwrap().unwrap(), "abc");
    assert!(body.next().await.is_none());
    assert_eq!(body.trailing(), Some(("x-amz-checksum-crc32".to_owned(), Bytes::from_static(b"NSRBwg=="))));
}

#[tokio::test]
async fn the_verdict_tells_why_a_body_broke_off() {
    let mut body = body(&["ab"], Some(3), &[]).unwrap();
    let verdict = body.verdict();
    assert!(body.next().await.unwrap().is_ok());
    let error = body.next().await.unwrap().unwrap_err();
    assert!(body.next().await.is_none(), "it broke off once");
    let fault = verdict.of(objects::Error::BrokenBody(error.0));
    assert_eq!(fault.code, Code::IncompleteBody);
    assert_eq!(verdict.of(objects::Error::NoSuchKey).code, Code::NoSuchKey, "another error is told as it is");
}

#[test]
fn chunks_need_a_length_and_the_signature_they_claim() {
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
