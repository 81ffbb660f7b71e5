use proptest::prelude::*;

use super::*;
use crate::auth::credential::Credential;

const DATE: &str = "20130524T000000Z";
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const SEED_TRAILER: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

fn signer(seed: &str) -> ChunkSigner {
    let credential = Credential::parse("AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request").unwrap();
    let key = credential.key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    ChunkSigner::new(key, DATE.into(), credential.scope(), seed.into())
}

/// The bytes of a body and its trailing headers.
type DecodedBody = (Vec<u8>, Vec<(String, Bytes)>);

/// Decodes a body that arrives in pieces of `size` bytes.
fn decode(mut decoder: ChunkedDecoder, body: &[u8], size: usize) -> Result<DecodedBody, Code> {
    let mut all = Vec::new();
    for piece in body.chunks(size.max(1)) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(bytes) = decoder.next(&mut input).map_err(|error| error.code)? {
            all.extend_from_slice(&bytes);
        }
        assert!(input.is_empty());
    }
    decoder.finish().map_err(|error| error.code)?;
    Ok((all, decoder.trailers().to_vec()))
}

fn chunk(size: &str, signature: &str, bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{size};chunk-signature={signature}\r\n").into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// The chunked upload that Amazon published.
fn published() -> Vec<u8> {
    [
        chunk("10000", "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648", &[b'a'; 65536]),
        chunk("400", "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497", &[b'a'; 1024]),
        chunk("0", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9", b""),
    ]
    .concat()
}

/// The published upload with a trailing header, up to its last chunk.
fn published_with_trailer() -> Vec<u8> {
    let mut body = [
        chunk("10000", "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2", &[b'a'; 65536]),
        chunk("400", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7", &[b'a'; 1024]),
    ]
    .concat();
    body.extend_from_slice(b"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n");
    body
}

const TRAILER_SIGNATURE: &str = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";

#[test]
fn the_published_chunks_verify_in_pieces_of_any_size() {
    for size in [1, 7, 1000, 65_623, 1 << 20] {
        let (bytes, trailers) =
            decode(ChunkedDecoder::new(66_560, Some(signer(SEED)), None), &published(), size).unwrap();
        assert!(bytes.len() == 66_560 && bytes.iter().all(|byte| *byte == b'a'));
        assert!(trailers.is_empty());
    }
}

#[test]
fn the_published_trailer_verifies_with_any_line_ends() {
    let lines = [
        format!("x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:{TRAILER_SIGNATURE}\r\n\r\n"),
        format!("x-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-trailer-signature:{TRAILER_SIGNATURE}\r\n\r\n"),
        format!("X-Amz-Checksum-Crc32c: sOO8/Q== \nx-amz-trailer-signature:{TRAILER_SIGNATURE}\n\r\n\r\n"),
        format!("x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:{TRAILER_SIGNATURE}\r\n"),
    ];
    let decoder = || ChunkedDecoder::new(66_560, Some(signer(SEED_TRAILER)), Some("x-amz-checksum-crc32c"));
    for lines in &lines {
        let body = [&published_with_trailer(), lines.as_bytes()].concat();
        let (bytes, trailers) = decode(decoder(), &body, 1 << 20).unwrap();
        assert_eq!(bytes.len(), 66_560);
        assert_eq!(trailers, [("x-amz-checksum-crc32c".to_owned(), Bytes::from_static(b"sOO8/Q=="))]);
    }
    for (from, to) in [("sOO8", "sOO9"), ("d81f", "d81e"), ("x-amz-trailer-signature", "x-amz-trailer-sig")] {
        let body = [&published_with_trailer(), lines[0].replace(from, to).as_bytes()].concat();
        assert!(decode(decoder(), &body, 1000).is_err(), "{from} -> {to}");
    }
}

#[test]
fn a_modified_chunk_is_refused() {
    let good = published();
    for (at, what) in [(100, b'b'), (20, b'0'), (65_700, b'b')] {
        let mut body = good.clone();
        body[at] = what;
        let decoded = decode(ChunkedDecoder::new(66_560, Some(signer(SEED)), None), &body, 4096);
        assert!(decoded.is_err_and(|code| code == Code::SignatureDoesNotMatch), "{at}");
    }
    let other_seed = decode(ChunkedDecoder::new(66_560, Some(signer(SEED_TRAILER)), None), &good, 4096);
    assert_eq!(other_seed.map(|_| ()), Err(Code::SignatureDoesNotMatch));
    let unsigned = b"3\r\nabc\r\n0\r\n\r\n";
    let decoded = decode(ChunkedDecoder::new(3, Some(signer(SEED)), None), unsigned, 64);
    assert_eq!(decoded.map(|_| ()), Err(Code::SignatureDoesNotMatch));
}

fn unsigned(body: &[u8], length: u64, announced: Option<&str>) -> Result<Vec<u8>, Code> {
    let decoded = decode(ChunkedDecoder::new(length, None, announced), body, 1 << 20).map(|(bytes, _)| bytes);
    let in_bits = decode(ChunkedDecoder::new(length, None, announced), body, 1).map(|(bytes, _)| bytes);
    assert_eq!(decoded, in_bits);
    decoded
}

#[test]
fn malformed_framing_of_an_unsigned_body_is_refused() {
    let crc = Some("x-amz-checksum-crc32");
    let fine: [(&[u8], u64, Option<&str>); 6] = [
        (b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 5, None),
        (b"5\r\nabcde\r\n0\r\n", 5, None),
        (b"5\nabcde\n0\n\n", 5, None),
        (b"5\r\nabcde\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", 5, crc),
        (b"5\r\nabcde\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\n\r\n\r\n", 5, crc),
        (b"0000005\r\nabcde\r\n000\r\n\r\n\r\n", 5, None),
    ];
    for (body, length, announced) in fine {
        assert_eq!(
            unsigned(body, length, announced).as_deref(),
            Ok(&b"abcde"[..]),
            "{:?}",
            Bytes::copy_from_slice(body)
        );
    }
    assert_eq!(unsigned(b"0\r\n\r\n", 0, None).as_deref(), Ok(&b""[..]));

    let long = [b"1;".to_vec(), vec![b'x'; 5000]].concat();
    let bad: [(&[u8], u64, Option<&str>, Code); 15] = [
        (b"", 0, None, Code::IncompleteBody),
        (b"3\r\nabc\r\n", 3, None, Code::IncompleteBody),
        (b"3\r\nab", 3, None, Code::IncompleteBody),
        (b"3\r\nabc\r\n0\r\n\r\n", 4, None, Code::IncompleteBody),
        (b"3\r\nabc\r\n0\r\n\r\n", 2, None, Code::IncompleteBody),
        (b"3\r\nabcd\r\n0\r\n\r\n", 4, None, Code::IncompleteBody),
        (b"x\r\n", 4, None, Code::IncompleteBody),
        (b"\r\n", 4, None, Code::IncompleteBody),
        (b"-1\r\n", 4, None, Code::IncompleteBody),
        (b"ffffffffffffffffff\r\n", u64::MAX, None, Code::IncompleteBody),
        (&long, 1, None, Code::IncompleteBody),
        (b"0\r\n\r\n", 0, crc, Code::MalformedTrailerError),
        (b"0\r\nx-amz-checksum-sha1:A\r\n\r\n", 0, crc, Code::MalformedTrailerError),
        (b"0\r\nno colon\r\n\r\n", 0, crc, Code::MalformedTrailerError),
        (b"0\r\nx-amz-checksum-crc32:A\r\nx-amz-checksum-crc32:A\r\n\r\n", 0, crc, Code::MalformedTrailerError),
    ];
    for (body, length, announced, code) in bad {
        assert_eq!(unsigned(body, length, announced), Err(code), "{:?}", Bytes::copy_from_slice(body));
    }
    let extra = decode(ChunkedDecoder::new(0, None, None), b"0\r\n\r\nGET / HTTP/1.1\r\n", 64).map(|_| ());
    assert_eq!(extra, Err(Code::IncompleteBody));
}

#[test]
fn bytes_pass_without_a_copy() {
    let body = Bytes::from_static(b"5\r\nabcde\r\n0\r\n\r\n");
    let mut input = body.clone();
    let decoded = ChunkedDecoder::new(5, None, None).next(&mut input).unwrap().unwrap();
    assert_eq!(decoded.as_ptr(), body[3..].as_ptr());
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..20) {
        let _ = decode(ChunkedDecoder::new(100, None, Some("x-a")), &body, size);
        let _ = decode(ChunkedDecoder::new(100, Some(signer(SEED)), Some("x-a")), &body, size);
    }

    #[test]
    fn a_chunked_body_is_decoded_whole(body in prop::collection::vec(any::<u8>(), 0..500), cut in 1usize..60, size in 1usize..80) {
        let mut wire = Vec::new();
        for piece in body.chunks(cut) {
            wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            wire.extend_from_slice(piece);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\nX-A:v\r\n\r\n");
        let (decoded, trailers) = decode(ChunkedDecoder::new(body.len() as u64, None, Some("x-a")), &wire, size).unwrap();
        prop_assert_eq!(decoded, body);
        prop_assert_eq!(trailers, vec![("x-a".to_owned(), Bytes::from_static(b"v"))]);
    }
}
